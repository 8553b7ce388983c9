"""Names that would lead somewhere else, and every place of an object where somebody could write one."""

from __future__ import annotations

import copy
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]
Step = str | int


def names(victim: Path) -> list[str]:
    """Return hostile names. Those that lead somewhere lead to the victim."""
    return [
        "../" * 12 + str(victim).lstrip("/"),
        str(victim),
        "q/../../../../../victim",
        "..",
        ".",
        "",
        "a\0b",
        "two\nlines",
        "--bind=/",
        "-rf",
        "n" * 300,
        "n" * 100_000,
        "\N{LATIN SMALL LETTER E WITH ACUTE}t\N{FULLWIDTH SOLIDUS}..\N{FULLWIDTH SOLIDUS}",
        "\N{RIGHT-TO-LEFT OVERRIDE}cod.exe",
        "~root",
        "$(touch victim)",
        "link",
        "a:b,ro",
    ]


class Place(NamedTuple):
    """A string of an object: the steps that lead to it, and whether it is the key of a map."""

    steps: tuple[Step, ...]
    is_key: bool = False

    def __str__(self) -> str:
        return ".".join(map(str, self.steps)) + ("{}" if self.is_key else "")

    @property
    def pattern(self) -> str:
        """The place without which of several elements it is in."""
        return ".".join("*" if isinstance(step, int) else step for step in self.steps) + ("{}" if self.is_key else "")


def places(value: Any, steps: tuple[Step, ...] = ()) -> Iterator[Place]:
    """Find every string of an object, and every key of what is a map of strings."""
    if isinstance(value, str):
        yield Place(steps)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from places(each, (*steps, i))
    elif isinstance(value, dict):
        for key, each in value.items():
            if steps and steps[-1] in MAPS:
                yield Place((*steps, key), is_key=True)
            yield from places(each, (*steps, key))


MAPS = ("labels", "annotations", "data", "binaryData", "stringData", "images", "headers", "map", "restartedAt")
"""Fields whose keys somebody chooses."""


def changed(obj: Object, place: Place, name: str) -> Object:
    made = copy.deepcopy(obj)
    at: Any = made
    for step in place.steps[:-1]:
        at = at[step]
    last = place.steps[-1]
    if place.is_key:
        at[name] = at.pop(last)
    else:
        at[last] = name
    return made


def seen(top: Path, but: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder, but one that is not looked into: what it is, whose, and what it holds."""
    found: dict[str, tuple[Any, ...]] = {}
    for at, folders, files in os.walk(top):
        folders[:] = [name for name in folders if Path(at, name) != but]
        for path in (Path(at), *(Path(at, name) for name in (*files, *folders))):
            if path == top:
                found["."] = tuple(sorted(os.listdir(top)))
                continue
            info = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
            found[str(path.relative_to(top))] = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, content)
    return found
