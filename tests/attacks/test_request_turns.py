"""To keep everybody waiting by requests that each take a moment, on many connections at once."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rota.registry.decider import Decider
from rota.server import media, reviews
from rota.server.loop_budget import LoopBudget
from tests.attacks.conftest import TENANT, Deployer, deployer
from tests.server.conftest import Server
from tests.until import until_async

CONNECTIONS = 24
SOON_SECONDS = 120.0
TASKS = f"/apis/rota.dev/v1alpha1/namespaces/{TENANT}/tasks"
LARGE = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Task",
    "metadata": {"name": "large"},
    "spec": {"function": {"name": "f", "payload": {"a": [[0] * 10] * 1500}}},
}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OURS = "/api/v1/namespaces/ours/configmaps"
YAML = {"Accept": "application/yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
PATCH = {"Content-Type": "application/json-patch+json"}
REVIEW = {"spec": {f"a{i}": 1 for i in range(20_000)}}
TESTS = [{"op": "test", "path": "/metadata/name", "value": "large"}] * 2000
STEPS_MAX = 2
"""Long steps in one turn of the loop: one that has waited, and one that arrives after it."""


class Counted:
    """Counts the calls of a function in each turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.began: Counter[int] = Counter()
        self.turn = 0
        self._loop = asyncio.get_running_loop()
        self._call: Callable[..., Any] = getattr(owner, name)
        monkeypatch.setattr(owner, name, self._counted(self._call))
        self._loop.call_soon(self._next)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.began[self.turn] += 1
            return call(*given, **named)

        return counted

    def _next(self) -> None:
        self.turn += 1
        self._loop.call_soon(self._next)


def request(server: Server, who: str, method: str, path: str, body: Any = None, **headers: str) -> bytes:
    content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    sent = {"Host": f"127.0.0.1:{server.port}", "Authorization": f"Bearer {who}", "Content-Length": str(len(content))}
    sent |= {"Content-Type": "application/json", **headers}
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items()) + "\r\n"
    return head.encode() + content


async def status(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
    return int(head.split()[1])


class Crowd:
    """Many connections on which the same is sent, when all of them are open."""

    def __init__(self) -> None:
        self._opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, server: Server, data: bytes) -> None:
        for _ in range(CONNECTIONS):
            self._opened.append(await server.connect())
        for _, writer in self._opened:
            writer.write(data)

    async def answers(self) -> set[int]:
        return {await status(reader) for reader, _ in self._opened}

    def close(self) -> None:
        for _, writer in self._opened:
            writer.close()


@pytest.fixture
async def crowd(bare: Server) -> AsyncIterator[Crowd]:
    made = Crowd()
    yield made
    made.close()


WAYS: dict[str, tuple[Any, str, tuple[Any, ...], dict[str, str], int]] = {
    "read as YAML": (media, "encoded", ("GET", f"{TASKS}/large"), YAML, 200),
    "a review": (
        reviews,
        "review",
        ("POST", REVIEWS, REVIEW),
        {},
        422,
    ),
    "a patch": (Decider, "patch", ("PATCH", f"{TASKS}/large?dryRun=All", TESTS), PATCH, 200),
}


