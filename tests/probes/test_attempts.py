"""Single probes, over real sockets: from the host, and from inside an instance that has a network of its own."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from rota.api.egress import Network
from rota.api.instance import Probe
from rota.engine import RealClock, VirtualClock
from rota.runtime.interface import Subject
from rota.runtime.probes import PASSED, Result, inside
from rota.runtime.probes.attempt import OVERDUE_SECONDS, Attempts, ProbeTarget, command_inside
from tests.probes.listening import Server, a_port_without_anybody
from tests.probes.probing import asking, connecting, getting, settle, subject

WAYS = pytest.mark.parametrize("way", ["host", "none", "egress"])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


async def run_here(subject: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
    """Run a command on the host, in place of one in an instance."""
    process = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.PIPE)
    _, errors = await process.communicate()
    assert errors == b""
    assert process.returncode is not None
    return process.returncode


async def made(probe: Probe, way: Network) -> Result:
    return await Attempts(run_here, RealClock()).make(probe, ProbeTarget(subject(), "main", way))


@WAYS
@pytest.mark.parametrize("status", ["200 OK", "204", "301 Moved", "399 Whatever"])
async def test_a_status_from_200_to_399_passes(status: str, way: Network) -> None:
    async with Server(
        b"HTTP/1.1 " + status.encode() + b"\r\nLocation: http://192.0.2.1/\r\n\r\n"
    ).listening() as server:
        assert await made(getting(server.port), way) == PASSED
        assert len(server.asked) == 1, "a redirect is not followed"


@WAYS
@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_any_other_status_fails_and_is_told(status: int, way: Network) -> None:
    async with Server(f"HTTP/1.0 {status} No\r\n\r\n".encode()).listening() as server:
        result = await made(getting(server.port, "/healthz"), way)
    shown = str(status) if way == "host" else f"a status of {status // 100}xx"
    assert result == Result("Failed", f"GET /healthz of port {server.port} was answered with {shown}")


@WAYS
async def test_the_request_is_a_plain_get_to_the_instance_itself(way: Network) -> None:
    async with Server(OK).listening() as server:
        await made(getting(server.port, "/a?b=c%20d"), way)
    lines = server.asked[0].decode().split("\r\n")
    assert lines[:2] == ["GET /a?b=c%20d HTTP/1.1", f"Host: 127.0.0.1:{server.port}"]
    assert "Connection: close" in lines


@WAYS
@pytest.mark.parametrize("path", ["/x HTTP/1.1\r\nHost: elsewhere\r\n\r\nDELETE /y", "/a\nb", "/ä#c", "/\ud800"])
async def test_a_path_stays_one_line_whatever_is_in_it(path: str, way: Network) -> None:
    async with Server(OK).listening() as server:
        assert await made(getting(server.port, path), way) == PASSED
    line, *headers = server.asked[0].split(b"\r\n")
    assert line.count(b" ") == 2 and b"\n" not in line
    assert sum(header.startswith(b"Host:") for header in headers) == 1


@WAYS
async def test_an_answer_that_follows_interim_ones_counts(way: Network) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with Server(hints + b"HTTP/1.1 100 Continue\r\n\r\n" + OK).listening() as server:
        assert await made(getting(server.port), way) == PASSED


@WAYS
@pytest.mark.parametrize(
    "answer", [b"220 mail ready\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 100 \r\n" + b"x" * 9_000]
)
async def test_what_is_no_http_fails(answer: bytes, way: Network) -> None:
    async with Server(answer).listening() as server:
        result = await made(getting(server.port), way)
    assert result.why.endswith("the answer is not HTTP")


@WAYS
async def test_a_connection_that_is_closed_without_an_answer_fails(way: Network) -> None:
    async with Server(b"").listening() as server:
        result = await made(getting(server.port), way)
    assert result == Result("Failed", f"GET / of port {server.port}: the connection was closed without an answer")


@WAYS
async def test_nothing_but_the_beginning_of_an_answer_is_read(way: Network) -> None:
    async with Server(OK + b"x" * 10_000_000).listening() as server:
        assert await made(getting(server.port), way) == PASSED


@WAYS
async def test_a_connection_that_opens_passes(way: Network) -> None:
    async with Server(None).listening() as server:
        assert await made(connecting(server.port), way) == PASSED


@WAYS
async def test_a_port_that_nobody_listens_at_fails(way: Network) -> None:
    with a_port_without_anybody() as port:
        result = await made(connecting(port), way)
        assert result == Result("Failed", f"a connection to port {port}: nothing listens there")
        assert (await made(getting(port), way)).why == f"GET / of port {port}: nothing listens there"


async def test_an_answer_that_does_not_come_fails_when_its_time_is_over() -> None:
    clock = VirtualClock()
    async with Server(None).listening() as server:
        probe = getting(server.port, timeout_seconds=7)
        making = asyncio.create_task(Attempts(run_here, clock).make(probe, ProbeTarget(subject(), "main", "host")))
        while not server.asked:
            await settle()
        assert not making.done()
        clock.advance(7)
        assert await making == Result("Failed", f"GET / of port {server.port} took longer than 7 s")


async def test_from_inside_an_answer_that_does_not_come_fails_when_its_time_is_over() -> None:
    async with Server(None).listening() as server:
        argv = command_inside(getting(server.port))
        argv[-3] = "0.05"
        assert await run_here(subject(), "main", argv, 1) == inside.SILENT


async def test_a_connection_to_itself_is_nobody_who_listens() -> None:
    with socket.socket() as loner:
        loner.bind(("127.0.0.1", 0))
        port = loner.getsockname()[1]
        loner.connect(("127.0.0.1", port))
        assert inside.connects_to_itself(loner, port)


async def test_that_rota_has_no_descriptor_left_says_nothing_of_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)
    result = await made(connecting(8080), "host")
    assert result.outcome == "Unknown" and "Too many open files" in result.why


async def test_the_program_inside_is_given_time_to_start_and_its_own_failure_is_not_the_containers() -> None:
    given: list[float] = []

    async def broken(subject: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
        given.append(seconds)
        return 137

    attempts = Attempts(broken, VirtualClock())
    result = await attempts.make(connecting(8080, timeout_seconds=2), ProbeTarget(subject(), "main", "none"))
    assert result.outcome == "Unknown" and given[0] > 2


async def test_the_program_inside_needs_no_package() -> None:
    argv = command_inside(connecting(8080))
    assert argv[1:3] == ["-I", "-S"] and "import rota" not in argv[4]


async def test_a_command_is_cancelled_with_its_probe() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hanging(subject: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 0

    clock = VirtualClock()
    making = asyncio.create_task(Attempts(hanging, clock).make(asking(), ProbeTarget(subject(), "main", "host")))
    await begun.wait()
    clock.advance(1 + OVERDUE_SECONDS)
    assert (await making).outcome == "Unknown"
    assert ended.is_set()


async def test_a_command_passes_when_it_exits_with_0() -> None:
    assert await made(asking(sys.executable, "-c", ""), "host") == PASSED
    failing = await made(asking(sys.executable, "-c", "raise SystemExit(3)"), "none")
    assert failing == Result("Failed", "the command exited with code 3")


@pytest.mark.parametrize("head", [b"", b"H", b"HTTP/1.1 20", b"HTTP/1.1 200 OK", b"HTTP/1.1 103 \r\nA: b\r\n"])
def test_the_beginning_of_an_answer_asks_for_more(head: bytes) -> None:
    assert inside.status_of(head) is None


@pytest.mark.parametrize("head", [b"h", b"SSH-2.0", b"\x15\x03", b"HTTP/2 200\r\n"])
def test_what_cannot_become_an_answer_is_refused_at_once(head: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP"):
        inside.status_of(head)
