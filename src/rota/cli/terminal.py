"""Read and write the terminal, or pipes, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator

STDIN, STDOUT, STDERR = 0, 1, 2
PIECE_BYTES = 32 * 1024
ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Pass every key on as it is. The terminal is restored in any case."""
    before = termios.tcgetattr(STDIN)
    try:
        # Keys that were typed before belong to the other side, too.
        tty.setraw(STDIN, termios.TCSANOW)
        yield
    finally:
        # TCSADRAIN would wait for output that may never be read.
        termios.tcsetattr(STDIN, termios.TCSANOW, before)


@contextlib.contextmanager
def ends_in_good_order() -> Iterator[list[int]]:
    """Let signals that would end the process cancel the current task instead. Yields the signals received so far."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came: list[int] = []

    def end(number: int) -> None:
        came.append(number)
        task.cancel()

    for number in ENDING:
        loop.add_signal_handler(number, end, number)
    try:
        yield came
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def on_resize(on_size: Callable[[os.terminal_size], None]) -> Iterator[None]:
    """Call `on_size` with every new size of the window."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: on_size(size()))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def size() -> os.terminal_size:
    try:
        return os.get_terminal_size(STDOUT)
    except OSError:
        return os.terminal_size((0, 0))


async def read() -> bytes:
    """Read from standard input; empty at its end."""
    # It stays blocking, because the mode would change for the shell, too.
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(STDIN, wake)
    except PermissionError:
        pass  # A file never blocks.
    else:
        try:
            await ready
        finally:
            loop.remove_reader(STDIN)
    try:
        return os.read(STDIN, PIECE_BYTES)
    except OSError:
        return b""  # The terminal is gone.


class Writer:
    """Writes in a thread, so that a blocked pipe or terminal does not stop the heartbeat of the connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writes: queue.SimpleQueue[tuple[int, bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        # A daemon, because it may block for ever.
        threading.Thread(target=self._run, daemon=True, name="output").start()

    async def write(self, descriptor: int, data: bytes) -> None:
        """Return when all of it is written. Raises OSError."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._writes.put((descriptor, data, done))
        await done

    def _run(self) -> None:
        while True:
            descriptor, data, done = self._writes.get()
            failure: OSError | None = None
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                self._loop.call_soon_threadsafe(_finish, done, failure)


def _finish(done: asyncio.Future[None], failure: OSError | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
