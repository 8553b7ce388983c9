"""What the proxy of a sandbox has refused, as it wrote it down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from rota.runtime.interface import Refusal, Subject

BYTES_MAX = 64 * 1024
PENDING_MAX = 16
"""Refusals of one instance that nobody has asked for yet."""


class Refusals(msgspec.Struct, frozen=True):
    """The last refusals, and how many there were in all."""

    total: int = 0
    last: tuple[Refusal, ...] = ()


_decoder = msgspec.json.Decoder(Refusals)


def refusals(path: Path) -> Refusals:
    """Read what a proxy has written down."""
    try:
        with open(path, "rb") as file:
            return _decoder.decode(file.read(BYTES_MAX))
    except (OSError, msgspec.MsgspecError):
        return Refusals()


class Watched:
    """What the proxies of instances refuse, looked at from time to time."""

    def __init__(self, files: Callable[[Subject], list[Path]]) -> None:
        """`files`: those of an instance."""
        self._files = files
        self._seen: dict[Subject, dict[Path, Refusals]] = {}
        self._new: dict[Subject, dict[tuple[str, int, str], Refusal]] = {}

    def add(self, subject: Subject) -> None:
        self._seen.setdefault(subject, {})

    def forget(self, subject: Subject) -> None:
        self._seen.pop(subject, None)
        self._new.pop(subject, None)

    def taken(self, subject: Subject) -> list[Refusal]:
        """What was refused since this was last asked: the last of it."""
        return list(self._new.pop(subject, {}).values())

    def look(self) -> list[Subject]:
        """Read everything; return the instances of which something is new. May be called in a thread."""
        changed = []
        for subject in list(self._seen):
            before = self._seen.get(subject, {})
            now = {path: refusals(path) for path in self._files(subject)}
            found: list[Refusal] = []
            for path, one in now.items():
                # A file that is being written says nothing, and one of a sandbox that was made anew begins anew.
                known = before.get(path, Refusals()) if one.total >= before.get(path, one).total else Refusals()
                counts = {(each.host, each.port, each.why): each.count for each in known.last}
                found += [each for each in one.last if counts.get((each.host, each.port, each.why)) != each.count]
            if subject in self._seen:
                self._seen[subject] = now
            if found:
                pending = self._new.setdefault(subject, {})
                pending.update({(each.host, each.port, each.why): each for each in found})
                for key in list(pending)[:-PENDING_MAX]:
                    del pending[key]
                changed.append(subject)
        return changed
