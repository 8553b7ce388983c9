"""The messages between a runner and its gateway.

A frame of the stream is a JSON list of messages; each is an object with a `type`. Both ends collect what they send in
one iteration of their event loop into one frame. Messages keep their order, within a frame and across frames.

What the server knows, and when:

- **A new stream** begins with a `Report`, an `Ended` for each outcome that is not acknowledged, and one `Jobs`. A job
  that is in none of them was never begun by this runner, or its outcome was acknowledged.
- **`Assign`** appends a job to the runner's queue. Until the server receives `Began`, `Ended` or `Returned` for it, the
  job may be queued or running. A job that the runner has queued, begun or ended before is not queued again, so that the
  server may repeat an `Assign` on a new stream.
- **`Began`** is sent for a job that has been running for `BEGAN_SECONDS`, once on each stream. A shorter job has none:
  `Outcome.started` says when it began.
- **`Ended`** is sent after the outcome is on disk, and on each new stream until `Acknowledge`. The next job does not
  wait for the acknowledgement.
- **`Returned`** says that a job was taken out of the queue and has not begun: the server withdrew it, the queue is full
  (`JOBS_QUEUED_MAX`), or the worker is used for one job only (reset `Recreate`). The same id may be assigned again,
  here or elsewhere. It is sent once: after a break, `Jobs` has what is left of the queue.
- **`Withdraw`** is answered with `Returned` for each id that was queued, and with nothing for all others.
- **`Cancel`** of a queued job ends it as Cancelled when it becomes first, without running it.
- **`Report`** is not sent for each job. A worker in phase Idle, or Held with `has_task`, is configured and takes jobs.
  An `Assign` to a worker in one of these phases makes it Held at both ends (`held`), without a message. While jobs
  follow each other, `holder` may name an earlier one; the runner reports again when it has no job left whose outcome is
  not acknowledged (Idle), or when anything else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from rota.api.egress import Network
from rota.api.pool import WorkspaceSpec
from rota.runtime.runner.jobs import Job, Outcome

VERSION = 2
PROTOCOL = f"rota-runner-v{VERSION}"
FRAME_BYTES = 1024 * 1024
"""The size at which a frame is sent and another one begun. A larger message has a frame of its own."""
BEGAN_SECONDS = 0.05
"""Seconds that a job has to run before `Began` is sent for it."""

Phase = Literal["Waiting", "Preparing", "Idle", "Held", "Resetting", "Failed", "Broken"]
ResetPolicy = Literal["Keep", "Clean", "Recreate"]


class Message(Struct, tag_field="type", frozen=True, rename="camel", omit_defaults=True):
    """The base of all messages."""


# From the runner.


class Report(Message, tag="report", frozen=True):
    """The state of a runner. It is the first message on a stream, and is sent again when it changes."""

    run: int
    phase: Phase
    configured: str = ""
    """The digest of the configuration for which the worker is prepared."""
    reason: str = ""
    message: str = ""
    said: str = ""
    """The output of a function's code that could not be loaded, with its traceback."""
    holder: str = ""
    """The claim or the job that has the worker. A job has it until its outcome is acknowledged."""
    has_task: bool = False
    """True if the holder is a job. The runner itself reports the end of a job."""


class Jobs(Message, tag="jobs", frozen=True):
    """The jobs of a runner that have not ended. Sent once on each stream, after all outcomes."""

    running: str = ""
    """The job that has begun; empty if there is none."""
    queued: tuple[str, ...] = ()
    """The jobs that have not begun, in their order."""


class Began(Message, tag="began", frozen=True):
    """A job is running."""

    id: str
    at: float
    """Seconds since 1970."""


class Ended(Message, tag="ended", frozen=True):
    """The outcome of a job. Sent on each stream until it is acknowledged."""

    outcome: Outcome


class Returned(Message, tag="returned", frozen=True):
    """A job was taken out of the queue. It has not begun."""

    id: str


NO_RESULT = Raw()
"""The result of a call without one. Encoding leaves out only this object, not an equal one."""
CallReason = Literal["Succeeded", "Failed", "Timeout", "Cancelled", "WorkerLost", "Refused"]


class Called(Message, tag="called", frozen=True):
    """The end of a call. It is sent once, and not repeated after a break of the stream."""

    id: str
    reason: CallReason
    """Refused: the call was never begun, and can be made elsewhere."""
    result: Raw = NO_RESULT
    """The result as JSON; empty if there is none."""
    message: str = ""
    """Why the call did not succeed, in one line for people. Its log has more."""
    exit_code: int | None = None


