"""The paths of code, packages and their logs in a home, and the making and removal of these folders."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from rota.runtime.workspace.discard import remove

CODE, PACKAGES = "code", "packages"
LOGS, LOADS = "logs", "loads"
INSIDE = {CODE: "/rota/code", PACKAGES: "/rota/packages"}
"""The paths of these folders in a box."""
COMING = ".coming-"
UNUSED_SECONDS_MIN = 300.0
"""Seconds that an unused folder stays after it was made or asked for. The object that uses it may be written later."""
ABANDONED_SECONDS = 3600.0
"""The age at which an unfinished folder is removed: whoever filled it has ended."""
REMOVE_SECONDS_MAX = 60.0
"""The most seconds that one removal takes. The next collection continues it."""
FOLDER_MODE = 0o755
NAME = re.compile(r"[0-9a-f]{64}")
UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,127}")


def cached(home: Path, kind: str, name: str) -> Path:
    """Return the path of a folder by its name, a hash. Raises ValueError for a name that is no hash."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of code or packages: it has 64 hexadecimal digits")
    return home / "functions" / kind / name


def packages_log(home: Path, name: str) -> Path:
    """Return the path of the log of the installation of packages."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of packages: it has 64 hexadecimal digits")
    return home / "functions" / LOGS / PACKAGES / f"{name}.log"


def load_log(home: Path, uid: str) -> Path:
    """Return the path of the log of a failed load: of the newest version of the function with this uid."""
    if not UID.fullmatch(uid):
        raise ValueError(f"{uid!r} is no uid")
    return home / "functions" / LOGS / LOADS / f"{uid}.log"


def is_there(folder: Path) -> bool:
    """Report whether a folder is there, and keep it for UNUSED_SECONDS_MIN from now, even if no object uses it."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def begin_folder(folder: Path) -> Path:
    """Make an empty folder beside the given path. The caller fills it, passes it to `finish_folder`, or removes it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = folder.with_name(f"{COMING}{folder.name}-{os.urandom(4).hex()}")
    new.mkdir(mode=FOLDER_MODE)
    return new


def finish_folder(new: Path, folder: Path) -> None:
    """Rename a filled folder to its final path. If another one has that path already, the other one stays."""
    with contextlib.suppress(OSError):
        new.rename(folder)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill. It is renamed to the given path when the block ends without an error."""
    new = begin_folder(folder)
    try:
        yield new
        finish_folder(new, folder)
    finally:
        remove(new, seconds_max=REMOVE_SECONDS_MAX)


def collect(home: Path, kind: str, used: Collection[str]) -> list[str]:
    """Remove unused folders that are older than UNUSED_SECONDS_MIN. Return their names."""
    top = home / "functions" / kind
    gone = []
    for folder in sorted(top.iterdir()) if top.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            kept_seconds = ABANDONED_SECONDS if folder.name.startswith(COMING) else UNUSED_SECONDS_MIN
            is_over = folder.name not in used and time.time() - folder.stat().st_mtime > kept_seconds
            if is_over and remove(folder, seconds_max=REMOVE_SECONDS_MAX):
                gone.append(folder.name)
    return gone


def collect_logs(home: Path, kind: str, used: Collection[str]) -> None:
    """Remove unused logs that are older than UNUSED_SECONDS_MIN. `used`: names of packages, or uids of functions."""
    top = home / "functions" / LOGS / kind
    for file in sorted(top.iterdir()) if top.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if file.stem not in used and time.time() - file.stat().st_mtime > UNUSED_SECONDS_MIN:
                file.unlink()
