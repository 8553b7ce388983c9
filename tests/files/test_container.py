"""Files of containers: by the tools that the image has, with the same meaning."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import tarfile
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rota.runtime.container import Engine
from rota.runtime.files.model import Bytes, Files, Listing, Opened
from rota.runtime.files.program import files_of
from rota.runtime.interface import Order, Subject
from rota.runtime.local import LocalRuntime
from rota.trees.bounds import ENTRIES_MAX
from rota.trees.failing import FileFailed
from tests.files.conftest import pieces
from tests.files.test_escape import EVIL, archive, member
from tests.runtime_container.conftest import engine, podman  # noqa: F401 - the same engine
from tests.until import until_so

APPLETS = (
    "cat chmod find head ln ls mkdir mkfifo mv rm rmdir seq sh sleep stat tail tar touch wc xargs".split()  # noqa: SIM905
)
SECONDS_MAX = 60.0


def make_image(engine: Engine, applets: Sequence[str]) -> str:  # noqa: F811
    busybox = shutil.which("busybox")
    assert busybox is not None
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(os.path.realpath(busybox), "bin/busybox")
        for applet in applets:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        folder = tarfile.TarInfo("work")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o777
        tar.addfile(folder)
    name = f"localhost/rota-test-{uuid.uuid4().hex}"
    podman(engine, "import", "--quiet", "--change=WORKDIR /work", "-", name, content=content.getvalue())
    return name


class Running:
    """A container, and its files."""

    def __init__(self, runtime: LocalRuntime, subject: Subject) -> None:
        self.runtime, self.subject = runtime, subject

    @property
    def files(self) -> Files:
        return files_of(self.runtime, self.subject, "main")

    async def shell(self, script: str) -> str:
        reading, writing = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        running = await self.runtime.exec(
            self.subject, "main", ["sh", "-c", script], env={}, streams=(null, writing, writing), tty=False
        )
        os.close(writing)
        os.close(null)
        with open(reading) as file:
            said = await asyncio.to_thread(file.read)
        assert await running.wait() == 0, said
        return said


async def started(home: Path, image: str) -> AsyncIterator[Running]:
    subject = Subject("default", "web-0", uuid.uuid4().hex)
    async with LocalRuntime(home) as runtime:
        order = Order(subject, "main", 1, ("sleep", "100000"), {}, runtime="container", image=image)
        try:
            await runtime.start(order)
            running = Running(runtime, subject)

            async def refusal() -> str:
                try:
                    await running.files.stat("/")
                except FileFailed as error:
                    return error.reason
                return ""

            await until_so(refusal, lambda reason: reason in ("", "ToolMissing"), "its files", seconds=SECONDS_MAX)
            yield running
        finally:
            await runtime.stop(subject, 0)
            await runtime.shutdown()


@pytest.fixture
async def running(engine: Engine, tmp_path: Path) -> AsyncIterator[Running]:  # noqa: F811
    image = await asyncio.to_thread(make_image, engine, APPLETS)
    try:
        async for one in started(tmp_path / "home", image):
            yield one
    finally:
        await asyncio.to_thread(podman, engine, "rmi", "--force", image)


async def content(found: Opened | Listing | Bytes) -> bytes:
    bytes_ = found.bytes if isinstance(found, Opened) else found
    assert isinstance(bytes_, Bytes)
    return b"".join([piece async for piece in bytes_])


async def reason(doing: object) -> str:
    with pytest.raises(FileFailed) as caught:
        await doing  # type: ignore[misc]
    return caught.value.reason


async def test_files_of_a_container_are_written_read_listed_and_removed(running: Running) -> None:
    files, large = running.files, os.urandom(3_000_000)
    entry = await files.write("made/below/file", pieces(large[:1_000_000], large[1_000_000:]), 0o750)
    assert (entry.type, entry.size, entry.mode) == ("file", len(large), 0o750)
    assert await content(await files.read("/work/made/below/file")) == large
    assert await content(await files.read("made/below/file", 10, 20)) == large[10:30]
    await files.write("made/new\nline", pieces(), 0o644)
    await running.shell("ln -s nowhere made/link")
    listing = await files.read("made")
    assert isinstance(listing, Listing)
    assert [(one.name, one.type) for one in listing.entries] == [
        ("below", "directory"),
        ("link", "link"),
        ("new\nline", "file"),
    ]
    assert await reason(files.remove("made")) == "NotEmpty"
    await files.remove("made", recursive=True)
    assert await reason(files.stat("made")) == "NotFound"


async def test_what_is_wrong_with_a_path_is_told_as_everywhere(running: Running) -> None:
    files = running.files
    await running.shell("mkdir -p folder; mkfifo pipe; touch plain; seq 1 10100 | (cd folder; xargs touch)")
    assert await reason(files.read("none")) == "NotFound"
    assert await reason(files.read("pipe")) == "NotAFile"
    assert await reason(files.list("plain")) == "NotADirectory"
    assert await reason(files.write("folder", pieces(b"x"), 0o644)) == "IsADirectory"
    assert await reason(files.write("plain/below", pieces(b"x"), 0o644)) == "Failed"
    assert await reason(files.stat("a\0b")) == "BadPath"
    assert await reason(files.pack("none")) == "NotFound"
    listing = await files.list("folder")
    assert len(listing.entries) == ENTRIES_MAX and listing.truncated


async def test_a_tree_of_a_container_goes_out_and_in_again(running: Running) -> None:
    files = running.files
    await running.shell("mkdir -p tree/a; echo one > tree/a/one; ln -s a/one tree/link")
    packed = await content(await files.pack("tree"))
    assert (await files.unpack("copy/of", pieces(packed[:700], packed[700:]))).members == 4
    assert await running.shell("cat copy/of/link") == "one\n"


async def test_a_tar_with_a_member_that_leaves_does_not_reach_the_tool(running: Running) -> None:
    for members in EVIL.values():
        assert await reason(running.files.unpack("into", pieces(archive(*members)))) == "BadArchive"
    assert await running.shell("find / '(' -path /proc -o -path /sys ')' -prune -o -name 'rota-evil*' -print") == ""


async def test_who_cancels_leaves_neither_half_a_file_nor_a_process(running: Running) -> None:
    waiting = asyncio.Event()

    async def endless(*first: bytes) -> AsyncIterator[bytes]:
        for piece in first:
            yield piece
        waiting.set()
        await asyncio.Event().wait()

    await running.shell("mkdir cut; echo before > cut/file")
    half = archive(member("big"), content=b"x" * 500_000)[:300_000]
    for doing in (
        running.files.write("cut/file", endless(b"x" * 100_000), 0o644),
        running.files.unpack("cut", endless(half)),
    ):
        waiting.clear()
        task = asyncio.ensure_future(doing)
        await waiting.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await running.shell("cat cut/file; ls -A cut") == "before\nfile\n"
    running_now = await running.shell("cat /proc/[0-9]*/comm")
    assert "tar" not in running_now.split() and running_now.split().count("cat") == 1


async def test_an_image_without_a_shell_is_told(engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    image = await asyncio.to_thread(make_image, engine, ["sleep"])
    try:
        async for running in started(tmp_path / "home", image):
            assert await reason(running.files.pack("/work")) == "ToolMissing"
            assert await reason(running.files.write("/work/file", pieces(b"x"), 0o644)) == "ToolMissing"
    finally:
        await asyncio.to_thread(podman, engine, "rmi", "--force", image)
