"""Makes the tree and the home of a workspace in an emptied storage."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.api.pool import WorkspaceFile, WorkspaceSpec
from rota.runtime.sandbox.identity import own
from rota.runtime.workspace.clone import clone
from rota.runtime.workspace.discard import discard
from rota.runtime.workspace.failures import WorkspaceError
from rota.runtime.workspace.mirror import Mirror, Source
from rota.runtime.workspace.verify import verify

TREE, HOME = "repo", "home"
SETUP_OUTPUT_CHARACTERS_MAX = 2000
FILE_MODE, FOLDER_MODE = 0o644, 0o755


class Finished(NamedTuple):
    """The exit code of a set-up command, and the end of its output."""

    code: int
    output: str = ""


class Prepared(NamedTuple):
    """The record of a prepared tree: its commit, and its branch if it is on one."""

    commit: str
    branch: str | None
    digest: str
    known: float = 0.0
    """When the ref was last known to point to the commit, in seconds since 1970."""


RunSetup = Callable[[Sequence[str], Path], Awaitable[Finished]]


async def prepare(
    mirror: Mirror,
    spec: WorkspaceSpec | None,
    folder: Path,
    run_setup: RunSetup,
    *,
    source: Source | None = None,
    home_files: Sequence[WorkspaceFile] = (),
    uid: int | None = None,
    record: Path | None = None,
) -> Prepared:
    """Empty the storage `folder` and make the tree in it. Without a spec the tree is empty.

    source      the repository, with the scope and Secret to read it with; None: without credentials
    home_files  the files of the home
    uid         the owner of all files; None: that of this process
    record      a file outside the storage that `prepared` reads; written when everything else is done

    `run_setup` gets the command and the tree's path on the host, and runs it where the worker will run.
    """
    assert record is None or not record.is_relative_to(folder)
    await asyncio.to_thread(_empty, mirror, folder, record)
    tree = folder / TREE
    commit, branch, known = "", None, 0.0
    if spec is None:
        tree.mkdir(mode=0o755)
    else:
        source = source if source is not None else Source(spec.repo)
        known = mirror.refreshed(source)
        is_used = time.time() - known < mirror.limits.stale_seconds
        resolved = await mirror.resolve(source, spec.ref)
        if not is_used:
            known = mirror.refreshed(source)
        await clone(mirror, mirror.place(source), spec, resolved, tree)
        commit, branch = resolved.commit, resolved.branch
    await asyncio.to_thread(_finish, spec.files if spec is not None else (), home_files, folder, uid)
    if spec is not None and spec.setup:
        done = await run_setup(spec.setup, tree)
        if done.code != 0:
            said = done.output[-SETUP_OUTPUT_CHARACTERS_MAX:].strip()
            raise WorkspaceError("SetupFailed", f"the set-up command ended with {done.code}: {said}")
    made = Prepared(commit, branch, digest(spec, home_files), known)
    if record is not None:
        await asyncio.to_thread(_write_record, record, made)
    return made


def prepared(record: Path, spec: WorkspaceSpec | None, home_files: Sequence[WorkspaceFile] = ()) -> Prepared | None:
    """Return the record of a tree that was made completely and from exactly this specification, else None."""
    try:
        made = Prepared(**json.loads(record.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return made if made.digest == digest(spec, home_files) else None


def digest(spec: WorkspaceSpec | None, home_files: Sequence[WorkspaceFile] = ()) -> str:
    whole = spec if not home_files else [spec, home_files]
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()


def _empty(mirror: Mirror, folder: Path, record: Path | None) -> None:
    if record is not None:
        record.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    discard(folder, seconds_max=mirror.limits.discard_seconds_max)


def _finish(
    tree_files: Sequence[WorkspaceFile], home_files: Sequence[WorkspaceFile], folder: Path, uid: int | None
) -> None:
    _write_files(folder / TREE, tree_files)
    (folder / HOME).mkdir(mode=0o755)
    _write_files(folder / HOME, home_files)
    if uid is not None:
        own(folder, uid)
    verify(folder, (TREE, HOME), uid=uid)


def _write_record(record: Path, made: Prepared) -> None:
    new = record.with_name(record.name + ".new")
    with open(new, "w", encoding="utf-8") as file:
        json.dump(made._asdict(), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, record)


def _write_files(tree: Path, files: Sequence[WorkspaceFile]) -> None:
    """Write files into a tree. Existing files and links are replaced; a link instead of a folder is an error."""
    for file in files:
        *folders, name = _parts(file.path)
        folder = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for each in folders:
                folder = _into(folder, each)
            _write_file(folder, name, file)
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
    """Open a folder, made if it is missing, and close its parent."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, FOLDER_MODE, dir_fd=folder)
    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    os.close(folder)
    return below


def _write_file(folder: int, name: str, file: WorkspaceFile) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as opened:
        opened.write(file.content.encode())
        os.fchmod(opened.fileno(), int(file.mode, 8) if file.mode is not None else FILE_MODE)
