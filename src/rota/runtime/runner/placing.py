"""Puts files into a home and takes them away, in a box and with no more rights than what runs there.

    python -I -S placing.py put|remove HOME < JSON

`put` reads an object of paths and contents, `remove` a list of paths. No link is ever followed: a home is its tenant's,
and what comes here are secrets. What is in a file's way goes, unless it is a folder. Why it could not be done is said
on the standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def _folder_of(home: str, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """The folder that a file is in, and its name there."""
    *folders, name = path.split("/")
    at = os.open(home, FOLDER)
    try:
        for folder in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=at)
            below = os.open(folder, FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at, name
    finally:
        os.close(at)


def put(home: str, path: str, content: str) -> None:
    with _folder_of(home, path, make=True) as (folder, name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        with open(os.open(name, FILE, 0o600, dir_fd=folder), "wb") as file:
            file.write(content.encode())


def remove(home: str, path: str) -> None:
    # Something else is there by now, or on the way there: then the file is not.
    gone = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
    with contextlib.suppress(*gone), _folder_of(home, path, make=False) as (folder, name):
        os.unlink(name, dir_fd=folder)


def main() -> int:
    _, what, home = sys.argv
    paths = json.load(sys.stdin)
    for path in paths:
        try:
            if what == "put":
                put(home, path, paths[path])
            else:
                remove(home, path)
        except OSError as error:
            print(f"{path}: {error.strerror}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
