"""`rota cp`."""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import typer

from rota.cli.command import command
from rota.cli.gateway import backend_of, in_good_order
from rota.cli.output import Part, line, printable
from rota.cli.session import CommandError, Session, bad_usage
from rota.cli.status_line import StatusLine
from rota.client import Client
from rota.client.connection import header
from rota.client.uploading import upload
from rota.links import stays_inside
from rota.registry import ApiError
from rota.runtime.files.archive import Archive
from rota.runtime.files.bounds import FILE_BYTES_MAX, MODE_MASK, PIECE_BYTES
from rota.runtime.files.failing import FileFailed
from rota.runtime.files.packing import Found, measure, pack
from rota.runtime.files.pipes import Pipe
from rota.runtime.files.replacing import Replacing
from rota.runtime.files.unpacking import Unpacking
from rota.runtime.files.walking import Spot

UNIT = 1024 * 1024
REMOTE = re.compile(r"(?:([a-z0-9][-a-z0-9]{0,62})/)?([a-z0-9][-a-z0-9.]{0,252}):(.*)", re.DOTALL)
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
Status = dict[str, Any]


class Remote(NamedTuple):
    """A place in an instance."""

    namespace: str
    """Empty: the session's."""
    instance: str
    path: str


class Progress:
    """How far it is; shown on a terminal only."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = 0
        self.whole = 0
        self.skipped: list[str] = []

    def __call__(self) -> Sequence[Part]:
        whole = f" of {self.whole / UNIT:.1f}" if self.whole else ""
        return [(f"{self.name}: {self.done / UNIT:.1f}{whole} MiB", "")]


@command
async def cp(
    session: Session,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file or a folder, here or as [NAMESPACE/]INSTANCE:PATH.")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where to; in an existing folder it keeps its name.")],
    container: Annotated[
        str, typer.Option("--container", "-c", metavar="NAME", help="Which container; without it, the first.")
    ] = "",
) -> int:
    """Copy files and folders to an instance, or from it. A file is replaced whole, or not at all."""
    here, there = _sides(source, target)
    async with session.client() as client:
        place = _Place(client, there, container)
        progress = Progress(posixpath.basename(source.rstrip("/")) or source)

        async def copy() -> int:
            try:
                async with StatusLine(progress):
                    await (_up if source == here else _down)(place, here, progress)
            except FileFailed as error:
                raise CommandError(error.message) from None
            return 0

        code = await in_good_order(copy)
    for name in progress.skipped:
        line(f"left out, for it leads out of the folder: {printable(name)}", stream=sys.stderr)
    return code


def _sides(source: str, target: str) -> tuple[str, Remote]:
    """What is here, and what is in an instance."""
    from_, to = _remote(source), _remote(target)
    if (from_ is None) == (to is None):
        raise bad_usage("one side is in an instance, and is written INSTANCE:PATH; a local name with a colon, ./NAME")
    there = from_ or to
    assert there is not None
    if not there.path:
        raise bad_usage(f"say where in {there.instance}: {there.instance}:PATH")
    here = target if from_ else source
    if not here:
        raise bad_usage("say which local file; . is this folder")
    return here, there


def _remote(text: str) -> Remote | None:
    found = REMOTE.fullmatch(text)
    return Remote(found[1] or "", found[2], found[3]) if found else None


class _Place:
    """What is asked of the server."""

    def __init__(self, client: Client, there: Remote, container: str) -> None:
        self._backend = backend_of(client)
        self._base = f"/v1/instances/{there.namespace or client.namespace}/{there.instance}"
        self._container = container
        self.path = there.path

    def url(self, what: str, path: str, **more: str) -> str:
        asked = {"path": path, **({"container": self._container} if self._container else {}), **more}
        return f"{self._base}/{what}?{urlencode(asked, quote_via=quote, errors='surrogateescape')}"

    async def stat(self, path: str) -> Status | None:
        """What is there; None: nothing is."""
        try:
            answer = await self._backend.raw("GET", self.url("files", path, stat="true"))
        except ApiError as error:
            if error.code == 404 and (error.details or {}).get("kind") == "files":
                return None
            raise
        return msgspec.json.decode(answer.body, type=Status)

    async def put(self, url: str, body: AsyncIterator[bytes], type_: str) -> None:
        await upload(self._backend.target, url, body, {"Content-Type": type_})

    def get(self, url: str) -> Any:
        return self._backend.stream("GET", url)


# To an instance.


async def _up(place: _Place, here: str, progress: Progress) -> None:
    status, base = _local(here)
    found = await place.stat(place.path)
    into = found is not None and found["type"] == "directory"
    path = posixpath.join(place.path, base) if into or place.path.endswith("/") else place.path
    if stat.S_ISDIR(status.st_mode):
        if found is not None and not into:
            raise CommandError(f"{place.path} is a file, and {here} is a folder")
        await _up_folder(place, here, path, progress)
    else:
        await _up_file(place, here, path, progress)


def _local(here: str) -> tuple[os.stat_result, str]:
    """A file or folder here, and the name that it has."""
    return os.stat(here), os.path.basename(os.path.abspath(here))


async def _up_file(place: _Place, here: str, path: str, progress: Progress) -> None:
    descriptor = os.open(here, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CommandError(f"{here} is neither a file nor a folder")
        if status.st_size > FILE_BYTES_MAX:
            raise CommandError(f"{here} has {status.st_size} bytes; at most {FILE_BYTES_MAX} are copied")
        progress.whole = status.st_size

        async def pieces() -> AsyncIterator[bytes]:
            while piece := os.read(descriptor, PIECE_BYTES):
                progress.done += len(piece)
                yield piece

        mode = f"{status.st_mode & MODE_MASK:03o}"
        await place.put(place.url("files", path, mode=mode), pieces(), "application/octet-stream")
    finally:
        os.close(descriptor)


async def _up_folder(place: _Place, here: str, path: str, progress: Progress) -> None:
    top = os.open(here, FOLDER)
    try:
        _, progress.whole = await asyncio.to_thread(measure, Spot(top, "."))
        reading, writing = os.pipe()
        packed = Pipe(reading)

        def keep(found: Found) -> bool:
            if found.target and not stays_inside(found.name, found.target):
                progress.skipped.append(f"{found.name} -> {found.target}")
                return False
            return True

        def write() -> None:
            with open(writing, "wb", buffering=0) as output:
                pack(Spot(top, "."), _All(output.fileno()), keep)

        packing = asyncio.ensure_future(asyncio.to_thread(write))

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await packed.read():
                progress.done += len(piece)
                yield piece
            # An end that came too early must not look like one.
            await packing

        try:
            await place.put(place.url("archive", path), pieces(), "application/x-tar")
        finally:
            packed.close()  # The other end then stops, too.
            await asyncio.gather(packing, return_exceptions=True)
    finally:
        os.close(top)


class _All:
    """Writes everything, to a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return len(data)


