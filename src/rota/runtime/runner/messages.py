"""What runners and the gateway tell each other. A message is one JSON object, told apart by `type`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from rota.api.egress import Network
from rota.api.pool import WorkspaceSpec
from rota.runtime.runner.jobs import Job, Outcome

VERSION = 1
PROTOCOL = f"rota-runner-v{VERSION}"

Phase = Literal["Waiting", "Preparing", "Idle", "Held", "Resetting", "Failed", "Broken"]
ResetPolicy = Literal["Keep", "Clean", "Recreate"]


class Message(Struct, tag_field="type", frozen=True, rename="camel", omit_defaults=True):
    """One message."""


# From the runner.


class Report(Message, tag="report", frozen=True):
    """How a runner is. The first thing that it says, and said again whenever it changes."""

    run: int
    phase: Phase
    configured: str = ""
    """The digest of the configuration it has."""
    reason: str = ""
    message: str = ""
    said: str = ""
    """What the code of a function wrote before it could not be loaded, with its traceback."""
    holder: str = ""
    """Whose it is: the hold that it was last told of. What that one did is gone when there is none any more."""
    has_task: bool = False
    """What has it is a task, whose end the runner tells of by itself."""


class Ended(Message, tag="ended", frozen=True):
    """How a task ended. Told until it is acknowledged."""

    outcome: Outcome


NO_RESULT = Raw()
"""Left out of a message: no other empty one is."""
CallReason = Literal["Succeeded", "Failed", "Timeout", "Cancelled", "WorkerLost", "Refused"]


class Called(Message, tag="called", frozen=True):
    """How a call ended. Told once: who is not there to hear it has lost it."""

    id: str
    reason: CallReason
    """Refused: it was never begun, and can be made elsewhere."""
    result: Raw = NO_RESULT
    """What it returned, as JSON; empty: nothing."""
    message: str = ""
    """Why it did not succeed, in one line. The rest is in its log."""
    exit_code: int | None = None


def held(report: Report, id_: str) -> Report:
    """The report of a runner that a task was assigned to: what both ends know without a word."""
    return replace(report, phase="Held", holder=id_, has_task=True, reason="", message="", said="")


# To the runner.


class Source(Struct, frozen=True, rename="camel"):
    """A workspace, and on whose behalf its repository is read."""

    spec: WorkspaceSpec
    scope: str
    secret: Mapping[str, str] | None = None
    network: Network = "host"
    """With which it is fetched."""
    egress: tuple[str, ...] = ()
    """What can be reached with network egress."""


class Place(Struct, frozen=True, rename="camel"):
    """The box, as the host has it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    inside: str
    record: str
    uid: int | None = None


class Handler(Struct, frozen=True, rename="camel"):
    """What answers calls in the box of a function's worker."""

    function: str
    runtime: Literal["python", "command"]
    concurrency: int
    entrypoint: str = ""
    """module:callable, of runtime python."""
    command: tuple[str, ...] = ()
    code: str = ""
    """Where the code is, as the box sees it; empty: in the tree."""
    packages: str = ""
    """Where the packages are that it requires; empty: it requires none."""


class Configure(Message, tag="configure", frozen=True):
    """What a runner prepares."""

    digest: str
    place: Place
    reset: ResetPolicy
    workspace: Source | None = None
    home_files: Mapping[str, str] = {}
    """Files for the home of what runs: what agents are told."""
    main: tuple[str, ...] = ()
    """What runs in the box all the time; the runner ends when it does. Empty: nothing, until there is a task."""
    cwd: str = ""
    """Where it runs; empty: in the tree."""
    handler: Handler | None = None
    """What answers calls; None: nothing, it is no function's."""
    program: str = ""
    """The program of an agent, which the box has to have; empty: none."""


class Hold(Message, tag="hold", frozen=True):
    """Somebody has it from now on, and may do with it what they like."""

    id: str


class Release(Message, tag="release", frozen=True):
    """Nobody has it any more: everything is made as new."""


class Assign(Message, tag="assign", frozen=True):
    """A task for it, which has it until its outcome is acknowledged."""

    job: Job


class Cancel(Message, tag="cancel", frozen=True):
    """End a task, if it is the one that runs. Its outcome is told as always."""

    id: str


class Acknowledge(Message, tag="acknowledge", frozen=True):
    """An outcome is written down: it need not be told again, and everything is made as new."""

    id: str


class Call(Message, tag="call", frozen=True):
    """A call of the function that a worker is of. It is begun at once, or refused."""

    id: str
    event: Raw
    seconds: float
    """After which it is ended."""
    log: str = ""
    """A file of the host; empty: none."""
    name: str = ""
    """The task that it is written down as, by which people find it; empty: it has none but its id."""


class CancelCall(Message, tag="cancelCall", frozen=True):
    """End a call. Its end is told as always."""

    id: str


FromRunner = Report | Ended | Called
ToRunner = Configure | Hold | Release | Assign | Cancel | Acknowledge | Call | CancelCall
encode = Encoder().encode
from_runner: Decoder[FromRunner] = Decoder(FromRunner)
to_runner: Decoder[ToRunner] = Decoder(ToRunner)
