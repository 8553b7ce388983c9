"""Finds the process of a running instance, and makes commands that run beside it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.runtime import sandbox
from rota.runtime.composing import PATH
from rota.runtime.interface import NotRunning, Run, Subject
from rota.runtime.keeper.kernel import is_alive
from rota.runtime.places import Entry, Launch, Places
from rota.runtime.runner.box import BoxNote, read_note


def process_of(id_: str) -> tuple[int, int]:
    """Parse PID@START_TIME."""
    pid, _, began = id_.partition("@")
    return int(pid), int(began)


class Starting(NotRunning):
    """The instance was started, and cannot be entered yet."""


class JoinTarget(NamedTuple):
    """The process that commands join, and the environment that it was started with."""

    pid: int
    env: Mapping[str, str]


def find(places: Places, subject: Subject, run: Run, entry: Entry) -> JoinTarget:
    """Return the process of a run, or of the box of its runner. Raises Starting.

    The environment is the one that Rota composed for it. The environment in /proc differs while the process starts, and
    a process can overwrite it later.
    """
    try:
        box = read_note(places.box(subject))
    except FileNotFoundError:
        box = BoxNote(run.id, entry.env)
    pid, began = process_of(box.process) if box is not None else (0, 0)
    if box is None or not is_alive(pid, began):
        raise Starting(f"{subject.name} is just being started")
    return JoinTarget(pid, box.env)


def inside(found: JoinTarget, entry: Entry, argv: Sequence[str], env: Mapping[str, str]) -> Launch:
    """Return the command that runs `argv` beside a process, with its environment and `env`. Raises Starting."""
    if entry.way == "sandbox":
        if sandbox.main_process(found.pid) is None:
            raise Starting("the sandbox is just being started")
        whole = {**sandbox.unpacked(found.env), **env}
        made = sandbox.enter(found.pid, argv, env=whole, cwd=entry.cwd, uid=entry.uid, home=entry.home)
        return Launch(made.argv, made.env)
    whole = {**found.env, **env}
    program = shutil.which(argv[0], path=whole.get("PATH", PATH))
    # A missing program is reported as a shell does: by a message and exit code 127.
    words = [program, *argv[1:]] if program else ["/bin/sh", "-c", 'echo "$0: not found" >&2; exit 127', argv[0]]
    return Launch(words, whole, entry.cwd)


def own_streams(streams: Iterable[int], uid: int | None) -> None:
    """Give the streams to a uid: only the owner of a pipe or terminal can open it again as /dev/stdout."""
    if uid is None:
        return
    for stream in streams:
        if stat.S_ISFIFO(os.fstat(stream).st_mode) or os.isatty(stream):
            os.fchown(stream, uid, -1)
