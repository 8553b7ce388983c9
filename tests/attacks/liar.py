"""A runtime in whose instances every command says the same, whatever it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from threading import Thread

from rota.runtime.interface import Execution, Reach, Subject


class Liar:
    """Says something, once or without an end, until nobody hears it any more."""

    def __init__(self, said: bytes, *, is_endless: bool = False) -> None:
        self._said = said
        self._is_endless = is_endless

    def reach(self, subject: Subject, container: str) -> Reach:
        return Reach("")

    async def exec(
        self,
        subject: Subject,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        tty: bool,
    ) -> Execution:
        output = os.dup(streams[1])
        saying = Thread(target=self._say, args=(output,))
        saying.start()
        return _Saying(saying)

    def _say(self, output: int) -> None:
        try:
            while True:
                rest = memoryview(self._said)
                while rest:
                    rest = rest[os.write(output, rest) :]
                if not self._is_endless:
                    return
        except BrokenPipeError:
            pass
        finally:
            os.close(output)


class _Saying:
    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    async def wait(self) -> int:
        while self._thread.is_alive():
            await asyncio.sleep(0.01)
        return 0

    async def signal(self, number: int) -> None:
        """It ends when nobody hears it."""
