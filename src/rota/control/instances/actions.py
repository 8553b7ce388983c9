"""What planning is about: what is wanted, and what is to be done about it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from rota.api import Condition, Instance, OwnerReference
from rota.api.instance import InstanceTemplate
from rota.control.instances.reasons import Blocker, rolled_up

UNAVAILABLE_MIN = 1
"""With less, no template could ever take the place of another."""

Why = Literal["ScaledDown", "Outdated", "Broken", "Ended", "DrainTimedOut"]
PoolPhase = Literal["Pending", "Scaling", "Ready", "Degraded"]


class Desired(Struct, frozen=True, kw_only=True):
    """The instances that one owner wants."""

    owner: OwnerReference
    namespace: str
    replicas: int
    template: InstanceTemplate
    template_hash: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    max_unavailable: int = UNAVAILABLE_MIN
    drain_seconds: float = 0.0
    settle_seconds: float = 0.0
    """For how long a new one must have been up before another one is replaced: what is ready may be about to die."""
    pooled: bool = False
    """They are handed out to holders, and a held one finishes first."""
    sparse: bool = False
    """Any ordinals will do: of too many those go that nobody works with, whatever their ordinals."""
    gates: tuple[str, ...] = ()
    """Gates that a new one begins with."""
    finalizers: tuple[str, ...] = ()
    """Who has to act before one is gone: whoever makes it real must end it first."""
    cell_name: str | None = None


class Create(Struct, frozen=True):
    """Make an instance. If one of its name is there already, that is no failure: the next plan sees it."""

    instance: Instance


class Drain(Struct, frozen=True):
    """Hand it out no more: set the annotation, if the instance is still in this state.

    The mark carries its own time: coming late, onto a hold that began since, it would cut that one short.
    """

    name: str
    uid: str
    resource_version: str
    mark: str


class Undrain(Struct, frozen=True):
    """It stays after all: remove the annotation, if the instance is still in this state."""

    name: str
    uid: str
    resource_version: str


class Delete(Struct, frozen=True):
    """Delete an instance, if it is still this one and, where a version is given, still in this state.

    With a version the decision rests on what it was seen to be, free or broken: it may be held or ready by now.
    """

    name: str
    uid: str
    why: Why
    resource_version: str = ""


Action: TypeAlias = Create | Drain | Undrain | Delete


class Counts(Struct):
    """How many instances there are of each sort."""

    replicas: int = 0
    """All that are there, those that are leaving too."""
    ready: int = 0
    updated: int = 0
    """Those that really run the newest template."""
    current: int = 0
    """Of these, those that the runtime has taken on."""
    available: int = 0
    """Ready, wanted and not draining."""
    idle: int = 0
    busy: int = 0


class Plan(Struct, kw_only=True):
    """What to do next, and how things are."""

    actions: list[Action]
    counts: Counts
    wanted: int
    ready: int
    """Of those that are wanted."""
    blockers: list[Blocker]
    """Why the others are not."""
    again_after: float | None = None
    """In how many seconds there may be more to do, though nothing changes until then."""
    reason: str
    """What is going on, as one word."""
    message: str = ""

    def condition(self, type_: str, *, needed: int | None = None) -> Condition:
        """What is said of the owner: whether as many as needed are ready. Omitted: all."""
        return rolled_up(type_, ready=self.ready, wanted=self.wanted, blockers=self.blockers, needed=needed)

    @property
    def settled(self) -> bool:
        return self.reason == "Settled"

    @property
    def phase(self) -> PoolPhase:
        """How a pool is as a whole."""
        if any(blocker.is_failure for blocker in self.blockers):
            return "Degraded"
        if self.settled and self.ready >= self.wanted:
            return "Ready"
        return "Pending" if self.ready == 0 and self.wanted > 0 else "Scaling"
