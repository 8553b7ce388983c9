"""To keep what one has after one's token was taken away."""

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
        while await phase(claimed, "mine") == "Bound":
            await asyncio.sleep(0.01)
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
