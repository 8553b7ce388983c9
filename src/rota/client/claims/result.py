"""What a command came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.client.claims.failures import CommandFailed

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
"""Kept of each output of a command, unless it is said otherwise."""
SHOWN_CHARACTERS_MAX = 2000
"""Of the output of a failed command in its error: the end of it."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it said. What is no UTF-8 in it comes as `�` in the text."""

    exit_code: int
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    truncated: bool = False
    """It said more than is kept: what is here is the beginning."""

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    def check(self) -> Result:
        """Itself, if the exit code is 0. Raises CommandFailed."""
        if self.exit_code:
            said = (self.stderr.strip() or self.stdout.strip())[-SHOWN_CHARACTERS_MAX:]
            raise CommandFailed(self, said)
        return self


class Kept:
    """The beginning of an output."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._bytes = 0
        self.truncated = False

    def take(self, data: bytes) -> None:
        room = self._bytes_max - self._bytes
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        if data:
            self._pieces.append(data)
            self._bytes += len(data)

    def whole(self) -> bytes:
        return b"".join(self._pieces)
