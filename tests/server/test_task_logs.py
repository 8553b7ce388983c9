"""`/v1/tasks/NAMESPACE/NAME/logs`: what a task has written, for who may see the task, whatever became of its worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.instance_log import InstanceLog, last_lines
from rota.runtime.places import Places
from rota.runtime.runner.tasklog import LOG_BYTES_MAX, TaskLog
from rota.server.logs import pieces
from tests.server.conftest import Server, served
from tests.server.test_why import create, token_of

PATIENCE_SECONDS = 20
TASKS = "/apis/rota.dev/v1alpha1/namespaces/default/tasks"
LOGS = "/v1/tasks/default/build/logs"
SPEC = {"command": ["make"], "workerPoolRef": {"name": "none"}}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Run:
    """A task that the test plays the worker of."""

    def __init__(self, server: Server, uid: str) -> None:
        self._server = server
        self._path = Places(server.home).tasks / "default" / f"build@{uid}.log"

    def write(self, text: bytes) -> None:
        """As an attempt does, each of which opens the log anew."""
        log = TaskLog(self._path)
        log.write(text)
        log.close()

    async def phase(self, phase: str) -> None:
        status = {"status": {"phase": phase}}
        reply = await self._server.ask("PATCH", f"{TASKS}/build/status", status, headers=MERGE)
        assert reply.status == 200, reply.body


@pytest.fixture
async def run(server: Server) -> Run:
    made = await create(server, "tasks", "build", SPEC)
    return Run(server, made["metadata"]["uid"])


class Followed:
    """A stream, and what has come of it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.text = b""

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self.text:
                assert await self._take(), self.text

    async def end(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._take():
                pass
        return self.text

    async def _take(self) -> bool:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        self.text += (await self._reader.readexactly(size + 2))[:-2]
        return size > 0


@asynccontextmanager
async def following(server: Server, query: str = "follow=true") -> AsyncIterator[Followed]:
    reader, writer = await server.connect()
    host, token = f"127.0.0.1:{server.port}", server.token
    writer.write(f"GET {LOGS}?{query} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    try:
        yield Followed(reader)
    finally:
        writer.close()


async def test_all_that_a_task_has_written_is_told_without_any_worker(server: Server, run: Run) -> None:
    text = b"".join(b"line %d\n" % number for number in range(1000))
    run.write(text)
    reply = await server.ask("GET", LOGS)
    assert (reply.status, reply.body) == (200, text)
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_task_that_has_not_begun_has_written_nothing(server: Server, run: Run) -> None:
    reply = await server.ask("GET", LOGS)
    assert (reply.status, reply.body) == (200, b"")


async def test_the_last_lines_are_told_of_every_attempt(server: Server, run: Run) -> None:
    run.write(b"one\ntwo\n")
    run.write(b"three\r\nfour")
    for tail, text in (("0", b""), ("1", b"four"), ("3", b"two\nthree\r\nfour"), ("99", b"one\ntwo\nthree\r\nfour")):
        assert (await server.ask("GET", f"{LOGS}?tail={tail}")).body == text


async def test_who_was_cut_off_goes_on_at_a_byte(server: Server, run: Run) -> None:
    run.write(b"one\ntwo\n")
    assert (await server.ask("GET", f"{LOGS}?from=5")).body == b"wo\n"
    assert (await server.ask("GET", f"{LOGS}?from=8")).body == b""


async def test_a_log_that_was_shortened_is_told_from_its_beginning_to_its_end(server: Server, run: Run) -> None:
    run.write(b"first\n" + b"x" * 99 + b"\n")
    for _ in range(3):
        run.write((b"x" * 99 + b"\n") * (LOG_BYTES_MAX // 200))
    run.write(b"last\n")
    told = (await server.ask("GET", LOGS)).body
    assert told.startswith(b"first\n") and told.endswith(b"x\nlast\n") and b" bytes are missing here]\n" in told
    assert len(told) < LOG_BYTES_MAX
    assert (await server.ask("GET", f"{LOGS}?tail=1")).body == b"last\n"


# Following.


async def test_a_task_is_followed_from_before_it_begins_until_it_is_over(server: Server, run: Run) -> None:
    async with following(server) as followed:
        run.write(b"one\n")
        await followed.until(b"one\n")
        await run.phase("Running")
        run.write(b"two\n")
        await followed.until(b"two\n")
        run.write(b"three\n")
        await run.phase("Succeeded")
        assert await followed.end() == b"one\ntwo\nthree\n"


async def test_it_is_followed_from_one_attempt_to_the_next(server: Server, run: Run) -> None:
    async with following(server) as followed:
        run.write(b"first try\n")
        await followed.until(b"first try\n")
        await run.phase("Waiting")
        run.write(b"second try\n")
        await followed.until(b"second try\n")
        await run.phase("Failed")
        assert await followed.end() == b"first try\nsecond try\n"


async def test_following_may_begin_with_the_last_lines(server: Server, run: Run) -> None:
    run.write(b"one\ntwo\n")
    async with following(server, "follow=true&tail=1") as followed:
        await followed.until(b"two\n")
        run.write(b"three\n")
        await followed.until(b"three\n")
        await run.phase("Cancelled")
        assert await followed.end() == b"two\nthree\n"


async def test_a_task_that_is_over_is_not_waited_for(server: Server, run: Run) -> None:
    run.write(b"all\n")
    await run.phase("Succeeded")
    async with following(server) as followed:
        assert await followed.end() == b"all\n"


async def test_following_ends_when_the_task_is_gone(server: Server, run: Run) -> None:
    async with following(server) as followed:
        run.write(b"one\n")
        await followed.until(b"one\n")
        assert (await server.ask("DELETE", f"{TASKS}/build")).status == 200
        assert await followed.end() == b"one\n"


class Late:
    """A log that is written to at the last moment: when it was seen to be empty, and before its task is over."""

    def __init__(self) -> None:
        self._text = b""
        self._is_over = False

    def goes_on(self) -> bool:
        if not self._is_over:
            self._text, self._is_over = b"last words", True
        return False

    def read(self, size: int) -> bytes:
        text, self._text = self._text, b""
        return text

    def position(self, behind: int = 0) -> int:
        return 0

    def close(self) -> None:
        self._text = b""


async def test_nothing_is_lost_of_what_is_written_right_before_the_end() -> None:
    late = Late()
    assert [piece.data async for piece in pieces(late, late.goes_on) if piece is not None] == [b"", b"last words"]


class Endless:
    """A log that is written faster than it is read."""

    def read(self, size: int) -> bytes:
        return b"x" * size

    def position(self, behind: int = 0) -> int:
        return 0

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("tail", [None, 3])
async def test_who_writes_faster_than_it_is_read_holds_nobody_up(tail: int | None) -> None:
    total = 0
    async for piece in pieces(Endless(), None, tail):
        total += len(piece.data) if piece is not None else 0
    assert total <= 2 * LOG_BYTES_MAX


def test_the_log_of_an_instance_goes_on_in_the_next_file(tmp_path: Path) -> None:
    log = InstanceLog(tmp_path / "log", lines=1)
    assert log.read(100) == b""
    (tmp_path / "log").write_bytes(b"one\n")
    assert log.read(100) == b"one\n"
    (tmp_path / "log").rename(tmp_path / "log.1")
    with (tmp_path / "log.1").open("ab") as old:
        old.write(b"two\n")
    (tmp_path / "log").write_bytes(b"three\n")
    assert (log.read(100), log.read(100), log.read(100)) == (b"two\n", b"three\n", b"")
    log.close()


@pytest.mark.parametrize(
    ("text", "count", "lines"),
    [(b"", 3, b""), (b"a", 1, b"a"), (b"\n\n", 1, b"\n"), (b"a\nb\n", 2, b"a\nb\n"), (b"a\n\nb", 2, b"\nb")],
)
def test_lines_are_counted_from_the_end(text: bytes, count: int, lines: bytes) -> None:
    assert last_lines(text, count) == lines


# Who may.


@pytest.mark.parametrize(
    ("scope", "namespace", "status"),
    [("viewer", "", 200), ("deployer", "default", 200), ("viewer", "other", 403), ("worker", "", 403)],
)
async def test_it_is_for_who_may_see_the_task(
    server: Server, run: Run, scope: str, namespace: str, status: int
) -> None:
    token = await token_of(server, scope, namespace)
    assert (await server.ask("GET", LOGS, token=token)).status == status


async def test_a_task_that_is_not_there_has_no_log(server: Server) -> None:
    reply = await server.ask("GET", LOGS)
    assert (reply.status, reply.json["details"]["name"]) == (404, "build")


@pytest.mark.parametrize("query", ["tail=x", "tail=-1", "tail=²", "from=1e3", f"from={'9' * 5000}", "tail=1&from=1"])
async def test_what_is_no_number_is_refused(server: Server, run: Run, query: str) -> None:
    assert (await server.ask("GET", f"{LOGS}?{query}")).status == 400


async def test_a_server_that_runs_nothing_has_no_logs(tmp_path: Path) -> None:
    async with served(tmp_path / "home", with_controllers=False) as server:
        made: Any = await create(server, "tasks", "build", SPEC)
        assert made["metadata"]["name"] == "build"
        assert (await server.ask("GET", LOGS)).status == 503