# From an instance.


async def _down(place: _Place, here: str, progress: Progress) -> None:
    found = await place.stat(place.path)
    if found is None:
        raise CommandError(f"{place.path}: no such file or directory")
    target = _target(here, posixpath.basename(posixpath.normpath(place.path)))
    if found["type"] == "directory":
        await _down_folder(place, target, progress)
    else:
        await _down_file(place, target, progress)


def _target(here: str, base: str) -> str:
    """In a folder that is there, under the same name."""
    return os.path.join(here, base) if os.path.isdir(here) and base not in ("", ".", "..") else here


async def _down_file(place: _Place, target: str, progress: Progress) -> None:
    folder = os.open(os.path.dirname(target) or ".", FOLDER)
    try:
        async with place.get(place.url("files", place.path)) as stream:
            progress.whole = int(header(stream.headers, "rota-length") or 0)
            mode = int(header(stream.headers, "rota-mode") or "644", 8)
            file = Replacing(folder, os.path.basename(target))
            try:
                async for piece in stream:
                    progress.done += len(piece)
                    file.write(piece)
                file.commit(mode)
            finally:
                file.drop()
    finally:
        os.close(folder)


async def _down_folder(place: _Place, target: str, progress: Progress) -> None:
    async with place.get(place.url("archive", place.path)) as stream:
        os.makedirs(target, exist_ok=True)
        folder = os.open(target, FOLDER)
        try:
            unpacking, archive = Unpacking(folder), Archive(skips_leaving_links=True)
            try:
                async for piece in stream:
                    progress.done += len(piece)
                    for event in archive.feed(piece):
                        unpacking.take(event)
                archive.end()
                unpacking.finish()
            finally:
                unpacking.drop()
                progress.skipped += [f"{one.name} -> {one.target}" for one in unpacking.skipped]
        finally:
            os.close(folder)
