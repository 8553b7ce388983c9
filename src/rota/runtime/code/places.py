"""Where folders of code and of packages are: on the host by their name, in a box always in the same place."""

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
"""Where a box sees them."""
COMING = ".coming-"
UNUSED_SECONDS_MIN = 300.0
"""What nothing uses is kept for so long after it was made or asked for: what will may be on its way."""
ABANDONED_SECONDS = 3600.0
"""What was begun longer ago than this is not being filled any more."""
REMOVE_SECONDS_MAX = 60.0
"""What takes longer to remove goes on being removed when it is collected the next time."""
FOLDER_MODE = 0o755
NAME = re.compile(r"[0-9a-f]{64}")
UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,127}")


def cached(home: Path, kind: str, name: str) -> Path:
    """The folder of this name, if it is there. Only what is a hash is a name."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of code or packages: it has 64 hexadecimal digits")
    return home / "functions" / kind / name


def packages_log(home: Path, name: str) -> Path:
    """What pip wrote when it installed the packages of this name, or tried to."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of packages: it has 64 hexadecimal digits")
    return home / "functions" / LOGS / PACKAGES / f"{name}.log"


def load_log(home: Path, uid: str) -> Path:
    """What was written when the newest version of the function of this uid could not be loaded."""
    if not UID.fullmatch(uid):
        raise ValueError(f"{uid!r} is no uid")
    return home / "functions" / LOGS / LOADS / f"{uid}.log"


def is_there(folder: Path) -> bool:
    """Whether it is there; if so it stays for a while, though nothing may use it yet."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def begun(folder: Path) -> Path:
    """Make a folder to fill in place of another. Whoever does removes what is left of it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = folder.with_name(f"{COMING}{folder.name}-{os.urandom(4).hex()}")
    new.mkdir(mode=FOLDER_MODE)
    return new


def finished(new: Path, folder: Path) -> None:
    """Give a folder that is filled its name; if another one has it by then, that is as good."""
    with contextlib.suppress(OSError):
        new.rename(folder)


@contextlib.contextmanager
def coming(folder: Path) -> Iterator[Path]:
    """A folder to fill, which has the name when that is done."""
    new = begun(folder)
    try:
        yield new
        finished(new, folder)
    finally:
        remove(new, seconds_max=REMOVE_SECONDS_MAX)


def collect(home: Path, kind: str, used: Collection[str]) -> list[str]:
    """Remove what is not used and not new. Returns the names of what is gone."""
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
    """Remove the logs of what is not used and not new: of packages by their names, of functions by their uids."""
    top = home / "functions" / LOGS / kind
    for file in sorted(top.iterdir()) if top.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if file.stem not in used and time.time() - file.stat().st_mtime > UNUSED_SECONDS_MIN:
                file.unlink()
