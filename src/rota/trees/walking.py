"""Resolves a path to an open folder and a name in it, without ever leaving a root.

The kernel opens one name at a time, in an open folder, and follows no link by itself. Links are read and resolved here,
and `..` goes back to the folder before. So each step starts in a folder below the root, whatever a process exchanges
meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from types import TracebackType
from typing import NamedTuple

from rota.trees.bounds import LINKS_MAX, PATH_BYTES_MAX
from rota.trees.failing import FileFailed

PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a folder for passing through: that needs no right to read it."""
NEW_FOLDER_MODE = 0o755


class Spot(NamedTuple):
    """A name in an open folder."""

    folder: int
    name: str
    """`.` for the folder itself."""


class Walk:
    """Resolves the paths of one operation. Use it in a `with`: its end closes all folders that it opened."""

    def __init__(self, root: str, start: str = "") -> None:
        """`start`: the folder where relative paths begin; the root if it is not below the root."""
        self._root = os.path.normpath(root)
        self._start = _parts(self._beneath(start)) if start and self._is_beneath(start) else []
        self._opened = [os.open(self._root, PASS)]

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def to(self, path: str, *, follow: bool = True, make: bool = False) -> Spot:
        """Resolve a path. Its last name need not exist; with `make`, missing folders above it are made.

        With `follow` the name is no link, unless a process makes one meanwhile: open it without following links.
        """
        _check(path)
        stack = [self._opened[0]]
        absolute = path.startswith("/")
        pending = deque(_parts(self._beneath(path)) if absolute else [*self._start, *_parts(path)])
        links = 0
        while pending:
            part = pending.popleft()
            if part == "..":
                self._back(stack, path)
                continue
            if not pending and not follow:
                return Spot(stack[-1], part)
            target = _link(part, stack[-1])
            if target is None:
                if not pending:
                    return Spot(stack[-1], part)
                stack.append(self._into(part, stack[-1], make))
                continue
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, "too many links")
            if target.startswith("/"):
                if not self._is_beneath(target):
                    raise self._leaves(path)
                stack = stack[:1]
                target = self._beneath(target)
            pending.extendleft(reversed(_parts(target)))
        return Spot(stack[-1], ".")

    def _into(self, name: str, folder: int, make: bool) -> int:
        try:
            found = os.open(name, PASS, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, NEW_FOLDER_MODE, dir_fd=folder)
            found = os.open(name, PASS, dir_fd=folder)
        self._opened.append(found)
        return found

    def _back(self, stack: list[int], path: str) -> None:
        if len(stack) > 1:
            stack.pop()
        elif self._root != "/":
            raise self._leaves(path)

    def _is_beneath(self, path: str) -> bool:
        return self._root == "/" or path == self._root or path.startswith(f"{self._root}/")

    def _beneath(self, path: str) -> str:
        """Return an absolute path relative to the root. The path may or may not begin with the root itself."""
        return path[len(self._root) :] if self._root != "/" and self._is_beneath(path) else path

    def _leaves(self, path: str) -> FileFailed:
        return FileFailed("BadPath", f"{path}: it leads out of the folder of the instance")


def _check(path: str) -> None:
    if not path:
        raise FileFailed("BadPath", "a path has at least one character")
    if "\0" in path:
        raise FileFailed("BadPath", "a path has no zero byte")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise FileFailed("BadPath", f"a path has at most {PATH_BYTES_MAX} bytes")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link(name: str, folder: int) -> str | None:
    """Return the target of a link; None: it is no link, or does not exist."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise
