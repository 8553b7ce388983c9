"""The types of a plan, as `rota plan` prints them in text and JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec import field as renamed

CauseType = Literal["Missing", "Circle", "Controller", "Object"]
"""An object is missing; objects wait for each other; a controller failed; an object is not ready by itself."""


class Ready(Struct, frozen=True, rename="camel"):
    """An object that becomes ready."""

    id: str
    """Its id: `bucket/namespace/name`."""
    name: str
    """Its name for people: `Task/name`."""
    step: int
    """The step in which it becomes ready, from 1. Objects of a step become ready together."""
    skipped: bool
    """It is skipped as intended."""
    made: bool
    """Created by a controller, not by a manifest."""
    owner: str
    """The id of its owner, if it has one."""
    needs: list[str]
    """The ids of the objects that it refers to."""
    source: str
    line_number: int = renamed(name="line")
    """The position of its manifest; empty and 0 if it has none."""


class HeldUp(Struct, frozen=True, rename="camel"):
    """An object that never becomes ready because another blocks it."""

    id: str
    name: str
    because: str
    """The id of its blocker; empty for a member of a cycle."""
    field: str
    """The field that refers to the blocker."""
    depth: int
    """The number of objects between it and the cause."""
    also: list[str]
    """The ids of further blockers, below other causes."""
    reason: str
    message: str
    source: str
    line_number: int = renamed(name="line")


class Cause(Struct, frozen=True, rename="camel"):
    """A reason why objects never become ready."""

    type: CauseType
    id: str
    name: str
    circle: list[str]
    """The names of the members of a cycle, with the first repeated at the end."""
    message: str
    advice: str
    source: str
    line_number: int = renamed(name="line")
    held_up: list[HeldUp]
    """The objects that it blocks, each below its blocker."""
    elsewhere: list[str]
    """The ids of further objects that it blocks, below other causes."""


class Assumed(Struct, frozen=True, rename="camel"):
    """An assumption about an object."""

    type: Literal["Exists", "BecomesReady"]
    id: str
    name: str
    needed_by: list[str]
    """The ids of the objects that need it."""


class NotHonoured(Struct, frozen=True, rename="camel"):
    """An object with settings that have no effect on one machine. It becomes ready regardless."""

    id: str
    name: str
    message: str
    source: str
    line_number: int = renamed(name="line")


class Summary(Struct, frozen=True, rename="camel"):
    """The counts of a plan."""

    objects: int
    made: int
    ready: int
    never_ready: int
    causes: int
    assumed: int


class Plan(Struct, frozen=True, rename="camel"):
    """The result of planning manifests."""

    converges: bool
    """True if everything becomes ready."""
    ready: list[Ready]
    never_ready: list[Cause]
    not_honoured: list[NotHonoured]
    assumed: list[Assumed]
    summary: Summary
