"""What a runner is given to run, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Reason = Literal["Succeeded", "Failed", "Timeout", "Cancelled", "WorkerLost"]
Parse = Literal["plain", "claude-code", "codex"]

OUTPUTS_MAX = 64
OUTPUT_BYTES_MAX = 4 * 1024
RESULT_BYTES_MAX = 64 * 1024
MESSAGE_BYTES_MAX = 2 * 1024
FILES_MAX = 64
FILES_BYTES_MAX = 1024 * 1024
"""Of all files of a job together."""
JOB_BYTES_MAX = 6 * 1024 * 1024
"""Of the arguments, the environment and the input of a job together. A box takes messages of 8 MiB."""


class Job(Struct, frozen=True, rename="camel"):
    """One attempt to run something. It holds secrets, and is shown to nobody."""

    id: str
    """The assignment's: it names this attempt, and is never used again."""
    kind: Literal["command", "python"]
    """python: the first of `argv` is module:callable, the rest are its arguments: JSON where they are, else text."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """On top of the box's own."""
    cwd: str
    """Below the worker's folder, wherever the box sees that."""
    stdin: str = ""
    files: Mapping[str, str] = {}
    """Files below the home of the box that are there for this job alone."""
    parse: Parse = "plain"
    """How what it says is understood."""
    timeout_seconds: float | None = None
    log: str = ""
    """A file of the host; empty: none."""
    commit: str = ""
    """The commit of its tree; filled in by the runner. Empty: it has none."""
    note: str = ""
    """What people should know of the tree, in its log and in the outcome; filled in by the runner."""


class Outcome(Struct, frozen=True, rename="camel"):
    """What became of a job."""

    id: str
    reason: Reason
    started: float
    ended: float
    exit_code: int | None = None
    """As a shell has it: 128 and the number of the signal, where one ended it."""
    message: str = ""
    """For people: why it did not succeed, with its last lines."""
    outputs: Mapping[str, str] = {}
    result: str = ""
    usage: Mapping[str, float] = {}
    commit: str = ""
    """The commit of the tree that it had; empty: none."""
    note: str = ""
    """What people should know of that tree."""


TEXT_BYTES_MAX = 64 * 1024
"""Bound of a text, and of a number of values, in an outcome where no closer one is set."""
AHEAD_SECONDS_MAX = 86400.0
"""Seconds that the clock of a runner's host may be ahead."""
EXIT_CODE_MAX = 1 << 16
UNSOUND = "its runner reported its end with values that no runner reports"


def sound(outcome: Outcome, now: float) -> Outcome:
    """Return an outcome that can be stored: one with impossible times has ended now, one with too much has failed.

    A runner keeps to these bounds. Who speaks in its place may not.
    """
    is_timed = 0 <= outcome.started <= outcome.ended <= now + AHEAD_SECONDS_MAX
    if not is_timed:
        outcome = replace(outcome, started=now, ended=now)
    texts = (outcome.message, outcome.result, outcome.commit, outcome.note)
    is_bounded = (
        all(len(text) <= TEXT_BYTES_MAX for text in texts)
        and _is_bounded(outcome.outputs, outcome.outputs.values())
        and _is_bounded(outcome.usage, ())
        and abs(outcome.exit_code or 0) <= EXIT_CODE_MAX
    )
    return outcome if is_bounded else Outcome(outcome.id, "Failed", outcome.started, outcome.ended, message=UNSOUND)


def _is_bounded(names: Mapping[str, object], values: Iterable[str]) -> bool:
    return len(names) <= OUTPUTS_MAX and all(len(text) <= TEXT_BYTES_MAX for text in (*names, *values))


def shortened(text: str, bytes_max: int) -> str:
    """The beginning of a text, in whole characters."""
    content = text.encode(errors="replace")
    return text if len(content) <= bytes_max else content[:bytes_max].decode(errors="ignore")


def refusal(job: Job) -> str:
    """Why a job cannot be run, as far as that can be seen from it; empty: it can."""
    if not job.argv or not job.argv[0]:
        return "there is nothing to run: argv is empty"
    if job.kind == "python" and not all(job.argv[0].partition(":")[::2]):
        return f"{shortened(job.argv[0], 100)!r} is not module:callable"
    texts = (*job.argv, *job.env, *job.env.values(), job.stdin)
    if sum(map(len, texts)) > JOB_BYTES_MAX // 4 and sum(len(text.encode()) for text in texts) > JOB_BYTES_MAX:
        return f"arguments, environment and input have more than {JOB_BYTES_MAX} bytes"
    if len(job.files) > FILES_MAX or sum(len(content.encode()) for content in job.files.values()) > FILES_BYTES_MAX:
        return f"the files are more than {FILES_MAX}, or have more than {FILES_BYTES_MAX} bytes"
    for path in job.files:
        parts = path.split("/")
        if "\0" in path or any(part in ("", ".", "..") for part in parts):
            return f"file {path!r}: must be a path below the home, without '.' and '..'"
    return ""
