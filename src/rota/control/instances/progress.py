"""The progress of an owner's instances, as a reason and a message."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from rota.api import Instance
from rota.control.instances.reasons import worst_blocker

NAMED_MAX = 3
"""Instances that a message names. It only counts the others."""


class Work(Struct):
    """The instances of a plan by what is to be done, or waited for."""

    wanted: int
    updated: int = 0
    """Wanted instances that exist and have the newest template."""
    missing: list[str] = field(default_factory=list)
    """Names of instances to create."""
    taken: list[str] = field(default_factory=list)
    """Names that instances of other owners have."""
    surplus: list[Instance] = field(default_factory=list)
    leaving: list[Instance] = field(default_factory=list)
    outdated: list[Instance] = field(default_factory=list)
    ended: list[Instance] = field(default_factory=list)
    drained: list[Instance] = field(default_factory=list)
    """Held instances that go when their holders are done."""
    unready: list[Instance] = field(default_factory=list)
    """Wanted instances of the newest template that are not ready."""
    held_back: int = 0
    """Outdated instances that are replaced when others are ready."""


def summary(work: Work) -> tuple[str, str]:
    """Return the reason and the message."""
    if work.taken:
        return "NameTaken", f"another owner's instances have the names of {_listed(work.taken)}"
    updated = f"{work.updated} of {work.wanted} of the newest template"
    failing = [one for one in work.unready if (worst := worst_blocker(one)) is not None and worst.is_failure]
    if work.held_back and failing:
        return "RolloutPaused", f"{updated}; the others wait for {_listed(_names(failing))} to be ready"
    if work.drained:
        return "Draining", f"{updated}; waits for the holders of {_listed(_names(work.drained))}"
    if work.outdated:
        return "RollingOut", updated
    if work.surplus:
        return "ScalingDown", f"{_listed(_names(work.surplus))} to go"
    if work.ended:
        return "Replacing", f"{_listed(_names(work.ended))} ended"
    if work.missing:
        return "ScalingUp", f"{_listed(work.missing)} to be made"
    if work.leaving:
        return "Stopping", f"{_listed(_names(work.leaving))} to be gone"
    if work.unready:
        return "Waiting", f"{_listed(_names(work.unready))} to be ready"
    return "Settled", ""


def _names(instances: Sequence[Instance]) -> list[str]:
    return [instance.metadata.name for instance in instances]


def _listed(names: Sequence[str]) -> str:
    named = ", ".join(names[:NAMED_MAX])
    return named if len(names) <= NAMED_MAX else f"{named} and {len(names) - NAMED_MAX} more"
