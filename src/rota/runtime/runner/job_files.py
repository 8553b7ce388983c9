"""The files that a job has in the home of its box. They are removed before the next job.

A small program inside the box writes and removes them, with the rights of the job. Their paths are noted on the host
first, so that a runner can remove the files that a killed runner left.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.runtime.runner import job_files_program
from rota.runtime.runner.box import Box, BoxLost
from rota.runtime.runner.standard_streams import Capture, input_file

PLACE_SECONDS_MAX = 30.0
SAID_BYTES_MAX = 500
NOTE = "placed"
PROGRAM = str(Path(job_files_program.__file__).absolute())


class PlacedFiles(msgspec.Struct, frozen=True):
    """The note of the files that a home may hold."""

    home: str
    paths: list[str]


class FileNotPlaced(Exception):  # noqa: N818
    """A file of a job cannot be written."""


class JobFiles:
    """Writes and removes the files of jobs. Its note is in a folder of the host."""

    def __init__(self, folder: Path) -> None:
        self._note = folder / NOTE
        self._has_any = self._note.exists()

    async def put(self, box: Box, home: str, files: Mapping[str, str]) -> None:
        """Write files below the home. Raises FileNotPlaced for one that cannot be written, and BoxLost."""
        self._write(PlacedFiles(home, list(files)))
        said = await _run(box, "put", home, msgspec.json.encode(files))
        if said is not None:
            raise FileNotPlaced(f"cannot write the file {said}")

    async def remove(self, box: Box) -> None:
        """Remove the files of all jobs. Raises BoxLost if one cannot be removed."""
        if not self._has_any:
            return
        said = None
        try:
            note = msgspec.json.decode(self._note.read_bytes(), type=PlacedFiles)
            said = await _run(box, "remove", note.home, msgspec.json.encode(note.paths))
        except msgspec.MsgspecError:
            pass  # The note was not written to its end, so no file was written after it.
        # The box is replaced if a file cannot be removed: another try would fail as well.
        self._note.unlink()
        self._has_any = False
        if said is not None:
            raise BoxLost(f"cannot remove the file {said}")

    def _write(self, note: PlacedFiles) -> None:
        new = self._note.with_name(f"{NOTE}.new")
        new.write_bytes(msgspec.json.encode(note))
        new.replace(self._note)
        self._has_any = True


async def _run(box: Box, what: str, home: str, content: bytes) -> str | None:
    """Run the program. Return its message if it fails."""
    said = bytearray()
    capture = Capture(said.extend, box.uid)
    try:
        with input_file(content) as standard_input:
            argv = [sys.executable, "-I", "-S", PROGRAM, what, home]
            _, command = await box.run(
                argv, env={}, cwd="/", streams=(standard_input, capture.writing, capture.writing)
            )
        capture.started()
        async with asyncio.timeout(PLACE_SECONDS_MAX):
            code = await command.ended
        capture.drain()
    except TimeoutError:
        raise BoxLost(f"the files of a job: {what} took longer than {PLACE_SECONDS_MAX:.0f} s") from None
    finally:
        capture.close()
    if code == 0:
        return None
    return command.error or said[:SAID_BYTES_MAX].decode(errors="replace").strip() or f"({what} ended with {code})"