@pytest.mark.parametrize("way", WAYS)
async def test_to_keep_everybody_waiting_by_what_takes_a_moment_on_many_connections(
    bare: Server, attacker: Deployer, crowd: Crowd, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    owner, name, what, headers, code = WAYS[way]
    assert (await attacker.ask("POST", TASKS, LARGE)).status == 201
    counted = Counted(monkeypatch, owner, name)
    await crowd.send(bare, request(bare, attacker.token, *what, **headers))
    async with asyncio.timeout(SOON_SECONDS):
        assert await crowd.answers() == {code}
    assert sum(counted.began.values()) >= CONNECTIONS
    assert max(counted.began.values()) <= STEPS_MAX


async def test_to_be_answered_before_all_others_by_asking_the_most(
    bare: Server, attacker: Deployer, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await attacker.ask("POST", TASKS, LARGE)).status == 201
    good = await deployer(bare, "ours")
    assert (await good.ask("POST", OURS, {"metadata": {"name": "a"}})).status == 201
    ours, writer = await bare.connect()
    counted = Counted(monkeypatch, media, "encoded")
    await crowd.send(bare, request(bare, attacker.token, "GET", f"{TASKS}/large", **YAML))
    await until_async(lambda: sum(counted.began.values()) >= 3)
    async with asyncio.timeout(SOON_SECONDS):
        for sent in (
            request(bare, good.token, "GET", f"{OURS}/a"),
            request(bare, good.token, "PATCH", f"{OURS}/a", {"data": {"a": "b"}}, **MERGE),
        ):
            before = sum(counted.began.values())
            writer.write(sent)
            assert await status(ours) == 200
            # A write has several steps. Our own answer is counted, too.
            assert sum(counted.began.values()) - before < CONNECTIONS // 2
        assert await crowd.answers() == {200}
    writer.close()


async def test_to_be_answered_after_the_token_has_ended_because_one_had_to_wait(
    bare: Server, attacker: Deployer, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await attacker.ask("POST", TASKS, LARGE)).status == 201
    admin, writer = await bare.connect()
    listed = (await bare.ask("GET", "/v1/tokens")).json["tokens"]
    (id_,) = [one["id"] for one in listed if one["name"] == f"deployer-of-{TENANT}"]
    counted = Counted(monkeypatch, media, "encoded")
    await crowd.send(bare, request(bare, attacker.token, "GET", f"{TASKS}/large", **YAML))
    await until_async(lambda: sum(counted.began.values()) >= 1)
    async with asyncio.timeout(SOON_SECONDS):
        writer.write(request(bare, bare.token, "DELETE", f"/v1/tokens/{id_}"))
        assert await status(admin) == 200
        assert await crowd.answers() == {200, 401}
    writer.close()


async def test_to_take_all_threads_by_lists_in_yaml(
    bare: Server, attacker: Deployer, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        made = await attacker.ask("POST", TASKS, {**LARGE, "metadata": {"name": f"large-{number}"}})
        assert made.status == 201
    under_way: list[int] = []
    most = 0
    lock = threading.Lock()
    encoded = media.encoded

    def counted(body: bytes, type_: str) -> bytes:
        nonlocal most
        with lock:
            under_way.append(1)
            most = max(most, len(under_way))
        try:
            return encoded(body, type_)
        finally:
            with lock:
                under_way.pop()

    monkeypatch.setattr(media, "encoded", counted)
    await crowd.send(bare, request(bare, attacker.token, "GET", TASKS, **YAML))
    async with asyncio.timeout(SOON_SECONDS):
        # On a slow machine some have waited for too long.
        assert 200 in await crowd.answers() <= {200, 429}
    assert most == 1


def busy() -> None:
    until = time.perf_counter() + 0.01
    while time.perf_counter() < until:
        pass


async def test_work_in_turns_ends_as_it_would_without_them() -> None:
    budget = LoopBudget()

    async def work(number: int) -> int:
        busy()
        try:
            await asyncio.sleep(0)
            busy()
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            pass
        if number % 3 == 0:
            raise ValueError(number)
        return number

    async with asyncio.timeout(SOON_SECONDS):
        found = await asyncio.gather(*(budget.steps(str(i % 4), work(i)) for i in range(12)), return_exceptions=True)
    assert [one for one in found if isinstance(one, int)] == [i for i in range(12) if i % 3]
    assert [str(one) for one in found if isinstance(one, ValueError)] == ["0", "3", "6", "9"]
    assert budget.waiting == 0


async def test_who_is_gone_while_waiting_for_a_turn_leaves_nothing() -> None:
    budget, begun, ended = LoopBudget(), [], []

    async def work(number: int) -> None:
        begun.append(number)
        busy()
        try:
            await asyncio.sleep(0)
            busy()
        finally:
            ended.append(number)

    tasks = [asyncio.create_task(budget.steps("a", work(i))) for i in range(20)]
    await until_async(lambda: len(begun) >= 3)
    for task in tasks[1::2]:
        task.cancel()
    async with asyncio.timeout(SOON_SECONDS):
        found = await asyncio.gather(*tasks, return_exceptions=True)
        # A step can be taken afterwards.
        await budget.steps("b", work(20))
    assert sum(one is None for one in found) >= 10
    assert sorted(begun) == sorted(ended) and {20, *range(0, 20, 2)} <= set(begun)
    assert budget.waiting == 0
