"""Getting to where an instance runs: which process that is, and what runs a further command there."""

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
    """A process, and when it began, from the form in which both are written down."""
    pid, _, began = id_.partition("@")
    return int(pid), int(began)


class Starting(NotRunning):
    """It is about to run."""


class Found(NamedTuple):
    """The process that commands join, and the environment that it was started with."""

    pid: int
    env: Mapping[str, str]


def find(places: Places, subject: Subject, run: Run, entry: Entry) -> Found:
    """What was started, or the box that a runner has. Raises Starting.

    The environment is the one that was composed for it. A process that is still being set up has another one, and one
    that runs can write to its own.
    """
    try:
        box = read_note(places.box(subject))
    except FileNotFoundError:
        box = BoxNote(run.id, entry.env)
    pid, began = process_of(box.process) if box is not None else (0, 0)
    if box is None or not is_alive(pid, began):
        raise Starting(f"what {subject.name} runs commands in is just being started")
    return Found(pid, box.env)


def inside(found: Found, entry: Entry, argv: Sequence[str], env: Mapping[str, str]) -> Launch:
    """The command that runs `argv` where a process runs, with its environment and more. Raises Starting."""
    if entry.way == "sandbox":
        if sandbox.main_process(found.pid) is None:
            raise Starting("the sandbox is just being started")
        whole = {**sandbox.unpacked(found.env), **env}
        made = sandbox.enter(found.pid, argv, env=whole, cwd=entry.cwd, uid=entry.uid, home=entry.home)
        return Launch(made.argv, made.env)
    whole = {**found.env, **env}
    program = shutil.which(argv[0], path=whole.get("PATH", PATH))
    # What is not there is left for the shell's own words: the command ends with 127.
    words = [program, *argv[1:]] if program else ["/bin/sh", "-c", 'echo "$0: not found" >&2; exit 127', argv[0]]
    return Launch(words, whole, entry.cwd)


def own_streams(streams: Iterable[int], uid: int | None) -> None:
    """Let a command open its streams anew, as /dev/stdout, which only their owner may."""
    if uid is None:
        return
    for stream in streams:
        if stat.S_ISFIFO(os.fstat(stream).st_mode) or os.isatty(stream):
            os.fchown(stream, uid, -1)
