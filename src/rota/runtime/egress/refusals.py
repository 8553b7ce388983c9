"""The refusals of proxies, read from the files that they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from rota.runtime.interface import Refusal, Subject

BYTES_MAX = 64 * 1024
PENDING_MAX = 16
"""The most refusals of one instance that wait for a call of `taken`."""


class Refusals(msgspec.Struct, frozen=True):
    """The last refusals, and how many there were in all."""

    total: int = 0
    last: tuple[Refusal, ...] = ()


_decoder = msgspec.json.Decoder(Refusals)


def refusals(path: Path) -> Refusals:
    """Read the file of a proxy. Returns no refusals if the file is missing or is just being written."""
    try:
        with open(path, "rb") as file:
            return _decoder.decode(file.read(BYTES_MAX))
    except (OSError, msgspec.MsgspecError):
        return Refusals()


class RefusalWatch:
    """Watches the refusals of instances: `look` reads their files."""

    def __init__(self, files: Callable[[Subject], list[Path]]) -> None:
        """`files` returns the files of an instance."""
        self._files = files
        self._last_read: dict[Subject, dict[Path, Refusals]] = {}
        self._new: dict[Subject, dict[tuple[str, int, str], Refusal]] = {}

    def add(self, subject: Subject) -> None:
        self._last_read.setdefault(subject, {})

    def forget(self, subject: Subject) -> None:
        self._last_read.pop(subject, None)
        self._new.pop(subject, None)

    def taken(self, subject: Subject) -> list[Refusal]:
        """Return the refusals since the last call, at most PENDING_MAX."""
        return list(self._new.pop(subject, {}).values())

    def look(self) -> list[Subject]:
        """Read all files. Return the instances with new refusals. May be called in a thread."""
        changed = []
        for subject in list(self._last_read):
            before = self._last_read.get(subject, {})
            now = {path: refusals(path) for path in self._files(subject)}
            found: list[Refusal] = []
            for path, one in now.items():
                # A file that is just being written reads as empty, and that of a new sandbox counts from zero.
                known = before.get(path, Refusals()) if one.total >= before.get(path, one).total else Refusals()
                counts = {(each.host, each.port, each.why): each.count for each in known.last}
                found += [each for each in one.last if counts.get((each.host, each.port, each.why)) != each.count]
            if subject in self._last_read:
                self._last_read[subject] = now
            if found:
                pending = self._new.setdefault(subject, {})
                pending.update({(each.host, each.port, each.why): each for each in found})
                for key in list(pending)[:-PENDING_MAX]:
                    del pending[key]
                changed.append(subject)
        return changed
