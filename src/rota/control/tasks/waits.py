"""The reason why a task or a claim waits for an instance of its pool, and Events for failed attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from rota.api import Function, Instance, Task, WorkerPool
from rota.control.instances.names import controller_of
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Recording
from rota.engine.references import FAILED as DEPENDENCY_FAILED
from rota.pools import Ledger, State

NAMED_MAX = 5
"""Holders that one message names."""
HOLDERS_COUNTED_MAX = 1_000
"""With more holders than this, no place is counted, since that takes time linear in their number."""
UNCOUNTED = -1
"""The place of a request that is not counted."""


class PoolWait(NamedTuple):
    """The wait of a task or a claim for an instance of its pool."""

    pool: str
    workers: int
    holders: tuple[str, ...]
    """The present holders, such as `task build`."""
    unready: int
    """Workers that are neither held nor ready."""
    before: int | None
    """The number of requests that are served before it, or `UNCOUNTED`; None: it is about to get an instance."""

    @property
    def message(self) -> str:
        if not self.workers:
            return f"waits for a worker of WorkerPool/{self.pool}, which has none{self._place}"
        return f"waits for a worker of WorkerPool/{self.pool}: {self.workers_message}{self._place}"

    @property
    def workers_message(self) -> str:
        who = ", ".join(self.holders[:NAMED_MAX])
        more = f" and {len(self.holders) - NAMED_MAX} more" if len(self.holders) > NAMED_MAX else ""
        busy = f"{len(self.holders)} of {self.workers} busy" + (f" ({who}{more})" if who else "")
        return busy + (f", {self.unready} not ready" if self.unready else "")

    @property
    def _place(self) -> str:
        if self.before is None:
            return ", and is about to get one"
        if self.before == UNCOUNTED:
            return f", as more than {HOLDERS_COUNTED_MAX} other holders do"
        return f", {self.before} before it" if self.before else ", it is next"


def warn(events: Recording, objects: Objects, task: Task, reason: str, message: str) -> None:
    """Record an Event for a failed attempt. A task that failed because of another one gets none.

    The Event of a call is about its function: there may be a thousand calls a second, and similar Events about one
    object are merged.
    """
    if reason in ("Succeeded", "Cancelled", DEPENDENCY_FAILED):
        return
    last = task.status.attempts[-1] if task.status is not None and task.status.attempts else None
    code = f"exit code {last.exit_code}" if reason == "Failed" and last is not None and last.exit_code else ""
    said = f"{reason} with {code}" if code and not message.startswith(code) else reason
    text = f"{said}: {message}" if message else said
    if not task.over():
        text += "; it is tried again"
    about: Task | Function | None = task
    if task.spec.function is not None:
        about = get(objects, Function, task.spec.function.name, task.metadata.namespace)
        text = f"{task.metadata.name}: {text}"
    if about is not None:
        events.record(about, "Warning", "TaskFailed" if task.over() else "AttemptFailed", text)


def place_of(ledger: Ledger, id_: str) -> int | None:
    """Count the requests that are served before one, or return `UNCOUNTED`. None: it does not wait."""
    if ledger.holders > HOLDERS_COUNTED_MAX and ledger.state(id_) is State.WAITING:
        return UNCOUNTED
    return ledger.position(id_)


def wait_of(
    pool: WorkerPool, before: int | None, objects: Objects, holders_of: Callable[[Instance], Sequence[str]]
) -> PoolWait:
    """Return the wait of a request with so many before it, by the pool's present instances.

    `holders_of` names the holders of an instance, such as `task build`.
    """
    meta = pool.metadata
    there = cast("Sequence[Instance]", objects.owned(Instance.api, meta.uid))
    workers = [one for one in there if _is_of(one, pool)]
    held = sorted(holder for one in workers if one.spec.assignment for holder in holders_of(one)[:1])
    unready = sum(one.spec.assignment is None and not _is_ready(one) for one in workers)
    return PoolWait(meta.name, len(workers), tuple(held), unready, before)


def _is_of(instance: Instance, pool: WorkerPool) -> bool:
    owner = controller_of(instance)
    return owner is not None and owner.uid == pool.metadata.uid and instance.metadata.deletion_timestamp is None


def _is_ready(instance: Instance) -> bool:
    ready = instance.status.condition("Ready") if instance.status is not None else None
    return ready is not None and ready.status == "True"
