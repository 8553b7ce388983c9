"""Derive the reported state of an instance from its Pod: its runs, and the reason why it is not ready. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rota.api import Instance
from rota.api.cluster import ContainerStatus, Pod, PodStatus, StateTerminated
from rota.api.instance import Address
from rota.control.instances.reasons import rank
from rota.control.making import ports
from rota.control.making.interface import Observed, Obstacle
from rota.control.making.pods.specs import OWN_NETWORK, RUN
from rota.runtime.interface import Exit, Run

IMAGE_REASONS = frozenset(("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"))
CONFIGURATION_REASONS = frozenset(
    (
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    )
)
ENDED = frozenset(("Succeeded", "Failed"))
"""Phases of a Pod in which nothing runs or is restarted any more."""
WORDS = {"OOMKilled": "OutOfMemory", "Completed": "", "Error": ""}
"""Rota's words for Kubernetes' reasons of an end."""
RUN_DIGITS_MAX = 18
LINES_LENGTH_MAX = 2_048
ENDING = Obstacle("Provisioning", "its Pod is ending; another one is made when it is gone")


def is_ended(pod: Pod) -> bool:
    """Report whether nothing of a Pod runs any more, and its kubelet restarts nothing of it."""
    return pod.status is not None and pod.status.phase in ENDED


def is_ending(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def observed(obj: Instance, pod: Pod | None, *, is_deleted: bool = False) -> Observed:
    """Return the state of an instance from its Pod, if it has one. `is_deleted`: its deletion was just requested."""
    if pod is None:
        return Observed(runs={})
    why = ENDING if is_deleted or is_ending(pod) else obstacle(obj, pod)
    return Observed(runs=runs(pod), unready=_unready(obj, pod), obstacle=why)


def runs(pod: Pod) -> dict[str, Run]:
    """Return the newest run of each container that was started. Numbers continue those of an earlier Pod."""
    first, found = first_run(pod), {}
    status = pod.status or PodStatus()
    for each in status.container_statuses:
        run = _run(pod, each, first)
        if run is not None:
            found[each.name] = run
    if is_ended(pod):
        # Evicted, say, before its kubelet said anything of its containers.
        for container in pod.spec.get("containers", []):
            name = container["name"]
            if name not in found or found[name].exit is None:
                end = Exit(_ended_at(pod), reason=status.reason or "PodFailed", lines=status.message)
                started = found[name].started if name in found else _started_at(pod)
                number = found[name].number if name in found else first
                found[name] = Run(number, pod.metadata.uid, started, end)
    return found


def first_run(pod: Pod) -> int:
    """Return the number of the first run of a Pod's containers."""
    said = pod.metadata.annotations.get(RUN, "")
    return int(said) if said.isdecimal() and len(said) <= RUN_DIGITS_MAX else 0


def addresses(obj: Instance, pod: Pod | None) -> list[Address]:
    """Return the addresses of an instance's ports; none while its Pod has no IP."""
    host = pod.status.pod_ip if pod is not None and pod.status is not None else ""
    if not host:
        return []
    allotted = ports.allot(obj, (), OWN_NETWORK)
    return [Address(name=name, host=host, port=number) for named in allotted.values() for name, number in named.items()]


def obstacle(obj: Instance, pod: Pod) -> Obstacle | None:
    """Return the worst reason why a Pod, which is not being deleted, is not as it should be; None: there is none."""
    if is_ended(pod):
        return None  # What has ended stays ended until a start is ordered.
    return min(_obstacles(obj, pod), key=lambda one: rank(one.reason), default=None)


