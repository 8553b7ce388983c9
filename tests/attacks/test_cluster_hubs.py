"""To harm a hub whose objects are on a cluster, or its cells, with a token or without one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.api import Cell
from rota.client import Client
from rota.engine import StoreObjects
from rota.registry import Registry
from rota.server.accounts import (
    INVITATION,
    REVIEW_SECONDS,
    REVIEWED_AT_ONCE_MAX,
    REVIEWED_AT_ONCE_RESERVED,
    REVIEWS_MAX,
    Accounts,
)
from rota.server.http import Request, Response, Stream
from rota.server.hub import READ_SECONDS_MAX, REQUESTS_OF_CELL_MAX, HubAnswers
from rota.store import MemoryStore
from tests.until import until_so

WATCH = "/api/v1/namespaces/rota-cell-{}/secrets?watch=1&timeoutSeconds=86400"


def token_of(cell: str, secret: str = "rota-cell-credential", uid: str = "1", tail: str = "") -> str:
    """Make what looks like a token of a cell. Whether it is one, the API server says."""
    claims = {
        "sub": f"system:serviceaccount:rota-cell-{cell}:rota-cell",
        "kubernetes.io": {"secret": {"name": secret, "uid": uid}},
    }
    return f"x.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()}.{tail}"


class ApiServer:
    """As much of an API server as a hub asks about its cells. It believes a token for a while after its end."""

    def __init__(self) -> None:
        self.good: set[str] = set()
        self.reviewing = self.most = self.reviews = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.made = 1
        self.deleted: list[str] = []

    async def raw(self, method: str, path: str, body: bytes = b"", headers: Any = None) -> Any:
        if path.endswith("/tokenreviews"):
            return await self._review(json.loads(body)["spec"])
        if path.endswith("/token"):
            uid = json.loads(body)["spec"]["boundObjectRef"]["uid"]
            token = token_of("ber-1", uid=uid)
            self.good.add(token)
            return _json({"status": {"token": token}, "spec": {"expirationSeconds": 3600}})
        if method == "DELETE":
            self.deleted.append(path)
        if method == "POST":
            self.made += 1
        return _json({"metadata": {"uid": str(self.made)}})

    async def _review(self, spec: dict[str, Any]) -> Any:
        self.reviews += 1
        self.reviewing += 1
        self.most = max(self.most, self.reviewing)
        try:
            await self.go_on.wait()
        finally:
            self.reviewing -= 1
        token = spec["token"]
        if token not in self.good:
            return _json({"status": {"authenticated": False}})
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1]))
        audiences = spec.get("audiences", [])
        return _json({"status": {"authenticated": True, "user": {"username": claims["sub"]}, "audiences": audiences}})

    @asynccontextmanager
    async def stream(self, method: str, target: str, **more: Any) -> AsyncIterator[Any]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"{}\n"
            await asyncio.Event().wait()

        yield _Watched(pieces())


class _Watched:
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces


def _json(body: dict[str, Any]) -> Any:
    return SimpleNamespace(body=json.dumps(body).encode())


class Hub:
    """The endpoint of a hub, without a network."""

    def __init__(self, api: ApiServer, objects: StoreObjects, folder: Path) -> None:
        self.api = api
        self.now = 0.0
        self.forgotten: list[str] = []
        reports = SimpleNamespace(forget=self.forgotten.append)
        self.running = cast(Any, SimpleNamespace(objects=objects, reports=reports))
        backend, clock = cast(Any, api), cast(Any, SimpleNamespace(now=lambda: self.now))
        self._answers = HubAnswers(self.running, Accounts(backend, clock), backend, folder / "ca.crt")

    async def ask(self, method: str, path: str, token: str, body: bytes = b"") -> Any:
        headers = {"authorization": f"Bearer {token}"}
        return await self._answers(Request(method, path.encode(), headers, body, None))

    async def code(self, method: str, path: str, token: str, body: bytes = b"") -> int:
        answer = await self.ask(method, path, token, body)
        if isinstance(answer, Stream):
            answer.on_end()
        return int(answer.status)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    registry = Registry(MemoryStore())
    client = Client.local(registry, manager="test")
    for name in ("ber-1", "ber-2"):
        await client.create({**_cell(), "metadata": {"name": name}})
    yield Hub(ApiServer(), StoreObjects(registry), tmp_path)
    await client.close()


def _cell() -> dict[str, Any]:
    return {"apiVersion": Cell.api.api_version, "kind": "Cell", "spec": {"cityCode": "ber"}}


async def test_to_stop_a_hub_with_tokens_that_are_none(hub: Hub) -> None:
    """The API server is asked about few at once, and a cell that is known waits for none of them."""
    path = WATCH.format("ber-1")
    nested = base64.b64encode(b'{"sub":' + b"[" * 3000 + b"]" * 2000 + b"}").decode()
    for token in ("", "garbage", "a.b.c", token_of("ber-1")[:-9], f"x.{nested}."):
        assert await hub.code("GET", path, token) == 401
    assert hub.api.reviews == 0, "the API server was asked about what says itself that it is no cell's token"
    known = token_of("ber-1")
    hub.api.good.add(known)
    assert await hub.code("GET", path, known) == 200
    hub.api.go_on.clear()
    strangers = [asyncio.create_task(hub.code("GET", path, token_of("ber-1", tail=str(n)))) for n in range(200)]
    await asyncio.sleep(0)
    hub.now += REVIEW_SECONDS
    cell = asyncio.create_task(hub.code("GET", path, known))
    reviewing = f"more than {REVIEWED_AT_ONCE_MAX} reviews at once"
    await until_so(lambda: hub.api.reviewing, lambda count: count > REVIEWED_AT_ONCE_MAX, reviewing, poll_seconds=0)
    assert hub.api.most == REVIEWED_AT_ONCE_MAX + 1 <= REVIEWED_AT_ONCE_MAX + REVIEWED_AT_ONCE_RESERVED
    hub.api.go_on.set()
    assert await cell == 200
    assert set(await asyncio.gather(*strangers)) == {401}


async def test_to_push_a_cell_out_of_what_a_hub_remembers(hub: Hub) -> None:
    known = token_of("ber-1")
    hub.api.good.add(known)
    assert await hub.code("GET", WATCH.format("ber-1"), known) == 200
    for number in range(REVIEWS_MAX):
        await hub.code("GET", WATCH.format("ber-1"), token_of("ber-1", tail=str(number)))
    before = hub.api.reviews
    assert await hub.code("GET", WATCH.format("ber-1"), known) == 200
    assert hub.api.reviews == before


async def test_to_go_on_with_a_token_of_a_cell_that_joined_again(hub: Hub) -> None:
    """Its watches end, and it is not taken any more, whatever the API server still believes."""
    old, ended = token_of("ber-1"), []
    hub.api.good.add(old)
    watch = await hub.ask("GET", WATCH.format("ber-1"), old)
    assert isinstance(watch, Stream)
    assert watch.seconds_max == READ_SECONDS_MAX, "one whose token ends elsewhere ends soon"
    watch.on_start(lambda: ended.append(True))
    invitation = token_of("ber-1", secret=INVITATION)
    hub.api.good.add(invitation)
    body = json.dumps({"identity": "home", "city": "ber"}).encode()
    joined = await hub.ask("POST", "/v1/cells/ber-1/join", invitation, body)
    assert isinstance(joined, Response) and joined.status == 201, joined
    assert ended == [True]
    assert hub.forgotten == ["ber-1"]
    assert await hub.code("POST", "/v1/cells/ber-1/report", old, b"{}") == 401
    assert await hub.code("GET", WATCH.format("ber-1"), old) == 401
    new = json.loads(joined.body)["token"]
    assert await hub.code("GET", WATCH.format("ber-1"), new) == 200


async def test_to_use_an_invitation_beside_a_later_one(hub: Hub) -> None:
    """All of a cell are bound to one Secret, which is made anew for each: the API server ends the earlier one."""
    accounts = Accounts(cast(Any, hub.api), cast(Any, SimpleNamespace(now=lambda: 0.0)))
    first, second = await accounts.invite("ber-1", 60), await accounts.invite("ber-1", 60)
    assert first != second, "they are bound to the same Secret"
    assert hub.api.deleted == [f"/api/v1/namespaces/rota-cell-ber-1/secrets/{INVITATION}"] * 2
    other = token_of("ber-1", secret="rota-cell-invitation-1f2e")
    hub.api.good.add(other)
    body = json.dumps({"identity": "home", "city": "ber"}).encode()
    assert await hub.code("POST", "/v1/cells/ber-1/join", other, body) == 401


async def test_to_silence_a_cell_by_requests_that_are_never_over(hub: Hub) -> None:
    """Otherwise a thief of its token could use up the requests of a cell, even after it has joined again."""
    token = token_of("ber-1")
    hub.api.good.add(token)
    for _ in range(REQUESTS_OF_CELL_MAX + 1):
        assert await hub.code("GET", f"{WATCH.format('ber-1')}{'&' * 100}", token) == 400
    assert await hub.code("GET", WATCH.format("ber-1"), token) == 200


async def test_to_take_all_watches_of_a_hub(hub: Hub) -> None:
    one, other = token_of("ber-1"), token_of("ber-2")
    hub.api.good |= {one, other}
    opened = [await hub.ask("GET", WATCH.format("ber-1"), one) for _ in range(REQUESTS_OF_CELL_MAX)]
    assert all(isinstance(each, Stream) for each in opened)
    for method, path in (("GET", WATCH.format("ber-1")), ("POST", "/v1/cells/ber-1/report")):
        assert await hub.code(method, path, one) == 429
    assert await hub.code("GET", WATCH.format("ber-2"), other) == 200
    opened[0].on_end()
    assert await hub.code("GET", WATCH.format("ber-1"), one) == 200


async def test_to_join_at_a_hub_that_does_not_lead(hub: Hub) -> None:
    """The one that leads would not forget what was reported before."""
    hub.running.reports = None
    invitation = token_of("ber-1", secret=INVITATION)
    hub.api.good.add(invitation)
    body = json.dumps({"identity": "home", "city": "ber"}).encode()
    before = hub.api.made
    assert await hub.code("POST", "/v1/cells/ber-1/join", invitation, body) == 503
    assert hub.api.made == before, "the invitation was used up"
