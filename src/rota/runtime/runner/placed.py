"""The files that a job has in the home of its box, and nobody after it.

They are put there and taken away from inside, by a small program with the rights of whatever runs there. Which ones are
there is written down on the host first, so that a runner that comes after one that was killed takes them away.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.runtime.runner import placing
from rota.runtime.runner.box import Box, BoxLost
from rota.runtime.runner.capture import Capture
from rota.runtime.runner.given import given

PLACE_SECONDS_MAX = 30.0
SAID_BYTES_MAX = 500
NOTE = "placed"
PROGRAM = str(Path(placing.__file__).absolute())


class Note(msgspec.Struct, frozen=True):
    home: str
    paths: list[str]


class NotPlaced(Exception):  # noqa: N818
    """A file cannot be put where it should be."""


class Placed:
    """Keeps its note in a folder of the host."""

    def __init__(self, folder: Path) -> None:
        self._note = folder / NOTE
        self._has_any = self._note.exists()

    async def put(self, box: Box, home: str, files: Mapping[str, str]) -> None:
        """Raises NotPlaced when the home does not allow it, and BoxLost."""
        self._write(Note(home, list(files)))
        said = await _run(box, "put", home, msgspec.json.encode(files))
        if said is not None:
            raise NotPlaced(f"cannot write the file {said}")

    async def remove(self, box: Box) -> None:
        """What is there of any job. When this has returned, nothing is. Raises BoxLost."""
        if not self._has_any:
            return
        said = None
        try:
            note = msgspec.json.decode(self._note.read_bytes(), type=Note)
            said = await _run(box, "remove", note.home, msgspec.json.encode(note.paths))
        except msgspec.MsgspecError:
            pass  # It was not written to its end, and so nothing was put anywhere.
        # A home that does not let go of a file does not do so the next time either.
        self._note.unlink()
        self._has_any = False
        if said is not None:
            raise BoxLost(f"cannot remove the file {said}")

    def _write(self, note: Note) -> None:
        new = self._note.with_name(f"{NOTE}.new")
        new.write_bytes(msgspec.json.encode(note))
        new.replace(self._note)
        self._has_any = True


async def _run(box: Box, what: str, home: str, content: bytes) -> str | None:
    """What the program says when it fails."""
    said = bytearray()
    capture = Capture(said.extend, box.uid)
    try:
        with given(content) as standard_input:
            argv = [sys.executable, "-I", "-S", PROGRAM, what, home]
            _, command = await box.run(
                argv, env={}, cwd="/", streams=(standard_input, capture.writing, capture.writing)
            )
        capture.started()
        async with asyncio.timeout(PLACE_SECONDS_MAX):
            code = await command.ended
        capture.drain()
    except TimeoutError:
        raise BoxLost(f"the files of a job cannot be handled: {what} does not end") from None
    finally:
        capture.close()
    if code == 0:
        return None
    return command.error or said[:SAID_BYTES_MAX].decode(errors="replace").strip() or f"({what} ended with {code})"
