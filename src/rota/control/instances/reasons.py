"""Reasons for not being ready: one ranked table, for an instance and for everything that is made of instances.

A condition shows the reason that comes first in the table: quota and gates, which hold up everything after them, then
failures, which need somebody to act, then progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from rota.api import Condition, Instance

Band = Literal["quota", "gate", "failure", "progress"]
QUOTA_GATE = "Quota"
HUB_QUOTA_GATE = "HubQuota"
"""Gate of instances in a cell that wait for the quota of their hub."""


class Reason(NamedTuple):
    """One entry of the table."""

    name: str
    band: Band
    meaning: str


TABLE: Final = (
    Reason("QuotaExceeded", "quota", "the quota leaves no room for it"),
    Reason("QuotaNotGranted", "gate", "its quota is not granted yet"),
    Reason("SchedulingGated", "gate", "something has to happen before it is started"),
    Reason("ReferenceNotResolved", "gate", "something that it refers to is not there, or not ready"),
    Reason("LocationNotFound", "failure", "there is no Location of its city"),
    Reason("NoCellInCity", "failure", "its city has no cell"),
    Reason("CellsLost", "failure", "no cell of its city is in reach"),
    Reason("CellsCordoned", "failure", "nothing new is placed in the cells of its city"),
    Reason("CellsFull", "failure", "the cells of its city have no room"),
    Reason("NameTaken", "failure", "its name is taken by an instance of another owner"),
    Reason("NotIsolated", "failure", "it asks for a sandbox, and the host has none"),
    Reason("KeeperTooOld", "failure", "the keeper that runs is of an earlier Rota, and would not end it in time"),
    Reason("NodeUnreachable", "failure", "the node that it is on does not answer"),
    Reason("ImageUnavailable", "failure", "its image is not there and cannot be had"),
    Reason("StorageExceeded", "failure", "it has more on the disk than its storage may hold"),
    Reason("DiskPressure", "failure", "the disk is short of space, and it has most of it"),
    Reason("InstanceCrashing", "failure", "it ends soon after every start"),
    Reason("ConfigurationError", "failure", "it cannot be started as it is written"),
    Reason("Stopped", "failure", "it has ended"),
    Reason("Provisioning", "progress", "the runtime has not taken it on yet"),
    Reason("Starting", "progress", "it is being started"),
    Reason("Stopping", "progress", "it is being stopped"),
    Reason("NotCreated", "progress", "it is not made yet"),
)
UNKNOWN_RANK: Final = next(rank for rank, reason in enumerate(TABLE) if reason.band == "progress") - 0.5
"""The rank of a maker's own reason: behind the failures of the table, before progress."""
_BY_NAME: Final = {reason.name: (rank, reason) for rank, reason in enumerate(TABLE)}
_QUOTA_RANK_MAX: Final = max(rank for rank, reason in enumerate(TABLE) if reason.band == "quota")
_GATE_RANK_MAX: Final = max(rank for rank, reason in enumerate(TABLE) if reason.band == "gate")


def rank(reason: str) -> float:
    """Return the place of a reason in the table. The lowest is shown."""
    known = _BY_NAME.get(reason)
    return UNKNOWN_RANK if known is None else known[0]


def meaning(reason: str) -> str:
    known = _BY_NAME.get(reason)
    return "" if known is None else known[1].meaning


def is_noticed(reason: str) -> bool:
    """Report whether a reason deserves an Event: it does not pass by itself, and was not asked for."""
    known = _BY_NAME.get(reason)
    return known is not None and known[1].band in ("quota", "failure") and reason != "Stopped"


class Blocker(NamedTuple):
    """A reason why instances are not ready."""

    reason: str
    message: str
    rank: float
    who: str = ""
    affected: int = 1

    @property
    def is_failure(self) -> bool:
        """True if the reason is in the band `quota` or `failure`, or unknown."""
        return self.rank <= _QUOTA_RANK_MAX or _GATE_RANK_MAX < self.rank <= UNKNOWN_RANK


def blocker(
    reason: str, message: str = "", *, who: str = "", affected: int = 1, rank_max: float | None = None
) -> Blocker:
    """Return a blocker, with the table's message if it has none. `rank_max` is the rank of an unknown reason."""
    place = rank(reason)
    if rank_max is not None and reason not in _BY_NAME:
        place = rank_max
    return Blocker(reason, message or meaning(reason), place, who, affected)


def _of(condition: Condition | None, otherwise: str, *, rank_max: float | None = None) -> Blocker:
    """Return the blocker of a condition that is not True; `otherwise` is the reason if the condition has none."""
    if condition is None or condition.status == "True" or not condition.reason:
        return blocker(otherwise, condition.message if condition is not None else "")
    return blocker(condition.reason, condition.message, rank_max=rank_max)


