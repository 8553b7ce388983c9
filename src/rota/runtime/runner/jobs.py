"""Jobs, which the server assigns to a runner, and their outcomes."""

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
"""The most bytes of all files of a job together."""
JOB_BYTES_MAX = 6 * 1024 * 1024
"""The most bytes of a job's arguments, environment and input together. An agent accepts messages of up to 8 MiB."""


class Job(Struct, frozen=True, rename="camel"):
    """One attempt of a task. It holds secrets, and must never be shown or written to disk."""

    id: str
    """The id of the assignment. It names this attempt and no other."""
    kind: Literal["command", "python"]
    """For python, `argv` is module:callable and its arguments. An argument that is no JSON is passed as text."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Variables that are added to the environment of the box."""
    cwd: str
    """A path below the worker's folder in the box."""
    stdin: str = ""
    files: Mapping[str, str] = {}
    """Files below the home of the box that exist for this job alone."""
    parse: Parse = "plain"
    """The format in which its program reports a result."""
    timeout_seconds: float | None = None
    log: str = ""
    """The path of the log on the host; empty for none."""
    commit: str = ""
    """The commit of the tree that the job runs on, set by the runner. Empty without a repository."""
    note: str = ""
    """A note for people on the tree, for the log and the outcome. Set by the runner."""


class Outcome(Struct, frozen=True, rename="camel"):
    """The end of a job."""

    id: str
    reason: Reason
    started: float
    ended: float
    exit_code: int | None = None
    """The exit code as a shell reports it: 128 plus the number of the signal that ended the job. None: unknown."""
    message: str = ""
    """Why the job did not succeed, for people, with its last lines of output."""
    outputs: Mapping[str, str] = {}
    result: str = ""
    usage: Mapping[str, float] = {}
    commit: str = ""
    """The commit of the tree that the job ran on; empty without a repository."""
    note: str = ""
    """A note for people on that tree."""


TEXT_BYTES_MAX = 64 * 1024
"""The most bytes of each text in an outcome. A runner observes narrower bounds."""
AHEAD_SECONDS_MAX = 86400.0
"""The most seconds by which the clock of a runner's host may be ahead."""
EXIT_CODE_MAX = 1 << 16
UNSOUND = "its runner reported its end with values that no runner reports"


def storable(outcome: Outcome, now: float) -> Outcome:
    """Make an outcome safe to store: impossible times become now, and an outcome beyond a bound becomes a failure.

    Runners observe these bounds; a process that has stolen a runner's token may not.
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
    """Cut a text to so many bytes, between characters."""
    content = text.encode(errors="replace")
    return text if len(content) <= bytes_max else content[:bytes_max].decode(errors="ignore")


def refusal(job: Job) -> str:
    """Return why a job's fields make it impossible to run, or an empty string if they do not."""
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
