"""Getting to where an instance runs: which process that is, and what runs a further command there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rota.runtime import sandbox
from rota.runtime.composing import PATH
from rota.runtime.interface import NotRunning, Run, Subject
from rota.runtime.keeper.kernel import is_alive
from rota.runtime.places import Entry, Launch, Places


def process_of(id_: str) -> tuple[int, int]:
    """A process, and when it began, from the form in which both are written down."""
    pid, _, began = id_.partition("@")
    return int(pid), int(began)


class Starting(NotRunning):
    """It is about to run."""


def main_of(places: Places, subject: Subject, run: Run) -> int:
    """The process that commands join: what was started, or the box that a runner has."""
    try:
        written = places.box(subject).read_text()
    except FileNotFoundError:
        written = run.id
    pid, began = process_of(written) if written else (0, 0)
    if not is_alive(pid, began):
        raise Starting(f"what {subject.name} runs commands in is just being started")
    return pid


def inside(pid: int, entry: Entry, argv: Sequence[str], env: Mapping[str, str]) -> Launch:
    """The command that runs `argv` where a process runs, with its environment and more."""
    if entry.way == "sandbox":
        main = sandbox.main_process(pid)
        if main is None:
            raise Starting("the sandbox is just being started")
        whole = {**_environment(main), **env}
        made = sandbox.enter(pid, argv, env=whole, cwd=entry.cwd, uid=entry.uid, home=entry.home)
        return Launch(made.argv, made.env)
    whole = {**_environment(pid), **env}
    program = shutil.which(argv[0], path=whole.get("PATH", PATH))
    # What is not there is left for the shell's own words: the command ends with 127.
    found = [program, *argv[1:]] if program else ["/bin/sh", "-c", 'echo "$0: not found" >&2; exit 127', argv[0]]
    return Launch(found, whole, entry.cwd)


def own_streams(streams: Iterable[int], uid: int | None) -> None:
    """Let a command open its streams anew, as /dev/stdout, which only their owner may."""
    if uid is None:
        return
    for stream in streams:
        if stat.S_ISFIFO(os.fstat(stream).st_mode) or os.isatty(stream):
            os.fchown(stream, uid, -1)


def _environment(pid: int) -> dict[str, str]:
    """What a process was started with."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape")
    except OSError:
        return {}
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)
