"""The client against a server that fails it, or lies to it: one that does as a test tells it."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from rota import ApiError, Client
from rota.client.claims import TreeRefused, context, gateway, trees
from rota.client.failures import ConnectionCut
from rota.client.http import HttpBackend
from rota.client.target import local

Reply = tuple[int, bytes] | None
"""A status and a body; None cuts the connection."""
CLAIM = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Claim",
    "metadata": {"name": "mine", "namespace": "default", "uid": "u"},
    "spec": {"poolRef": {"name": "boxes"}},
    "status": {"phase": "Bound", "instanceName": "boxes-0"},
}
BOUND = msgspec.json.encode({"claim": CLAIM, "token": "t"})


def refusal(code: int, reason: str) -> Reply:
    return code, msgspec.json.encode({"kind": "Status", "code": code, "reason": reason, "message": reason})


class Scripted:
    """A server whose answers are said beforehand; the last one for ever."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.replies: dict[str, list[Reply]] = {}
        self.on_request: Callable[[str], object] = lambda method: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
                await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
                self.asked.append(f"{method} {path}")
                self.on_request(method)
                replies = self.replies[method]
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                if reply is None:
                    break
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (reply[0], len(reply[1]), reply[1]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def client(self) -> Client:
        return Client.connect(home=self.folder)

    def count(self, method: str) -> int:
        return sum(one.startswith(method) for one in self.asked)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scripted]:
    monkeypatch.setattr(gateway, "AWAY_SECONDS_MAX", 0.3)
    monkeypatch.setattr(context, "RELEASE_SECONDS_MAX", 0.3)
    made = Scripted(tmp_path)
    listening = await asyncio.start_unix_server(made.serve, tmp_path / "rota.sock")
    try:
        yield made
    finally:
        listening.close()
        await listening.wait_closed()


async def enter(client: Client, name: str = "mine") -> None:
    async with client.claim("boxes", name=name):
        pass


async def test_what_was_cut_is_asked_for_again_under_the_same_name(server: Scripted) -> None:
    server.replies = {"POST": [None, (201, BOUND)], "DELETE": [(200, BOUND)]}
    await enter(server.client())
    assert server.asked == ["POST /v1/pools/default/boxes/claims"] * 2 + ["DELETE /v1/claims/default/mine"]


async def test_what_may_have_been_got_is_given_back(server: Scripted) -> None:
    server.replies = {"POST": [None], "DELETE": [None, (200, BOUND)]}
    with pytest.raises(ConnectionCut):
        await enter(server.client())
    assert server.count("DELETE") == 2


async def test_what_was_cut_and_then_not_served_is_given_back(server: Scripted) -> None:
    server.replies = {"POST": [None, refusal(503, "ServiceUnavailable")], "DELETE": [(200, BOUND)]}
    with pytest.raises(ApiError, match="ServiceUnavailable"):
        await enter(server.client())
    assert server.count("DELETE") == 1


async def test_what_is_somebody_elses_is_not_released(server: Scripted) -> None:
    server.replies = {"POST": [None, refusal(409, "AlreadyExists")], "DELETE": [(200, BOUND)]}
    with pytest.raises(ApiError, match="AlreadyExists"):
        await enter(server.client())
    assert server.count("DELETE") == 0


async def test_a_busy_pool_is_not_asked_again_by_itself(server: Scripted) -> None:
    server.replies = {"POST": [refusal(429, "TooManyRequests")]}
    with pytest.raises(ApiError, match="TooManyRequests"):
        await enter(server.client())
    assert server.asked == ["POST /v1/pools/default/boxes/claims"]


async def test_one_that_a_stopping_server_took_back_is_asked_for_under_another_name(server: Scripted) -> None:
    server.replies = {"POST": [None, refusal(409, "ClaimOver"), (201, BOUND)], "DELETE": [(200, BOUND)]}
    await enter(server.client(), name="")
    assert server.count("POST") == 3


async def test_a_server_that_cannot_be_told_does_not_hold_the_end_up(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    server.replies = {"POST": [(201, BOUND)], "DELETE": [None]}
    await enter(server.client())
    assert "it ends with its lease" in caplog.text and "`rota release mine` gives it back sooner" in caplog.text


async def test_one_that_is_cancelled_before_it_is_served_is_given_back_when_it_is(server: Scripted) -> None:
    entering: list[asyncio.Future[None]] = []
    server.replies = {"POST": [(201, BOUND)], "DELETE": [refusal(404, "NotFound"), (200, BOUND)]}
    server.on_request = lambda method: entering[0].cancel() if method == "POST" else None
    entering.append(asyncio.ensure_future(enter(server.client())))
    with pytest.raises(asyncio.CancelledError):
        await entering[0]
    assert server.asked[-1].startswith("DELETE")


async def test_a_command_is_never_asked_for_twice(server: Scripted) -> None:
    server.replies = {"POST": [(201, BOUND)], "DELETE": [(200, BOUND)], "GET": [None, (200, BOUND)]}
    async with server.client().claim("boxes", name="mine") as box:
        with pytest.raises(ConnectionCut):
            await box.exec("rm one")
    assert sum("/v1/exec/" in one for one in server.asked) == 1


async def test_an_evil_tar_of_a_box_makes_nothing_outside(server: Scripted, tmp_path: Path) -> None:
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as tar:
        for name in ("fine", "../evil"):
            tar.addfile(tarfile.TarInfo(name))
    server.replies = {"GET": [(200, evil.getvalue())]}
    backend = HttpBackend(local(tmp_path))
    with pytest.raises(TreeRefused):
        await trees.download_folder(backend, "/any", str(tmp_path / "a" / "here"))
    await backend.close()
    assert not (tmp_path / "a").exists()


async def test_what_comes_without_end_is_cut_off(
    server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = {"GET": [(200, b"x" * 2000)]}
    monkeypatch.setattr(trees, "FILE_BYTES_MAX", 1000)
    monkeypatch.setattr(trees, "ARCHIVE_STREAM_BYTES_MAX", 1000)
    backend = HttpBackend(local(tmp_path))
    for download in (trees.download_file, trees.download_folder):
        with pytest.raises(TreeRefused, match="more than 1000 bytes"):
            await download(backend, "/any", str(tmp_path / "here"))
    await backend.close()
    assert [one.name for one in tmp_path.iterdir()] == ["rota.sock"]
