"""Finds a job's outputs and result in its output.

A line `::rota output NAME=VALUE` sets an output, a line `::rota result TEXT` the result; the last one counts. The lines
stay in the log. A value that exceeds a bound is left out, with a note in the outcome. Coding agents report their result
as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rota.runtime.runner import events
from rota.runtime.runner.jobs import (
    MESSAGE_BYTES_MAX,
    OUTPUT_BYTES_MAX,
    OUTPUTS_MAX,
    RESULT_BYTES_MAX,
    Parse,
    shortened,
)
from rota.runtime.runner.lines import Lines

MARK = b"::rota "
OBJECT = b"{"
PLAIN_LINE_BYTES_MAX = RESULT_BYTES_MAX + 1024
OBJECT_LINE_BYTES_MAX = 2 * 1024 * 1024
"""The longest line of JSON that is read. It holds an agent's result and the fields around it."""
LINES_SHOWN = 10
TAIL_BYTES = 4 * 1024
NOTES_MAX = 8
_name = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
# Colours and cursor movements, titles of windows, other controls.
_controls = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Findings:
    """Reads the output of one job: call `feed` with each piece, and then `close`."""

    def __init__(self, parse: Parse) -> None:
        self._parse: Parse = parse
        is_plain = parse == "plain"
        words = (MARK,) if is_plain else (MARK, OBJECT)
        self._lines = Lines(words, PLAIN_LINE_BYTES_MAX if is_plain else OBJECT_LINE_BYTES_MAX)
        self._tail = b""
        self.outputs: dict[str, str] = {}
        self.result = ""
        self.usage: dict[str, float] = {}
        self.error = ""
        """The error that a coding agent reported."""
        self.has_failed = False
        """True if a coding agent reported a failure: then the job has failed, whatever its exit code is."""
        self.notes: list[str] = []
        """Notes for people on outputs that were left out."""

    def feed(self, data: bytes) -> None:
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        self._parse_lines(self._lines.feed(data))

    def close(self) -> None:
        self._parse_lines(self._lines.close())

    def last_lines(self) -> str:
        """Return the last lines of the output for people, without control sequences and empty lines."""
        text = _controls.sub("", self._tail.decode(errors="replace").replace("\r", "\n"))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        kept = "\n".join(lines[-LINES_SHOWN:])
        return kept.encode()[-MESSAGE_BYTES_MAX:].decode(errors="ignore")

    def _parse_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.startswith(MARK):
                self._mark(line.decode(errors="replace").rstrip("\r"))
            elif (event := events.read(self._parse, line)) is not None:
                if event.result is not None:
                    self._set_result(event.result)
                if event.fails or event.error is None:
                    self.has_failed = event.fails
                self.error = shortened(event.error or "", MESSAGE_BYTES_MAX)
                self.usage.update(event.usage)

    def _mark(self, line: str) -> None:
        what, _, rest = line.removeprefix(MARK.decode()).partition(" ")
        if what == "result":
            self._set_result(rest)
        elif what == "output":
            self._set_output(*rest.partition("=")[::2])
        else:
            self._note(f"::rota {shortened(what, 32)}: there are output and result")

    def _set_output(self, name: str, value: str) -> None:
        if _name.fullmatch(name) is None:
            self._note(f"output {shortened(name, 64)!r} was left out: not a name")
        elif len(value.encode()) > OUTPUT_BYTES_MAX:
            self._note(f"output {name} was left out: it has more than {OUTPUT_BYTES_MAX} bytes")
        elif name not in self.outputs and len(self.outputs) >= OUTPUTS_MAX:
            self._note(f"output {name} was left out: there are {OUTPUTS_MAX} already")
        else:
            self.outputs[name] = value

    def _set_result(self, text: str) -> None:
        self.result = shortened(text, RESULT_BYTES_MAX)
        if len(self.result) < len(text):
            self._note(f"the result was cut: it has more than {RESULT_BYTES_MAX} bytes")

    def _note(self, text: str) -> None:
        if len(self.notes) < NOTES_MAX and text not in self.notes:
            self.notes.append(text)
