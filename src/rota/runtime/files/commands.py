"""A command inside an instance, driven through pipes. It is ended when its caller leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from rota.client.pipes import Pipe
from rota.runtime.interface import Execution, HasFiles, Subject
from rota.runtime.keeper.client import KeeperError
from rota.trees.bounds import ANSWER_BYTES_MAX
from rota.trees.failing import FileFailed

SILENCE_SECONDS_MAX = 60.0
"""The longest time for which a command may neither read nor write. Then it hangs, or the instance has stopped it."""
ERROR_BYTES_MAX = 4096
END_SECONDS_MAX = 2.0
"""Seconds that a command gets to clean up when its client is gone. Then it is killed."""
KILL_SECONDS_MAX = 10.0


class InstanceCommand:
    """A command that runs within an `async with` block, and has ended when the block is left."""

    def __init__(self, runtime: HasFiles, subject: Subject, container: str, argv: Sequence[str]) -> None:
        self._runtime = runtime
        self._at = (subject, container)
        self._argv = argv
        self._rest = b""
        self._said = bytearray()

    async def __aenter__(self) -> InstanceCommand:
        (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = os.pipe(), os.pipe(), os.pipe()
        self._input, self._output, self._errors = Pipe(ours_in), Pipe(ours_out), Pipe(ours_err)
        theirs = (theirs_in, theirs_out, theirs_err)
        try:
            self._execution = await self._start(theirs)
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._running = asyncio.ensure_future(self._execution.wait())
        self._listening = asyncio.ensure_future(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shielded: the caller may be cancelled once more.
        await asyncio.shield(asyncio.ensure_future(self._end()))

    async def _start(self, streams: tuple[int, int, int]) -> Execution:
        subject, container = self._at
        # Shielded: the descriptors must stay open until the keeper has its own copies.
        starting = asyncio.ensure_future(
            self._runtime.exec(subject, container, self._argv, env={}, streams=streams, tty=False)
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await _kill(await asyncio.wait_for(starting, KILL_SECONDS_MAX))
            raise

    async def _end(self) -> None:
        """End the command: close its pipes, wait for END_SECONDS_MAX, then kill it."""
        self._input.close()
        self._output.close()
        try:
            if not self._running.done():
                await asyncio.wait((self._running,), timeout=END_SECONDS_MAX)
            if not self._running.done():
                await _kill(self._execution)
                await asyncio.wait((self._running,), timeout=KILL_SECONDS_MAX)
        finally:
            for task in (self._running, self._listening):
                task.cancel()
            await asyncio.gather(self._running, self._listening, return_exceptions=True)
            self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._input, self._output, self._errors):
            pipe.close()

    # Reading and writing.

    async def read_line(self) -> bytes:
        """Return the next line of the command's output. The last line may lack a newline."""
        held, piece = bytearray(), self._rest or await self._next()
        self._rest = b""
        while piece:
            line, newline, rest = piece.partition(b"\n")
            held += line
            if len(held) > ANSWER_BYTES_MAX:
                raise FileFailed("Failed", "the instance answers with more than any folder has")
            if newline:
                self._rest = rest
                break
            piece = await self._next()
        return bytes(held)

    async def piece(self) -> bytes:
        """Return the next bytes of the command's output, or none at its end."""
        if self._rest:
            piece, self._rest = self._rest, b""
            return piece
        return await self._next()

    async def _next(self) -> bytes:
        async with _patience():
            return await self._output.read()

    async def write(self, data: bytes) -> None:
        """Write to the command's input. Raises BrokenPipeError when the command has closed its input."""
        async with _patience():
            await self._input.write(data)

    def close_input(self) -> None:
        self._input.close()

    async def code(self) -> int:
        """Wait for the command's end, and return its exit code."""
        async with _patience():
            return await asyncio.shield(self._running)

    async def complaint(self) -> str:
        """Return the beginning of the command's standard error. Call it when the command has ended."""
        await asyncio.wait((self._listening,), timeout=END_SECONDS_MAX)
        return self._said.decode(errors="replace").strip()

    async def _listen(self) -> None:
        while piece := await self._errors.read():
            self._said += piece[: ERROR_BYTES_MAX - len(self._said)]


async def _kill(execution: Execution) -> None:
    with contextlib.suppress(KeeperError, OSError, TimeoutError):
        await asyncio.wait_for(execution.signal(signal.SIGKILL), KILL_SECONDS_MAX)


@contextlib.asynccontextmanager
async def _patience() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(SILENCE_SECONDS_MAX):
            yield
    except TimeoutError:
        raise FileFailed(
            "Failed", f"the instance has done nothing for {SILENCE_SECONDS_MAX:g} s; it may hang"
        ) from None
