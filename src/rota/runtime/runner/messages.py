"""What runners and the gateway tell each other. A message is one JSON object, told apart by `type`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from rota.api.pool import WorkspaceSpec

VERSION = 1
PROTOCOL = f"rota-runner-v{VERSION}"
MESSAGE_BYTES_MAX = 8 * 1024 * 1024

Phase = Literal["Waiting", "Preparing", "Idle", "Resetting", "Failed", "Broken"]
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
    resets: int = 0
    """How often it was made as new for another holder."""


# To the runner.


class Source(Struct, frozen=True, rename="camel"):
    """A workspace, and on whose behalf its repository is read."""

    spec: WorkspaceSpec
    scope: str
    secret: Mapping[str, str] | None = None


class Place(Struct, frozen=True, rename="camel"):
    """The box, as the host has it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    inside: str
    record: str
    uid: int | None = None


class Configure(Message, tag="configure", frozen=True):
    """What a runner prepares."""

    digest: str
    place: Place
    reset: ResetPolicy
    workspace: Source | None = None
    home_files: Mapping[str, str] = {}
    """Files for the home of what runs: what agents are told."""


class Reset(Message, tag="reset", frozen=True):
    """Make everything as new: the last holder is gone."""


FromRunner = Report
ToRunner = Configure | Reset
encode = Encoder().encode
from_runner: Decoder[FromRunner] = Decoder(FromRunner)
to_runner: Decoder[ToRunner] = Decoder(ToRunner)