INSISTING = ("sandbox", "gvisor")
"""Values of `isolation` without which an instance must not run."""


def is_ready(instance: Instance) -> bool:
    """Report whether an instance has no blocker. Cheaper than `worst_blocker`, with the same result."""
    if instance.metadata.deletion_timestamp is not None or instance.spec.scheduling_gates or instance.status is None:
        return False
    needed = 2
    for condition in instance.status.conditions:
        if condition.status == "True":
            needed -= condition.type in ("Programmed", "Available")
        elif condition.type == "Isolated":
            if instance.spec.isolation in INSISTING:
                return False
        elif condition.type in ("QuotaGranted", "ResolvedRefs"):
            return False
    return needed == 0


def worst_blocker(instance: Instance) -> Blocker | None:
    """Return the blocker of an instance with the lowest rank. None: the instance is ready."""
    found = list(_blockers(instance))
    if instance.metadata.deletion_timestamp is not None:
        return blocker("Stopping")
    return min(found, key=lambda one: one.rank, default=None)


def _blockers(instance: Instance) -> Iterable[Blocker]:
    said = {condition.type: condition for condition in instance.status.conditions} if instance.status else {}
    gates = [gate.name for gate in instance.spec.scheduling_gates]
    quota = said.get("QuotaGranted")
    if quota is not None and quota.status != "True":
        yield _of(quota, "QuotaNotGranted", rank_max=_QUOTA_RANK_MAX)
    elif QUOTA_GATE in gates or HUB_QUOTA_GATE in gates:
        # Also without the condition: an instance whose quota does not exist yet must show what it waits for.
        yield blocker("QuotaNotGranted")
    elif gates:
        yield blocker("SchedulingGated", f"it waits for {', '.join(gates)}")
    references = said.get("ResolvedRefs")
    if references is not None and references.status != "True":
        yield _of(references, "ReferenceNotResolved", rank_max=_GATE_RANK_MAX)
    isolated = said.get("Isolated")
    if instance.spec.isolation in INSISTING and isolated is not None and isolated.status != "True":
        yield blocker("NotIsolated", isolated.message)
    programmed, available = said.get("Programmed"), said.get("Available")
    if programmed is None or programmed.status != "True":
        yield _of(programmed, "Provisioning")
    # Before it is programmed, a missing condition says nothing.
    if available is None and programmed is not None and programmed.status == "True":
        yield blocker("Starting")
    elif available is not None and available.status != "True":
        yield _of(available, "Starting")


def ready_condition(instance: Instance) -> Condition:
    worst = worst_blocker(instance)
    if worst is None:
        return Condition(type="Ready", status="True", reason="Ready")
    return Condition(type="Ready", status="False", reason=worst.reason, message=worst.message)


def blockers_of(instances: Iterable[Instance], *, missing: int = 0) -> list[Blocker]:
    """Return the blockers of these instances and of `missing` ones, one for each reason, the worst first."""
    found: dict[str, Blocker] = {}
    for instance in sorted(instances, key=lambda one: one.spec.ordinal):
        worst = worst_blocker(instance)
        if worst is not None:
            before = found.get(worst.reason, worst._replace(who=instance.metadata.name, affected=0))
            found[worst.reason] = before._replace(affected=before.affected + 1, rank=min(before.rank, worst.rank))
    if missing > 0:
        found.setdefault("NotCreated", blocker("NotCreated", affected=missing))
    return sorted(found.values(), key=lambda one: (one.rank, one.reason))


def rolled_up(
    type_: str, *, ready: int, wanted: int, blockers: Sequence[Blocker], needed: int | None = None
) -> Condition:
    """Return a condition on many instances: True if `needed` are ready; omitted: all wanted ones.

    Otherwise it has the reason and message of the worst blocker, and the number of instances with it. The next level,
    such as the deployment or workload, derives its own blocker from this condition.
    """
    tally = f"{ready} of {wanted} ready"
    # At least one has to be ready, if any is wanted.
    enough = wanted if needed is None else min(max(needed, 1), wanted)
    if ready >= enough:
        return Condition(type=type_, status="True", reason="Ready" if wanted else "NoneWanted", message=tally)
    worst = min(blockers, key=lambda one: one.rank, default=blocker("NotCreated", affected=wanted - ready))
    about = ": ".join(part for part in (f"{worst.affected} {worst.reason}", worst.who, worst.message) if part)
    return Condition(type=type_, status="False", reason=worst.reason, message=f"{tally}; {about}")
