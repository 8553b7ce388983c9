"""What the runs of an instance come to: its status, its phase and the condition Available."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from rota.api import Condition, Instance, WorkloadDeployment
from rota.api.instance import InstanceStatus, LastExit
from rota.control.instances.crashes import crashing, ending
from rota.control.instances.names import controller_of
from rota.runtime.interface import Exit, Run

AVAILABLE = "Available"


class Seen(NamedTuple):
    """What is to be said of an instance."""

    status: InstanceStatus
    phase: str
    available: Condition
    wait: float | None = None
    """Seconds until there is something to do, or to look at again."""


def seen(
    obj: Instance, status: InstanceStatus, runs: Mapping[str, Run], wait: float | None, crashes: int, now: float
) -> Seen:
    """After so many crashes in a row, with the next start in `wait` seconds, if there is one."""
    first = runs[obj.spec.containers[0].name]
    last = _last_of(runs)
    status = msgspec.structs.replace(
        status,
        observed_generation=obj.metadata.generation,
        observed_template_hash=obj.spec.template_hash,
        runtime_id=first.id,
        start_time=_time(first.started),
        restarts=max(status.restarts, max(run.number for run in runs.values())),
    )
    if last is None:
        return Seen(status, phase_of(obj), Condition(type=AVAILABLE, status="True", reason=AVAILABLE))
    if wait is not None:
        said = crashing(_last_exit(last), max(1, crashes), now + wait, last.lines.splitlines())
        return Seen(status, "Starting", said, wait)
    message = "\n".join([f"it {ending(_last_exit(last))}", *last.lines.splitlines()])
    return Seen(status, "Failed" if last.failed else "Succeeded", unavailable("Stopped", message))


def phase_of(obj: Instance) -> str:
    """Return the phase of one that can be used: a replica of a workload is never free to be had."""
    owner = controller_of(obj)
    is_replica = owner is not None and owner.kind == WorkloadDeployment.api.name
    return "Running" if is_replica or obj.spec.assignment is not None else "Idle"


def unavailable(reason: str, message: str) -> Condition:
    return Condition(type=AVAILABLE, status="False", reason=reason, message=message)


def with_last_exit(status: InstanceStatus, runs: Mapping[str, Run]) -> InstanceStatus:
    """Before what has ended is started again: then nobody could tell any more how it did."""
    last = _last_of(runs)
    return status if last is None else msgspec.structs.replace(status, last_exit=_last_exit(last))


def _last_of(runs: Mapping[str, Run]) -> Exit | None:
    """How the last of those that run no more ended."""
    return max((run.exit for run in runs.values() if run.exit is not None), key=lambda end: end.time, default=None)


def _last_exit(exit_: Exit) -> LastExit:
    return LastExit(code=exit_.code, signal=exit_.signal, reason=exit_.reason or None, time=_time(exit_.time))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
