"""Decisions on one instance: restarts, runs for a hold with options of its own, and the next status.

Pure: state, memory and time are arguments, from the Instance controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from rota.api import Condition, Instance, WorkloadDeployment
from rota.api.instance import AssignmentStatus, InstanceStatus, LastExit
from rota.control.holds.options import is_restarted_for
from rota.control.instances.backoff import RunHistory, restart_delay, restarts
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import HUB_QUOTA_GATE, QUOTA_GATE
from rota.control.making.interface import Observed, Obstacle
from rota.runtime.interface import Exit, Run
from rota.runtime.keeper.protocol import LEASE_ENDED

AVAILABLE, PROGRAMMED = "Available", "Programmed"
KEEPER_LOST = "KeeperLost"
FAULTLESS = frozenset((KEEPER_LOST, LEASE_ENDED))
"""Reasons of an end that is no crash, since the instance is not at fault. It is restarted at once."""
COMING = frozenset(("Provisioning", "HubUnreachable"))
"""Obstacles that pass by themselves: the instance is Pending, not Failed."""
IMAGE_RETRY_SECONDS = 30.0
"""Pause between two pulls of an image."""
CODE_RETRY_SECONDS = 1.0
LINES_MAX = 10
"""Lines of output that a condition shows."""
LINE_LENGTH_MAX = 200


class Restarts(NamedTuple):
    """The decision on which ended containers are started."""

    start: frozenset[str]
    """Containers to start now."""
    wait: float | None
    """Seconds until the next of the others is started; None: none is."""


class Found(NamedTuple):
    """The next status of an instance."""

    status: InstanceStatus
    phase: str
    available: Condition
    wait: float | None = None
    """Seconds until the next reconciliation is due."""


def plan_restarts(
    obj: Instance, observed: Observed, renewed: Mapping[str, int], history: RunHistory, now: float
) -> Restarts:
    """Decide which ended containers are started, now or later.

    `renewed`: the numbers of runs that were ended on purpose, to be started anew.
    """
    start, waits = set(), []
    for name in [container.name for container in obj.spec.containers] if observed.obstacle is None else ():
        run = observed.runs.get(name)
        if run is None or run.exit is None:
            continue
        if renewed.get(name) == run.number:
            start.add(name)
        elif restarts(obj.spec.restart_policy, failed=run.exit.failed):
            is_faultless = run.exit.reason in FAULTLESS
            wait = 0.0 if is_faultless else restart_delay(history.crashes(name), run.exit.time, now)
            if wait > 0:
                waits.append(wait)
            else:
                start.add(name)
    return Restarts(frozenset(start), min(waits, default=None))


def remembered(runs: Mapping[str, Run], renewed: Mapping[str, int]) -> dict[str, Run]:
    """Return the ended runs that may count as crashes: neither renewed nor with a faultless reason."""
    return {
        name: run
        for name, run in runs.items()
        if run.exit is not None and run.exit.reason not in FAULTLESS and renewed.get(name) != run.number
    }


def is_held_back(obj: Instance, *, copies_gates: bool) -> bool:
    """Report whether a gate keeps an instance from being made. A maker that copies gates obeys only a quota's."""
    gates = {gate.name for gate in obj.spec.scheduling_gates}
    return bool(gates & {QUOTA_GATE, HUB_QUOTA_GATE} if copies_gates else gates)


def is_same_run(before: InstanceStatus, run: Run) -> bool:
    """Report whether a status was written for this run."""
    return before.runtime_id == run.id and run.number <= before.restarts


def hold_step(obj: Instance, status: InstanceStatus, runs: Mapping[str, Run]) -> Literal["Renew", "Done"] | None:
    """Decide the next step for a hold with images or variables of its own.

    Renew: end what runs, once, and start it with the hold's options. Done: what was started for the hold has ended.
    """
    held, known = obj.spec.assignment, status.assignment
    if held is None or not is_restarted_for(obj):
        return None
    if known is None or known.id != held.id:
        return "Renew"
    has_ended = known.phase == "Done" or any(run.exit is not None for run in runs.values())
    return "Done" if has_ended else None


def found_done(obj: Instance, status: InstanceStatus) -> Found:
    """Return the status after the end of what ran for a hold with options. It is not restarted for that hold."""
    assert obj.spec.assignment is not None
    done = AssignmentStatus(id=obj.spec.assignment.id, phase="Done")
    why = unavailable("Stopped", "what ran for its holder has ended")
    return Found(msgspec.structs.replace(status, assignment=done), "Failed", why)


