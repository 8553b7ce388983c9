"""To keep what one has after one's token was taken away, or the namespace that it was for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.client.websocket import Closed
from rota.runtime.interface import Subject
from rota.server.auth import Tokens
from rota.server.signed_tokens import SignedTokens
from tests.claims.test_gateway import API, OPEN, claim, command, phase, pool, until
from tests.server.conftest import POOLS, Server, served
from tests.until import until_so

PATIENCE_SECONDS = 20
IT = Subject("default", "mine", "uid")


@pytest.fixture
async def claimed(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        assert (await server.ask("POST", POOLS, pool("boxes", 2))).status == 201
        await until(server, 2)
        yield server
        await server.ask("DELETE", f"{POOLS}/boxes")


async def test_to_keep_an_instance_with_the_token_of_a_claim(claimed: Server) -> None:
    made = (await claimed.ask("POST", "/v1/tokens", {"name": "leaver", "scope": "admin"})).json
    mine, kept = await claim(claimed, "mine", token=made["token"]), await claim(claimed, "kept")
    token, instance = mine.json["token"], mine.json["claim"]["status"]["instanceName"]
    websocket = await command(claimed, instance, token, "sleep", "100600")
    assert (await claimed.ask("GET", "/v1/claims/default/mine", token=token)).status == 200
    assert (await claimed.ask("DELETE", f"/v1/tokens/{made['id']}")).status == 200
    async with asyncio.timeout(PATIENCE_SECONDS):
        with contextlib.suppress(Closed):
            while True:
                await websocket.receive()
        for method, path in (("GET", ""), ("POST", "/renew"), ("DELETE", "")):
            assert (await claimed.ask(method, f"/v1/claims/default/mine{path}", token=token)).status == 401
    await until_so(lambda: phase(claimed, "mine"), lambda found: found != "Bound", "a claim that has ended")
    # What others have is theirs.
    assert await phase(claimed, "kept") == "Bound"
    assert (await claimed.ask("GET", "/v1/claims/default/kept", token=kept.json["token"])).status == 200
    # Which token it was is written down by its id alone.
    shown = (await claimed.ask("GET", f"{API}/claims/mine")).body.decode()
    assert made["id"] in shown and made["token"] not in shown
    assert (await claimed.ask("POST", OPEN, {}, token=made["token"])).status == 401


@pytest.mark.parametrize("how", ["revoked", "expired", "forged", "another's"])
def test_the_token_of_a_claim_is_good_for_no_longer_than_its_makers(tmp_path: Path, how: str) -> None:
    moments = [1000.0]
    tokens = Tokens(tmp_path / "tokens.json", clock=lambda: moments[0])
    signed = SignedTokens(tmp_path / "key", "claim")
    _, maker = tokens.create("maker", "deployer", namespace="default", expires_seconds=60)
    _, other = tokens.create("other", "deployer", namespace="default")
    secret = signed.of(IT, maker.id)
    user = signed.user(secret)
    assert user is not None and tokens.bounded(user) is not None
    assert (user.name, user.namespace, user.token_id, user.maker) == ("mine", "default", "uid", maker.id)
    if how == "revoked":
        tokens.revoke(maker.id)
        assert tokens.bounded(user) is None
    elif how == "expired":
        moments[0] += 30
        bounded = tokens.bounded(user)
        assert bounded is not None and bounded.seconds_left == 30
        moments[0] += 30
        assert tokens.bounded(user) is None
    elif how == "forged":
        assert signed.user(secret.replace(f"/{maker.id}", "")) is None
        assert signed.user(secret.replace(maker.id, other.id)) is None
        assert signed.user(secret.replace("uid/", "uid/x/")) is None
    else:
        tokens.revoke(other.id)
        assert tokens.bounded(user) is not None
    # What the user of the server asked for is bound to no token.
    local = signed.user(signed.of(IT))
    assert local is not None and tokens.bounded(local) == local


SECRETS = "/api/v1/namespaces/shop/secrets"


@pytest.mark.parametrize("kind", ["kept", "signed", "role"])
async def test_to_read_what_is_in_a_later_namespace_of_the_same_name(bare: Server, kind: str) -> None:
    """The token of a namespace ends with it. Whoever gets one of that name has nothing to do with it."""
    await made_anew(bare)
    rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles"
    all_of_it = {"metadata": {"name": "all"}, "rules": rules}
    about = {"role": "all"} if kind == "role" else {"scope": "deployer"}
    ttl = {"ttlSeconds": 600} if kind == "signed" else {}
    assert (await bare.ask("POST", roles, all_of_it)).status == 201
    made = await bare.ask("POST", "/v1/tokens", {"name": "former", "namespace": "shop", **about, **ttl})
    former = made.json["token"]
    assert (await bare.ask("GET", SECRETS, token=former)).status == 200
    reader, writer = await bare.connect()
    watch = f"GET {SECRETS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {former}\r\n\r\n"
    writer.write(watch.encode())
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await made_anew(bare)
    assert (await bare.ask("POST", roles, all_of_it)).status == 201
    secret = {"metadata": {"name": "bank"}, "stringData": {"pin": "hidden"}}
    assert (await bare.ask("POST", SECRETS, secret)).status == 201
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert b"bank" not in await reader.read(-1)
    writer.close()
    for method, path, body in (("GET", SECRETS, None), ("POST", SECRETS, secret), ("DELETE", f"{SECRETS}/bank", None)):
        assert (await bare.ask(method, path, body, token=former)).status == 401
    later = await bare.ask("POST", "/v1/tokens", {"name": "later", "namespace": "shop", **about, **ttl})
    assert (await bare.ask("GET", f"{SECRETS}/bank", token=later.json["token"])).status == 200


async def made_anew(server: Server) -> None:
    """Have a new namespace of the name, without what was in the one before."""
    path = "/api/v1/namespaces/shop"
    await server.ask("DELETE", path)
    await until_so(lambda: server.ask("GET", path), lambda reply: reply.status == 404, "no namespace shop")
    assert (await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})).status == 201
