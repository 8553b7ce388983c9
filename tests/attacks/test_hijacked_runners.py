"""By messages of a runner that no runner sends, with the token of one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.client.upgrading import connect_unix
from rota.client.websocket import WebSocket
from rota.runtime.interface import Subject
from rota.runtime.runner.journal import PENDING_MAX
from rota.runtime.runner.messages import PROTOCOL
from rota.runtime.runners import BAD_MESSAGE, FRAME_CHARACTERS_MAX
from rota.server.signed_tokens import SignedTokens
from tests.attacks.test_kept_trees import POOLS, TASKS
from tests.claims.test_gateway import API, pool, until
from tests.server.conftest import Server, served
from tests.until import until_so
from tests.workers.running import end_of


class Hijacked:
    """The stream of a runner, in the hands of somebody else."""

    def __init__(self, live: Server, stream: WebSocket) -> None:
        self.live = live
        self.stream = stream
        self._jobs: list[dict[str, Any]] = []
        self._configured = ""

    def say(self, *messages: Any) -> None:
        self.stream.send(json.dumps(messages, separators=(",", ":")))

    async def job(self, name: str) -> str:
        """The id of the attempt of a task that is made now."""
        spec = {"workerPoolRef": {"name": "boxes"}, "command": ["true"]}
        body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": spec}
        assert (await self.live.ask("POST", TASKS, body)).status == 201
        while not self._jobs:
            await self._hear()
        return str(self._jobs.pop()["id"])

    async def idle(self) -> None:
        while not self._configured:
            await self._hear()
        self.say({"type": "report", "run": 1, "phase": "Idle", "configured": self._configured}, {"type": "jobs"})

    async def _hear(self) -> None:
        for message in json.loads(await self.stream.receive()):
            if message["type"] == "configure":
                self._configured = message["digest"]
            elif message["type"] == "assign":
                self._jobs.append(message["job"])

    async def over(self, name: str) -> dict[str, Any]:
        """The status of a task that has ended."""

        async def status() -> dict[str, Any]:
            return dict((await self.live.ask("GET", f"{TASKS}/{name}")).json.get("status", {}))

        ended = ("Succeeded", "Failed")
        found: dict[str, Any] = await until_so(status, lambda one: one.get("phase") in ended, f"the end of {name}")
        return found


@contextmanager
def deaf(live: Server, subject: Subject) -> Iterator[None]:
    """The real runner stands still, and takes its stream back later."""
    words = (f"ROTA_INSTANCE={subject.namespace}/{subject.name}\0".encode(), f"ROTA_HOME={live.home}\0".encode())
    mine = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, words)]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in mine:
            os.kill(pid, signal.SIGCONT)


def _has(pid: int, words: tuple[bytes, ...]) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return all(word in environment for word in words)


@asynccontextmanager
async def taken(live: Server, subject: Subject) -> AsyncIterator[Hijacked]:
    token = SignedTokens(live.home / "worker.key", "worker").of(subject)
    target, headers = f"/v1/stream/default/{subject.name}", {"Authorization": f"Bearer {token}"}
    stream = await connect_unix(str(live.socket), target, headers=headers, protocols=(PROTOCOL,))
    try:
        made = Hijacked(live, stream)
        made.say({"type": "report", "run": 0, "phase": "Idle"})
        yield made
    finally:
        stream.abort()


@pytest.fixture
async def hijacked(tmp_path: Path) -> AsyncIterator[Hijacked]:
    async with served(tmp_path / "home") as live:
        wanted = pool("boxes", 1, worker={"type": "shell", "isolation": "none"})
        del wanted["spec"]["template"]
        assert (await live.ask("POST", POOLS, wanted)).status == 201
        await until(live, 1)
        (instance,) = (await live.ask("GET", f"{API}/instances")).json["items"]
        subject = Subject("default", instance["metadata"]["name"], instance["metadata"]["uid"])
        with deaf(live, subject):
            async with taken(live, subject) as made:
                yield made


def ended(id_: str, **more: Any) -> dict[str, Any]:
    outcome = {"id": id_, "reason": "Succeeded", "started": time.time(), "ended": time.time(), **more}
    return {"type": "ended", "outcome": outcome}


ENDS: tuple[dict[str, Any], ...] = (
    {"ended": 1e300},
    {"started": -1e300},
    {"ended": 1e18},
    {"started": 0.0, "ended": 253402300800.0},
    {"exitCode": 1 << 70},
    {"message": "m" * 1_000_000},
    {"commit": "c" * 1_000_000},
    {"outputs": {str(number): "" for number in range(20_000)}},
    {"outputs": {"k" * 1_000_000: "value"}},
    {"usage": {str(number): 1.0 for number in range(20_000)}},
)


async def test_to_have_tasks_never_end_by_ends_that_cannot_be_written(hijacked: Hijacked) -> None:
    """All ends of one moment are written together: none of them was."""
    await hijacked.idle()
    for number, end in enumerate(ENDS):
        id_ = await hijacked.job(f"task-{number}")
        hijacked.say(ended(id_, **end))
        status = await hijacked.over(f"task-{number}")
        assert status["attempts"][-1]["end"].startswith("20"), end
        assert len(json.dumps(status)) < 10_000, end
        await hijacked.idle()


async def test_to_keep_the_server_busy_with_many_messages_in_one_frame(hijacked: Hijacked) -> None:
    began = {"type": "began", "id": "x", "at": 1.0}
    hijacked.say(*[began] * (FRAME_CHARACTERS_MAX // 20))
    assert (await end_of(hijacked.stream)).code == BAD_MESSAGE


async def test_a_large_frame_with_one_message_is_taken(hijacked: Hijacked) -> None:
    await hijacked.idle()
    id_ = await hijacked.job("task")
    hijacked.say(ended(id_, message="m" * (2 * FRAME_CHARACTERS_MAX)))
    assert (await hijacked.over("task"))["phase"] == "Failed"


async def test_to_fill_the_memory_with_outcomes_of_a_worker_that_runs_no_tasks(tmp_path: Path) -> None:
    """Nobody acknowledges those of a function's worker."""
    async with served(tmp_path / "home") as live:
        source = {"inline": "def answer(event, context): return 1"}
        scale = {"min": 1, "max": 1}
        spec = {"entrypoint": "code:answer", "source": source, "scale": scale, "isolation": "none"}
        body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": "f"}, "spec": spec}
        assert (await live.ask("POST", f"{API}/functions", body)).status == 201
        await until(live, 1, "f")
        (instance,) = (await live.ask("GET", f"{API}/instances")).json["items"]
        subject = Subject("default", instance["metadata"]["name"], instance["metadata"]["uid"])
        with deaf(live, subject):
            async with taken(live, subject) as hijacked:
                hijacked.say(*[ended(f"x{number}") for number in range(PENDING_MAX + 1)])
                assert (await end_of(hijacked.stream)).code == BAD_MESSAGE