def found(
    obj: Instance, status: InstanceStatus, observed: Observed, wait: float | None, crashes: int, now: float
) -> Found:
    """Return the status of an instance that was made. `wait`: seconds until its restart after `crashes`; None: none."""
    runs, obstacle = observed.runs, observed.obstacle
    first, last = runs.get(obj.spec.containers[0].name), _last_of(runs)
    status = msgspec.structs.replace(
        status, observed_generation=obj.metadata.generation, observed_template_hash=obj.spec.template_hash
    )
    if first is not None:
        status = msgspec.structs.replace(
            status,
            runtime_id=first.id,
            start_time=_time(first.started),
            restarts=max(status.restarts, max(run.number for run in runs.values())),
        )
    if obstacle is not None:
        return Found(status, "Starting", unavailable(obstacle.reason, obstacle.message))
    if first is None:
        return Found(status, "Starting", unavailable("Starting", ""))
    if last is None:
        available = Condition(type=AVAILABLE, status="True", reason=AVAILABLE)
        return Found(_running_for_hold(obj, status), phase_of(obj), available)
    if wait is not None:
        said = crash_condition(_last_exit(last), max(1, crashes), now + wait, last.lines.splitlines())
        return Found(status, "Starting", said, wait)
    message = "\n".join([f"it {exit_text(_last_exit(last))}", *last.lines.splitlines()])
    return Found(status, "Failed" if last.failed else "Succeeded", unavailable("Stopped", message))


def crash_condition(last_exit: LastExit, crashes: int, starts_at: float, output: Sequence[str]) -> Condition:
    """Return the condition Available after so many crashes in a row, with the end of the output.

    It names the time of the next start. Seconds to go would have to be written again and again.
    """
    when = datetime.fromtimestamp(int(starts_at), UTC).isoformat().replace("+00:00", "Z")
    times = "once" if crashes == 1 else f"{crashes} times in a row"
    message = f"it {exit_text(last_exit)}, {times}; it is started again at {when}"
    lines = [_cut(line.rstrip()) for line in output if line.strip()][-LINES_MAX:]
    return Condition(type="Available", status="False", reason="InstanceCrashing", message="\n".join([message, *lines]))


def exit_text(last_exit: LastExit) -> str:
    """Say how a run ended, as part of a sentence."""
    if last_exit.signal is not None:
        how = f"was ended by signal {last_exit.signal}"
    elif last_exit.code is not None:
        how = f"exited with code {last_exit.code}"
    else:
        how = "ended"
    return f"{how} ({last_exit.reason})" if last_exit.reason else how


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH_MAX else line[: LINE_LENGTH_MAX - 1] + "…"


def _running_for_hold(obj: Instance, status: InstanceStatus) -> InstanceStatus:
    held = obj.spec.assignment
    if held is None or not is_restarted_for(obj):
        return status
    return msgspec.structs.replace(status, assignment=AssignmentStatus(id=held.id, phase="Running"))


def not_made(obstacle: Obstacle) -> tuple[list[Condition], str]:
    """Return the conditions and the phase of an instance that is not made."""
    why = unavailable(obstacle.reason, obstacle.message)
    return [msgspec.structs.replace(why, type=PROGRAMMED), why], "Pending" if obstacle.reason in COMING else "Failed"


def retry_seconds(obj: Instance, obstacle: Obstacle) -> float | None:
    """Return the seconds until the next try to make an instance; None: not before something changes."""
    if obstacle.again_seconds is not None:
        return obstacle.again_seconds
    if obstacle.reason == "ImageUnavailable":
        return IMAGE_RETRY_SECONDS  # No event tells of a new image.
    if obstacle.reason in COMING and obj.spec.handler is not None:
        return CODE_RETRY_SECONDS  # The code of a function is being copied there.
    return None


def phase_of(obj: Instance) -> str:
    """Return the phase of an available instance. The replica of a workload is Running, since nobody can hold it."""
    owner = controller_of(obj)
    is_replica = owner is not None and owner.kind == WorkloadDeployment.api.name
    return "Running" if is_replica or obj.spec.assignment is not None else "Idle"


def unavailable(reason: str, message: str) -> Condition:
    return Condition(type=AVAILABLE, status="False", reason=reason, message=message)


def with_last_exit(status: InstanceStatus, runs: Mapping[str, Run]) -> InstanceStatus:
    """Return a status with the end of the last run, if one has ended."""
    last = _last_of(runs)
    return status if last is None else msgspec.structs.replace(status, last_exit=_last_exit(last))


def _last_of(runs: Mapping[str, Run]) -> Exit | None:
    return max((run.exit for run in runs.values() if run.exit is not None), key=lambda end: end.time, default=None)


def _last_exit(exit_: Exit) -> LastExit:
    return LastExit(code=exit_.code, signal=exit_.signal, reason=exit_.reason or None, time=_time(exit_.time))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
