"""The one pipe that a job writes to: what comes goes to its log and is looked through, at once and as it comes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

READ_BYTES = 64 * 1024
DRAIN_BYTES_MAX = 1024 * 1024
"""What a pipe can hold. Whatever comes after so much is of somebody who should not be there any more."""
UID_MAX = 1 << 31


class Capture:
    """Reads as long as there is something, and never waits for an end: who writes may be anybody, anywhere.

    The box's uid owns it, so that a job can open /dev/stdout anew. A pipe that nobody else has open can be kept for the
    next job: whatever is written to it in between ends it.
    """

    def __init__(self, take: Callable[[bytes], None], uid: int | None) -> None:
        self._take = take
        self.is_empty = True
        """Nothing was there to be read when that was last tried."""
        self._loop = asyncio.get_running_loop()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        if uid is not None and 0 < uid < UID_MAX and os.geteuid() == 0:
            os.fchown(self.writing, uid, -1)
        self._loop.add_reader(self._reading, self._read)

    def started(self) -> None:
        """Whoever is to write has it by now."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def drain(self) -> None:
        """Read what is there now, and no more. For when nobody writes any longer."""
        taken = 0
        while self._reading >= 0 and taken < DRAIN_BYTES_MAX and (count := self._read()):
            taken += count

    def rest(self) -> None:
        """Keep it for the next job."""
        self._take = self._refuse

    def resume(self, take: Callable[[bytes], None]) -> bool:
        """Take up one that was kept. Returns False if something was written meanwhile, and it is closed."""
        if self._reading >= 0:
            self._read()
        if self._reading < 0:
            return False
        self._take = take
        return True

    def _refuse(self, data: bytes) -> None:
        self.close()

    def close(self) -> None:
        self.started()
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1

    def _read(self) -> int:
        try:
            data = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            self.is_empty = True
            return 0
        self.is_empty = False
        if data:
            self._take(data)
        else:
            self.close()
        return len(data)
