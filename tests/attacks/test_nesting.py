"""By JSON that is nested so deeply, or is so little text, that it cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rota.api.problems import NOT_JSON
from rota.cli.command import explained
from rota.client.channels import ExecFailed, exit_code
from rota.runtime.runner.box import Box
from rota.runtime.runner.command_invoker import CommandInvoker
from rota.runtime.runner.function_calls import TOO_DEEP, FunctionCalls, RunningCall
from rota.runtime.runner.invoker import CallLog
from rota.runtime.runner.messages import Call, Called, Handler, encode, from_runner
from rota.server.execution import RESIZE, ExecRequest, ExecSession
from rota.server.streams import Size
from tests.runner.boxes import Bench, plain

SECONDS_MAX = 60
DEEP = b"[" * 100_000
NOT_READ = (DEEP, b'"\xff"', b'"\\ud800"')


@plain
async def test_to_have_calls_of_a_command_never_end_by_what_it_writes(bench: Bench) -> None:
    """Each of them would keep its place until its time is up; whoever calls may be who says what is written."""
    for said in NOT_READ:
        ended: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        invoker = CommandInvoker(
            bench.box, Handler("f", "command", 1, command=("cat",)), "/", lambda *end, to=ended: to.set_result(end)
        )
        invoker.call(Call("one", Raw(said), 600), CallLog(""))
        async with asyncio.timeout(SECONDS_MAX):
            _, id_, reason, result, *_ = await ended
        assert (id_, reason) == ("one", "Succeeded")
        assert msgspec.json.decode(result) == said.decode(errors="replace")


def levels_max() -> int:
    """Return the depth of nesting up to which something can be read."""
    least, most = 1, 1_000_000
    while most - least > 1:
        middle = (least + most) // 2
        try:
            msgspec.json.decode(b"[" * middle + b"]" * middle, type=Raw)
            least = middle
        except NOT_JSON:
            most = middle
    return least


async def test_to_cut_a_worker_off_by_a_result_that_the_server_cannot_read() -> None:
    """A result that the runner can just read is too deep within a message: all calls of the worker would be lost."""
    told: list[Called] = []
    calls = FunctionCalls(told.append, lambda: None)
    invoker = CommandInvoker(
        Box((), {}, Path("/nowhere")), Handler("f", "command", 1, command=("cat",)), "/", calls._on_end
    )
    most = levels_max()
    for levels in (*range(most - 8, most + 1), 10):
        running = calls._calls["one"] = RunningCall(Call("one", Raw(b"null"), 600))
        running.invoker = invoker
        calls._on_end(invoker, "one", "Succeeded", Raw(b"[" * levels + b"]" * levels), "", 0)
        [said] = from_runner.decode(b"[" + encode(told[-1]) + b"]")
        assert isinstance(said, Called) and (said.reason, said.message) == (
            ("Failed", TOO_DEEP) if levels > 10 else ("Succeeded", "")
        )


class Terminal:
    """A terminal that must not be resized: no size comes in a form that can be read."""

    def resize(self, size: Size) -> None:
        raise AssertionError(size)


@pytest.mark.parametrize(
    "size", [b'{"Width":' * 100_000, b'{"a":' + DEEP, b'{"Width":"\xff"}', b'{"Width":' + b"9" * 9999]
)
async def test_to_make_an_error_of_the_server_by_the_size_of_a_terminal(size: bytes) -> None:
    wanted = ExecRequest(("true",), stdin=True, stdout=True, stderr=False, tty=True, term="xterm", size=Size(1, 1))
    nowhere: Any = None
    session = ExecSession(nowhere, nowhere, "main", wanted, {})
    terminal: Any = Terminal()
    session._streams.terminal = terminal
    await session._take(bytes((RESIZE,)) + size)


STATUSES = [
    DEEP,
    b'{"status":"Failure","details":[]}',
    b'{"status":"Failure","details":{"causes":5}}',
    b'{"status":"Failure","details":{"causes":[1]}}',
    '{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"²"}]}}'.encode(),
    b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"' + b"9" * 9999 + b'"}]}}',
]


@pytest.mark.parametrize("status", STATUSES)
def test_to_break_a_client_by_how_a_command_ended(status: bytes) -> None:
    with pytest.raises(ExecFailed):
        exit_code(status)


@pytest.mark.parametrize("answer", [*NOT_READ, b"[]", b'{"a":' + b"9" * 9999 + b"}"])
def test_to_break_a_command_of_rota_by_an_answer(answer: bytes) -> None:
    try:
        msgspec.json.decode(answer, type=dict[str, int])
    except Exception as error:
        code, message = explained(error)
        assert code == 1 and "what the server answers is not understood" in message
    else:
        pytest.fail("it can be read")
