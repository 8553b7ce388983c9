"""Checks a storage that was made again, before a holder gets it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path

from rota.runtime.workspace.failures import MustReplace

_OPEN = stat.S_IFDIR | stat.S_IRWXU
_ODD_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
# The settings that a clone writes. Any other could name a program.
_SETTING = re.compile(
    r'\[core\]|\[remote "[^"]+"\]|\[branch "([^"\\]|\\.)+"\]|'
    r"\s*(repositoryformatversion|filemode|bare|logallrefupdates|url|fetch|remote|merge) = .*"
)
_NOT_THERE = ("hooks", "objects/info/alternates", "info/attributes", "config.worktree", "modules", "commondir")


def verify(folder: Path, names: Collection[str], *, uid: int | None = None) -> None:
    """Raise MustReplace unless a storage holds only `names`, with plain files, folders and links of one owner."""
    found = sorted(os.listdir(folder))
    if found != sorted(names):
        raise MustReplace(f"{folder} should hold {sorted(names)}, and holds {found}")
    owner = os.geteuid() if uid is None else uid
    for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            _verify_one(name, os.stat(name, dir_fd=descriptor, follow_symlinks=False), owner)
    for name in names:
        if (folder / name / ".git").exists():
            _verify_repository(folder / name / ".git")


def is_open(folder: str, names: Collection[str]) -> bool:
    """Report whether the owner of a storage can enter it and these folders in it. A holder may have changed modes."""
    try:
        found = [os.lstat(path).st_mode for path in (folder, *(f"{folder}/{name}" for name in names))]
    except OSError:
        return False
    return all(mode & _OPEN == _OPEN and stat.S_ISDIR(mode) for mode in found)


def _verify_one(name: str, status: os.stat_result, owner: int) -> None:
    mode = status.st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise MustReplace(f"{name!a} is no plain file, folder or link")
    if not stat.S_ISLNK(mode) and mode & _ODD_BITS:
        raise MustReplace(f"{name!a} has the mode {stat.filemode(mode)}")
    if stat.S_ISREG(mode) and status.st_nlink != 1:
        raise MustReplace(f"{name!a} is the same file as another one")
    if status.st_uid != owner:
        raise MustReplace(f"{name!a} belongs to {status.st_uid}")


def _verify_repository(repository: Path) -> None:
    if repository.is_symlink() or not repository.is_dir():
        raise MustReplace(f"{repository} is not a folder")
    for name in _NOT_THERE:
        if (repository / name).exists():
            raise MustReplace(f"{repository} has {name}")
    for line in (repository / "config").read_text(encoding="utf-8", errors="surrogateescape").split("\n")[:-1]:
        if not _SETTING.fullmatch(line):
            raise MustReplace(f"{repository} has the setting {line!a}")
