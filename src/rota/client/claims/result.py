"""The result of a command."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.client.claims.failures import CommandFailed

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of each output that are kept by default."""
SHOWN_CHARACTERS_MAX = 2000
"""Characters of a failed command's output in its error, from the end."""


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code and the output of a command. Bytes that are not UTF-8 become `�` in the text."""

    exit_code: int
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    truncated: bool = False
    """True if there was more output than is kept. The beginning is kept."""

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    def check(self) -> Result:
        """Return the result itself if the exit code is 0. Raises CommandFailed."""
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
