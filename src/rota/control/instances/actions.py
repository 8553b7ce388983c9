"""Input and output of the planner: the desired instances, the actions, the plan."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from rota.api import Condition, Instance, OwnerReference
from rota.api.instance import InstanceTemplate
from rota.control.instances.reasons import Blocker, rolled_up

UNAVAILABLE_MIN = 1
"""Least number of instances that may be unavailable: with 0, a rollout could never replace any."""

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
    """Time for which a new instance must have been up before the next one is replaced."""
    pooled: bool = False
    """True: instances are given to holders. A held one is drained before it is deleted."""
    sparse: bool = False
    """True: any ordinals will do, so that instances without a holder are removed first."""
    gates: tuple[str, ...] = ()
    """Scheduling gates of a new instance."""
    finalizers: tuple[str, ...] = ()
    """Finalizers of a new instance: each must be removed by its owner before the object is deleted."""
    cell_name: str | None = None


class Create(Struct, frozen=True):
    """Create an instance. If its name exists already, that is no failure: the next plan takes it into account."""

    instance: Instance


class Drain(Struct, frozen=True):
    """Set the draining annotation, if the instance is still in this state.

    The annotation has a time. Set late, on a hold that began later, it would shorten that hold's grace.
    """

    name: str
    uid: str
    resource_version: str
    mark: str


class Undrain(Struct, frozen=True):
    """Remove the draining annotation of an instance that stays, if it is still in this state."""

    name: str
    uid: str
    resource_version: str


class Delete(Struct, frozen=True):
    """Delete an instance by uid and, if a resourceVersion is given, only in that state.

    The version is given when the decision rests on the state: a free instance may be held by now, a broken one ready.
    """

    name: str
    uid: str
    why: Why
    resource_version: str = ""


Action: TypeAlias = Create | Drain | Undrain | Delete


class Counts(Struct):
    replicas: int = 0
    """Number of all instances, including those in deletion."""
    ready: int = 0
    updated: int = 0
    """Instances whose status says that they run the newest template."""
    current: int = 0
    """Updated, and accepted by the runtime."""
    available: int = 0
    """Ready, wanted and not draining."""
    idle: int = 0
    busy: int = 0


class Plan(Struct, kw_only=True):
    actions: list[Action]
    counts: Counts
    wanted: int
    ready: int
    """Ready instances among the wanted ones."""
    blockers: list[Blocker]
    """The reasons why the other wanted ones are not ready."""
    again_after: float | None = None
    """Seconds until there may be more to do, if nothing changes before."""
    reason: str
    """The progress in one word: the reason of a condition."""
    message: str = ""

    def condition(self, type_: str, *, needed: int | None = None) -> Condition:
        """Return the condition of the owner: True if `needed` instances are ready; omitted: all wanted ones."""
        return rolled_up(type_, ready=self.ready, wanted=self.wanted, blockers=self.blockers, needed=needed)

    @property
    def phase(self) -> PoolPhase:
        if any(blocker.is_failure for blocker in self.blockers):
            return "Degraded"
        if self.reason == "Settled" and self.ready >= self.wanted:
            return "Ready"
        return "Pending" if self.ready == 0 and self.wanted > 0 else "Scaling"
