"""`rota cp`."""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import stat
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import typer

from rota.cli.command import command
from rota.cli.gateway import backend_of, in_good_order
from rota.cli.output import Part, print_line, printable
from rota.cli.session import CommandError, Session, bad_usage
from rota.cli.status_line import StatusLine
from rota.client import Client
from rota.client.claims import TreeRefused, trees
from rota.registry import ApiError
from rota.trees.archive import Skipped
from rota.trees.bounds import MODE_MASK
from rota.trees.failing import FileFailed
from rota.trees.packing import measure
from rota.trees.walking import Spot

UNIT = 1024 * 1024
REMOTE = re.compile(r"(?:([a-z0-9][-a-z0-9]{0,62})/)?([a-z0-9][-a-z0-9.]{0,252}):(.*)", re.DOTALL)
Status = dict[str, Any]


class Remote(NamedTuple):
    """A path in an instance."""

    namespace: str
    """Empty for the session's namespace."""
    instance: str
    path: str


class Progress:
    """The progress of a copy. It is shown on a terminal only."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = 0
        self.whole = 0
        self.skipped: list[Skipped] = []

    def count(self, size: int) -> None:
        self.done += size

    def __call__(self) -> Sequence[Part]:
        whole = f" of {self.whole / UNIT:.1f}" if self.whole else ""
        return [(f"{self.name}: {self.done / UNIT:.1f}{whole} MiB", "")]


@command
async def cp(
    session: Session,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file or a folder, here or as [NAMESPACE/]INSTANCE:PATH.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The target, here or in an instance; in an existing folder the source keeps its name.",
        ),
    ],
    container: Annotated[
        str, typer.Option("--container", "-c", metavar="NAME", help="Choose a container; without it, the first.")
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
            except (FileFailed, TreeRefused) as error:
                raise CommandError(str(error)) from None
            return 0

        code = await in_good_order(copy)
    for name, leads_to in progress.skipped:
        print_line(f"left out, for it leads out of the folder: {printable(f'{name} -> {leads_to}')}", stream=sys.stderr)
    return code


def _sides(source: str, target: str) -> tuple[str, Remote]:
    """Return the local path and the remote one. Raises CommandError unless there is one of each."""
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
    """The files of one instance, as a server serves them."""

    def __init__(self, client: Client, there: Remote, container: str) -> None:
        self.backend = backend_of(client)
        self._base = f"/v1/instances/{there.namespace or client.namespace}/{there.instance}"
        self._container = container
        self.path = there.path

    def url(self, what: str, path: str, **more: str) -> str:
        asked = {"path": path, **({"container": self._container} if self._container else {}), **more}
        return f"{self._base}/{what}?{urlencode(asked, quote_via=quote, errors='surrogateescape')}"

    async def stat(self, path: str) -> Status | None:
        """Return the status of a file or folder, or None if it does not exist."""
        try:
            answer = await self.backend.raw("GET", self.url("files", path, stat="true"))
        except ApiError as error:
            if error.code == 404 and (error.details or {}).get("kind") == "files":
                return None
            raise
        return msgspec.json.decode(answer.body, type=Status)


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
        await _up_file(place, here, path, status, progress)


def _local(here: str) -> tuple[os.stat_result, str]:
    """Return the status of a local path, and its name."""
    return os.stat(here), os.path.basename(os.path.abspath(here))


async def _up_file(place: _Place, here: str, path: str, status: os.stat_result, progress: Progress) -> None:
    progress.whole = status.st_size
    url = place.url("files", path, mode=f"{status.st_mode & MODE_MASK:03o}")
    await trees.upload_file(place.backend, url, here, progress.count)


async def _up_folder(place: _Place, here: str, path: str, progress: Progress) -> None:
    top = os.open(here, trees.FOLDER)
    try:
        _, progress.whole = await asyncio.to_thread(measure, Spot(top, "."))
    finally:
        os.close(top)
    progress.skipped = await trees.upload_folder(place.backend, place.url("archive", path), here, progress.count)


# From an instance.


async def _down(place: _Place, here: str, progress: Progress) -> None:
    found = await place.stat(place.path)
    if found is None:
        raise CommandError(f"{place.path}: no such file or directory")
    target = _target(here, posixpath.basename(posixpath.normpath(place.path)))
    if found["type"] == "directory":
        url = place.url("archive", place.path)
        progress.skipped = await trees.download_folder(place.backend, url, target, progress.count)
    else:
        progress.whole = found["size"]
        await trees.download_file(place.backend, place.url("files", place.path), target, progress.count)


def _target(here: str, base: str) -> str:
    """Return the local target. In an existing folder it keeps its name."""
    return os.path.join(here, base) if os.path.isdir(here) and base not in ("", ".", "..") else here