TAKES_JOBS = ("Idle", "Held")
"""Phases in which a worker begins assigned jobs, unless a claim holds it."""


def held(report: Report, id_: str) -> Report:
    """Return the report that a runner has after a job is assigned to it. Both ends apply this without a message."""
    if report.phase not in TAKES_JOBS or (report.holder and not report.has_task):
        return report
    return replace(report, phase="Held", holder=id_, has_task=True, reason="", message="", said="")


def says_more(report: Report, known: Report) -> bool:
    """Report whether a report must be sent to a peer that knows `known`. Another job as holder is no reason."""
    if report.has_task and known.has_task:
        known = replace(known, holder=report.holder)
    return report != known


# To the runner.


class WorkspaceSource(Struct, frozen=True, rename="camel"):
    """A workspace, with the scope and Secret for reading its repository."""

    spec: WorkspaceSpec
    scope: str
    secret: Mapping[str, str] | None = None
    network: Network = "host"
    """The network for fetching the repository."""
    egress: tuple[str, ...] = ()
    """The destinations that the network `egress` lets through."""


class BoxPlace(Struct, frozen=True, rename="camel"):
    """The box of a worker: its command, and the path of its folder on the host and in the box."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    inside: str
    record: str
    uid: int | None = None


class Handler(Struct, frozen=True, rename="camel"):
    """The handler that answers calls in the box of a function's worker."""

    function: str
    runtime: Literal["python", "command"]
    concurrency: int
    entrypoint: str = ""
    """For the runtime python: module:callable."""
    command: tuple[str, ...] = ()
    code: str = ""
    """The folder of the code in the box; empty if the tree has the code."""
    packages: str = ""
    """The folder in the box of the packages that the function requires; empty if it requires none."""


class Configure(Message, tag="configure", frozen=True):
    """The configuration of a worker, which the runner prepares."""

    digest: str
    place: BoxPlace
    reset: ResetPolicy
    workspace: WorkspaceSource | None = None
    home_files: Mapping[str, str] = {}
    """Files of the home, by their paths: the instructions of agents."""
    main: tuple[str, ...] = ()
    """A command that always runs in the box; the runner ends when the command ends. Empty: none."""
    cwd: str = ""
    """The folder in which `main` runs; empty for the tree."""
    handler: Handler | None = None
    """The handler of a function's worker; None for other workers."""
    program: str = ""
    """The program of an agent, which the box must have; empty for none."""


class Hold(Message, tag="hold", frozen=True):
    """A claim holds the worker from now on."""

    id: str


class Release(Message, tag="release", frozen=True):
    """The hold has ended: reset the worker."""


class Assign(Message, tag="assign", frozen=True):
    """Append a job to the queue."""

    job: Job


class Withdraw(Message, tag="withdraw", frozen=True):
    """Take jobs out of the queue that have not begun. The runner answers each of them with `Returned`."""

    ids: tuple[str, ...]


class Cancel(Message, tag="cancel", frozen=True):
    """End a job, also one that has not begun. Its outcome is sent as always."""

    id: str


class Acknowledge(Message, tag="acknowledge", frozen=True):
    """The server has stored an outcome. The runner does not send it again."""

    id: str


class Call(Message, tag="call", frozen=True):
    """A call of the worker's function. It is begun at once, or refused."""

    id: str
    event: Raw
    seconds: float
    """The timeout of the call."""
    log: str = ""
    """The path of the log on the host; empty for none."""
    name: str = ""
    """The name of the Task that records the call. Empty: there is none, and handlers see the id of the call instead."""


class CancelCall(Message, tag="cancelCall", frozen=True):
    """End a call. Its end is sent as always."""

    id: str


FromRunner = Report | Jobs | Began | Ended | Returned | Called
ToRunner = Configure | Hold | Release | Assign | Withdraw | Cancel | Acknowledge | Call | CancelCall
encode = Encoder().encode
from_runner: Decoder[list[FromRunner]] = Decoder(list[FromRunner])
to_runner: Decoder[list[ToRunner]] = Decoder(list[ToRunner])


def frames(messages: Iterable[bytes]) -> Iterator[str]:
    """Join encoded messages to frames within FRAME_BYTES."""
    together: list[bytes] = []
    size = 0
    for message in messages:
        if together and size + len(message) > FRAME_BYTES:
            yield f"[{b','.join(together).decode()}]"
            together, size = [], 0
        together.append(message)
        size += len(message)
    if together:
        yield f"[{b','.join(together).decode()}]"
