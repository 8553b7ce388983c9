"""By the small doors: another site's page, a name that is none, a key that is empty, a patch that holds itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.client.http import HttpBackend
from rota.runtime.interface import Subject
from rota.server import edge
from rota.server.auth import HomeDamaged
from rota.server.signed_tokens import SignedTokens
from tests.attacks.conftest import API, TENANT, Deployer
from tests.server.conftest import Server
from tests.server.test_edge import SPAWNER, Running, running, serving, signature
from tests.until import until_so

__all__ = ["running"]  # the fixture

PATCH = {"Content-Type": "application/json-patch+json"}
MAPS = f"/api/v1/namespaces/{TENANT}/configmaps"


# Browsers that were led here.


async def deploy(running: Running, *, public: bool = True) -> None:
    spec = {"entrypoint": "app:handler", "public": public, "source": {"inline": "def handler(event, context): pass"}}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": "open"}, "spec": spec}
    await running.client.create(body)
    await until_so(
        lambda: call(running, Host="127.0.0.1"),
        lambda reply: reply.status not in (404, 503),
        "an answer of the function",
    )


async def call(running: Running, **headers: str) -> Any:
    return await running.ask("POST", "/default/open", b"", Prefer="respond-async", **headers)


async def test_to_have_a_page_of_somebody_call_a_public_function(running: Running) -> None:
    await deploy(running)
    own = f"127.0.0.1:{running.port}"
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{running.port}"},
        {"Host": "localhost.evil.example"},
        {"Host": own, "Origin": "https://evil.example"},
        {"Host": own, "Origin": "null"},
        {"Host": own, "Origin": "http://localhost.evil.example"},
        {"Host": own, "Origin": "http://203.0.113.1"},
        {"Host": "evil.example", "Authorization": "Bearer rota-none"},
        {"Host": "[::1"},
        {"Host": own, "Sec_Fetch_Site": "cross-site"},
        {"Host": f"localhost:{running.port}", "Sec_Fetch_Site": "cross-site", "Referer": "https://evil.example/"},
    ):
        reply = await call(running, **headers)
        assert reply.status == 403, headers
        followed = await running.ask("GET", "/-/calls/default/none", b"", **headers)
        assert followed.status == 403, headers
    for headers in (
        {"Host": own},
        {"Host": f"localhost:{running.port}", "Origin": f"http://localhost:{running.port}"},
        {"Host": own, "Origin": "http://localhost:3000"},
        {"Host": "[::1]:80"},
        {"Host": own, "Sec_Fetch_Site": "none"},
        {"Host": own, "Sec_Fetch_Site": "same-site"},
        {"Host": own, "Sec_Fetch_Site": "cross-site", "Referer": "http://localhost:3000/"},
    ):
        assert (await call(running, **headers)).status == 202, headers


async def test_a_function_that_takes_a_key_is_called_by_any_name(running: Running) -> None:
    await deploy(running, public=False)
    assert (await call(running, Host="proxy.example", Origin="https://site.example")).status == 401


CALLS = 3


@pytest.fixture
async def rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server where calls are asked about a few times, and then hardly ever."""
    monkeypatch.setattr(edge, "PUBLIC_REQUESTS_BURST", float(CALLS))
    monkeypatch.setattr(edge, "PUBLIC_REQUESTS_PER_SECOND", 0.001)
    async for one in serving(tmp_path / "home"):
        yield one


async def test_to_use_up_how_often_others_ask_about_their_calls(rare: Running) -> None:
    path, own = "/-/calls/default/none", f"127.0.0.1:{rare.port}"
    about = json.dumps({"name": "caller", "scope": "function", "namespace": "default"}).encode()
    backend = rare.client.backend
    assert isinstance(backend, HttpBackend)
    made = await backend.raw("POST", "/v1/tokens", about, {"Content-Type": "application/json"})
    await until_so(
        lambda: rare.ask("POST", "/default/none", b"", Host=own),
        lambda reply: reply.status != 503,
        "an edge that knows its functions",
    )
    replies = [await rare.ask("GET", path, b"", Host=own) for _ in range(CALLS + 2)]
    assert [reply.status for reply in replies] == [401] * CALLS + [429] * 2
    key = json.loads(made.body)["token"]
    assert (await rare.ask("GET", path, b"", Host=own, X_Rota_Key=key)).status == 404


# Webhooks.


BURST = 5


