"""A plan, as it is shown: as text, and as JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

CauseType = Literal["Missing", "Circle", "Controller", "Object"]
"""Something is not there; some wait for each other; a controller failed; an object is not ready by itself."""


class Ready(Struct, frozen=True, rename="camel"):
    """An object that becomes ready."""

    id: str
    """The node: `bucket/namespace/name`."""
    name: str
    """As people write it: `Task/name`."""
    step: int
    """When it becomes ready, from 1. What has the same step does so together."""
    skipped: bool
    """It has nothing to do, and that is in order."""
    made: bool
    """Made by a controller: in no manifest."""
    owner: str
    """The id of the object that it was made for, if there is one."""
    needs: list[str]
    """The ids of what it refers to."""
    source: str
    line: int
    """Where it is written; empty and 0: in no manifest."""


class HeldUp(Struct, frozen=True, rename="camel"):
    """An object that never becomes ready because of another."""

    id: str
    name: str
    because: str
    """The id of the one that holds it up; empty: it is in the circle itself."""
    field: str
    """The field that refers to that one."""
    depth: int
    """How many there are between it and the cause."""
    also: list[str]
    """The ids of what holds it up as well, below other causes."""
    reason: str
    message: str
    source: str
    line: int


class Cause(Struct, frozen=True, rename="camel"):
    """Why objects never become ready."""

    type: CauseType
    id: str
    name: str
    circle: list[str]
    """The names of those that wait for each other, the first one again at the end."""
    message: str
    advice: str
    source: str
    line: int
    held_up: list[HeldUp]
    """What it holds up, each below the one that holds it up."""
    elsewhere: list[str]
    """The ids of what it holds up as well, below other causes."""


class Assumed(Struct, frozen=True, rename="camel"):
    """Something that could not be known."""

    type: Literal["Exists", "BecomesReady"]
    id: str
    name: str
    needed_by: list[str]
    """The ids of what needs it."""


class NotHonoured(Struct, frozen=True, rename="camel"):
    """An object with settings that change nothing on one machine. It becomes ready all the same."""

    id: str
    name: str
    message: str
    source: str
    line: int


class Summary(Struct, frozen=True, rename="camel"):
    """How many."""

    objects: int
    made: int
    ready: int
    never_ready: int
    causes: int
    assumed: int


class Plan(Struct, frozen=True, rename="camel"):
    """What manifests would come to."""

    converges: bool
    """Everything becomes ready."""
    ready: list[Ready]
    never_ready: list[Cause]
    not_honoured: list[NotHonoured]
    assumed: list[Assumed]
    summary: Summary
