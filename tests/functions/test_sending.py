"""Messages from a runner to the process of a function: those that come together go out together."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from msgspec import Raw

from rota.runtime.runner.invoker import CallLog
from rota.runtime.runner.messages import Call
from rota.runtime.runner.python_invoker import PythonInvoker


def host_and_process() -> tuple[PythonInvoker, socket.socket]:
    """A host whose process is the test: it receives each write apart."""
    nothing: Any = None
    host = PythonInvoker(nothing, nothing, "", *[lambda *_: None] * 3)
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setblocking(False)
    its.setblocking(False)
    host._control = mine
    return host, its


def call(number: int) -> Call:
    return Call(f"id-{number}", Raw(b"{}"), 1.0, "", f"call-{number}")


async def test_calls_of_one_turn_are_one_write_and_the_next_one_waits_for_no_other() -> None:
    host, process = host_and_process()
    for number in range(5):
        host.call(call(number), CallLog(""))
    await asyncio.sleep(0)
    written = process.recv(65536)
    assert [written.count(b'"id-%d"' % number) for number in range(5)] == [1] * 5
    host.call(call(5), CallLog(""))
    await asyncio.sleep(0)
    assert process.recv(65536).count(b'"id-5"') == 1
    host.close()
    process.close()


async def test_what_is_sent_to_a_process_that_was_closed_meanwhile_is_dropped() -> None:
    host, process = host_and_process()
    host.call(call(1), CallLog(""))
    host.close()
    await asyncio.sleep(0)
    assert process.recv(65536) == b""
    process.close()