@pytest.fixture
async def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server whose webhooks are called a few times, and then hardly ever."""
    monkeypatch.setattr(edge, "HOOK_REQUESTS_BURST", float(BURST))
    monkeypatch.setattr(edge, "HOOK_REQUESTS_PER_SECOND", 0.001)
    async for one in serving(tmp_path / "home"):
        yield one


async def test_to_use_up_what_a_webhook_may_be_called(strict: Running) -> None:
    await strict.spawner()
    assert (await strict.served({"title": "one"})).status == 202
    wrong = signature(b"{}", b"another secret")
    replies = [await strict.ask("POST", SPAWNER, b"{}", X_Hub_Signature_256=wrong) for _ in range(BURST + 3)]
    assert [reply.status for reply in replies] == [401] * BURST + [429] * 3
    assert (await strict.deliver({"title": "two"})).status == 202


# Names.


@pytest.mark.parametrize("name", ["a%00b", "%00", "a%0ab", "a%7f", "a%1bb"])
async def test_to_have_control_characters_in_names(bare: Server, attacker: Deployer, name: str) -> None:
    for path in (
        f"{MAPS}/{name}",
        f"/api/v1/namespaces/{name}/configmaps",
        f"{API}/{TENANT}/tasks/{name}",
        f"/v1/tasks/{TENANT}/{name}/logs",
        f"/v1/claims/{name}/x",
        f"/v1/blobs/{name}",
    ):
        for who in (bare.token, attacker.token):
            assert (await bare.ask("GET", path, token=who)).status == 400, path
    wanted = {"name": "sly", "scope": "deployer", "namespace": "a\0b"}
    assert (await bare.ask("POST", "/v1/tokens", wanted)).status == 400


@pytest.mark.parametrize("field", ["name", "namespace"])
async def test_to_have_control_characters_in_a_batch(attacker: Deployer, field: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a\0b"}}
    operation = {
        "verb": "create",
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": TENANT,
        "name": "",
        "body": body,
    }
    operation |= {field: "a\0b"}
    reply = await attacker.ask("POST", "/v1/batch", {"operations": [operation]})
    assert reply.status in (400, 403, 404, 422)


# Keys.


@pytest.mark.parametrize("content", [b"", b"short"])
def test_to_sign_with_a_key_that_is_empty(tmp_path: Path, content: bytes) -> None:
    """A disk that was full leaves a file without content: with that key anybody could make tokens."""
    path = tmp_path / "worker.key"
    path.write_bytes(content)
    with pytest.raises(HomeDamaged, match=r"worker\.key is damaged: it has \d of 32 bytes"):
        SignedTokens(path, "claim")
    path.unlink()
    tokens = SignedTokens(path, "claim")
    assert tokens.user(tokens.of(Subject("a", "b", "c"))) is not None


# Patches.


@pytest.mark.parametrize("start", ["/metadata", "/data", ""])
async def test_to_have_an_object_hold_itself(attacker: Deployer, start: str) -> None:
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", "labels": {"a": "b"}},
        "data": {"k": "v"},
    }
    assert (await attacker.ask("POST", MAPS, made)).status == 201
    patch = [
        {"op": "add", "path": "/metadata/labels", "value": {"c": "d"}},
        {"op": "add", "path": "/data/more", "value": "text"},
        {"op": "copy", "from": start, "path": f"{start}/itself"},
        {"op": "copy", "from": start, "path": f"{start}/itself/itself"},
    ]
    reply = await attacker.ask("PATCH", f"{MAPS}/m", patch, headers=PATCH)
    assert reply.status in (200, 400, 422), reply.body
    assert (await attacker.ask("GET", f"{MAPS}/m")).json["data"]["k"] == "v"


async def test_to_nest_an_object_without_end(attacker: Deployer) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}
    assert (await attacker.ask("POST", MAPS, made)).status == 201
    patch: list[dict[str, Any]] = [{"op": "add", "path": "/deep", "value": {}}]
    for _ in range(3000):
        patch += [
            {"op": "add", "path": "/outer", "value": {}},
            {"op": "move", "from": "/deep", "path": "/outer/inner"},
            {"op": "move", "from": "/outer", "path": "/deep"},
        ]
    reply = await attacker.ask("PATCH", f"{MAPS}/m", patch, headers=PATCH)
    assert reply.status == 422 and "nested deeper than" in reply.json["message"]
