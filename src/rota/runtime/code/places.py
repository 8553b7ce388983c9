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
"""The paths in a box."""
COMING = ".coming-"
UNUSED_SECONDS_MIN = 300.0
"""An unused folder is kept so long after it was made or asked for: an object that uses it may be about to come."""
ABANDONED_SECONDS = 3600.0
"""A folder that was begun so long ago is not being filled any more."""
REMOVE_SECONDS_MAX = 60.0
"""The most that a removal takes; the next collection continues it."""
FOLDER_MODE = 0o755
NAME = re.compile(r"[0-9a-f]{64}")
UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,127}")


def cached(home: Path, kind: str, name: str) -> Path:
    """Return the path of a folder by its name, a hash. Raises ValueError for another name."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of code or packages: it has 64 hexadecimal digits")
    return home / "functions" / kind / name


def packages_log(home: Path, name: str) -> Path:
    """Return the path of the log of the installation of packages."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of packages: it has 64 hexadecimal digits")
    return home / "functions" / LOGS / PACKAGES / f"{name}.log"


def load_log(home: Path, uid: str) -> Path:
    """Return the path of the log of a failed load, of the newest version of the function with this uid."""
    if not UID.fullmatch(uid):
        raise ValueError(f"{uid!r} is no uid")
    return home / "functions" / LOGS / LOADS / f"{uid}.log"


def is_there(folder: Path) -> bool:
    """Report whether a folder is there. If so, it is kept for UNUSED_SECONDS_MIN, though nothing uses it yet."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def begun(folder: Path) -> Path:
    """Make a folder to fill, beside the given path. The caller gives it to `finished`, and removes what is left."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = folder.with_name(f"{COMING}{folder.name}-{os.urandom(4).hex()}")
    new.mkdir(mode=FOLDER_MODE)
    return new


def finished(new: Path, folder: Path) -> None:
    """Give a filled folder its name. If another one has the name by now, that one stays."""
    with contextlib.suppress(OSError):
        new.rename(folder)


@contextlib.contextmanager
def coming(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill. It gets the given path when the block ends without an error."""
    new = begun(folder)
    try:
        yield new
        finished(new, folder)
    finally:
        remove(new, seconds_max=REMOVE_SECONDS_MAX)


def collect(home: Path, kind: str, used: Collection[str]) -> list[str]:
    """Remove folders that are not used and not new. Return their names."""
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
    """Remove logs that are not used and not new. `used`: names of packages, or uids of functions."""
    top = home / "functions" / LOGS / kind
    for file in sorted(top.iterdir()) if top.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if file.stem not in used and time.time() - file.stat().st_mtime > UNUSED_SECONDS_MIN:
                file.unlink()
