"""Making a workspace, and making it anew."""

from __future__ import annotations

import asyncio
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
from rota.runtime.workspace import files
from rota.runtime.workspace.clone import clone
from rota.runtime.workspace.discard import discard
from rota.runtime.workspace.failures import WorkspaceError
from rota.runtime.workspace.mirror import Mirror, Source
from rota.runtime.workspace.verify import verify

TREE, HOME = "repo", "home"
SETUP_OUTPUT_CHARACTERS_MAX = 2000


class Finished(NamedTuple):
    """How a set-up command ended, and the end of what it said."""

    code: int
    output: str = ""


class Prepared(NamedTuple):
    """What a worker has: the commit, and the branch if it is on one."""

    commit: str
    branch: str | None
    digest: str
    known: float = 0.0
    """When the ref was last known to stand for the commit, in seconds since 1970."""


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
    """Makes the tree in the storage `folder`, from nothing: what is there goes first. Without a spec it is empty.

    source      the repository with the scope and Secret to read it with; without, as anybody
    home_files  what the home holds
    uid         whose it will be; without, that of this process
    record      a file outside the storage that says what was made, once all of it is there; `prepared` reads it

    `run_setup` is given the command and the tree's place on the host, and runs it where the worker will run.
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
    """What was made, if it was made completely and from this very specification."""
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
    files.write(folder / TREE, tree_files)
    (folder / HOME).mkdir(mode=0o755)
    files.write(folder / HOME, home_files)
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