def _obstacles(obj: Instance, pod: Pod) -> Iterator[Obstacle]:
    status = pod.status or PodStatus()
    said = {condition.type: condition for condition in status.conditions}
    ready, scheduled = said.get("Ready"), said.get("PodScheduled")
    if (ready is not None and ready.status == "Unknown") or (ready is not None and ready.reason == "NodeStatusUnknown"):
        yield Obstacle("NodeUnreachable", ready.message or "its node does not say how it is", is_made=True)
    if scheduled is not None and scheduled.status == "False":
        if scheduled.reason == "SchedulingGated":
            yield Obstacle("SchedulingGated", scheduled.message)
        else:
            yield Obstacle("Provisioning", f"no node takes it: {scheduled.message or scheduled.reason}")
        return
    for each in [*status.init_container_statuses, *status.container_statuses]:
        found = _of_container(obj, each)
        if found is not None:
            yield found
    if not status.container_statuses and not status.init_container_statuses:
        yield Obstacle("Provisioning", "its node prepares it" if scheduled is not None else "it is given a node")


def _of_container(obj: Instance, each: ContainerStatus) -> Obstacle | None:
    state = each.state
    if state is None or state.running is not None:
        return None
    if state.terminated is not None:
        if not _is_restarted(obj, state.terminated):
            return None
        return Obstacle(
            "Starting", f"container {each.name} {_ending(state.terminated)}; it is started again", is_made=True
        )
    waiting = state.waiting
    reason, message = (waiting.reason, waiting.message) if waiting is not None else ("", "")
    about = f"container {each.name}: {message or reason}"
    if reason in IMAGE_REASONS:
        return Obstacle("ImageUnavailable", about)
    if reason in CONFIGURATION_REASONS:
        return Obstacle("ConfigurationError", about)
    last = each.last_state.terminated if each.last_state is not None else None
    if last is not None:
        times = "once" if each.restart_count <= 1 else f"{each.restart_count} times"
        how = f"container {each.name} {_ending(last)}, and was started again {times}"
        return Obstacle(
            "InstanceCrashing", "\n".join(filter(None, (how, last.message[-LINES_LENGTH_MAX:]))), is_made=True
        )
    return Obstacle("Provisioning", f"container {each.name}: {message or 'its node prepares it'}")


def _is_restarted(obj: Instance, end: StateTerminated) -> bool:
    """Report whether the kubelet restarts a container after such an end."""
    policy = obj.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and end.exit_code != 0)


def _ending(end: StateTerminated) -> str:
    why = WORDS.get(end.reason, end.reason)
    how = f"was ended by signal {end.signal}" if end.signal else f"exited with code {end.exit_code}"
    return f"{how} ({why})" if why else how


def _run(pod: Pod, each: ContainerStatus, first: int) -> Run | None:
    number, id_ = first + each.restart_count, pod.metadata.uid
    state, last = each.state, each.last_state
    if state is not None and state.running is not None:
        return Run(number, id_, _seconds(state.running.started_at) or _started_at(pod))
    ended = state.terminated if state is not None else None
    if ended is None and last is not None:
        ended = last.terminated
    if ended is None:
        return None
    started = _seconds(ended.started_at) or _started_at(pod)
    return Run(number, id_, started, _exit(ended))


def _exit(end: StateTerminated) -> Exit:
    return Exit(
        time=_seconds(end.finished_at) or 0.0,
        code=None if end.signal else end.exit_code,
        signal=end.signal or None,
        reason=WORDS.get(end.reason, end.reason),
        lines=end.message[-LINES_LENGTH_MAX:],
    )


def _unready(obj: Instance, pod: Pod) -> str:
    status = pod.status or PodStatus()
    probed = {one.name for one in obj.spec.containers if one.readiness_probe is not None}
    for each in status.container_statuses:
        runs_ = each.state is not None and each.state.running is not None
        if each.name in probed and runs_ and not each.ready:
            return f"container {each.name} is not ready: its readiness probe does not pass"
    return ""


def _started_at(pod: Pod) -> float:
    status, created = pod.status, pod.metadata.creation_timestamp
    return (_seconds(status.start_time) if status is not None else 0.0) or _seconds(created)


def _ended_at(pod: Pod) -> float:
    """Return the time at which a Pod has ended: the last change of its conditions."""
    status = pod.status or PodStatus()
    times = [_seconds(one.last_transition_time) for one in status.conditions]
    return max(times, default=0.0) or _started_at(pod)


def _seconds(time: datetime | None) -> float:
    return time.timestamp() if time is not None else 0.0
