"""Writing the files of a workspace into its tree, and never anywhere else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rota.api.pool import WorkspaceFile
from rota.runtime.workspace.failures import WorkspaceError

FILE_MODE, FOLDER_MODE = 0o644, 0o755


def write(tree: Path, files: Sequence[WorkspaceFile]) -> None:
    """What a repository has at such a place is replaced, a link too; a link on the way there is an error."""
    for file in files:
        *folders, name = _parts(file.path)
        folder = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for each in folders:
                folder = _into(folder, each)
            _put(folder, name, file)
        except OSError as error:
            why = error.strerror
            raise WorkspaceError("InvalidWorkspace", f"file {file.path!r} cannot be written: {why}") from error
        finally:
            os.close(folder)


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" or "\0" in part for part in parts):
        raise WorkspaceError("InvalidWorkspace", f"file {path!r} must be inside the tree, and outside of .git")
    return parts


def _into(folder: int, name: str) -> int:
    """The folder below, made if need be; the one above is closed."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, FOLDER_MODE, dir_fd=folder)
    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    os.close(folder)
    return below


def _put(folder: int, name: str, file: WorkspaceFile) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as opened:
        opened.write(file.content.encode())
        os.fchmod(opened.fileno(), int(file.mode, 8) if file.mode is not None else FILE_MODE)
