"""Writes files into a home and removes them, inside the box, with the rights of a job.

    python -I -S job_files_program.py put|remove HOME < JSON

`put` reads an object of paths and contents, `remove` a list of paths. No link is followed: the home is the tenant's,
and the files hold secrets. `put` replaces an existing file or link, and fails where there is a folder. Errors are
printed to the standard output.
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
    """Open the folder of a file. Yields its descriptor, and the name of the file in it."""
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
    # The job may have removed the file, or put something else in its place.
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
