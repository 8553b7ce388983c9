"""The lane of a pool: the workers that are given to its tasks, which then run on them one after the other.

One write of the Instance gives a worker to the lane, and one takes it back. In between, a task needs no write of the
Instance.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rota.api import Task
from rota.api.instance import Assignment
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver
from rota.control.holds.members import Member
from rota.control.tasks.lifecycle import time_of
from rota.engine.clock import Timer
from rota.pools import Opened
from rota.registry.metadata import new_uid
from rota.runtime.runner.messages import Acknowledge
from rota.runtime.runners import Runners

LINGER_SECONDS = 0.05
"""Time that an idle worker stays in the lane, since the next task often follows at once."""


class Lane:
    """Gives workers to the tasks of their pools, and takes them back."""

    def __init__(
        self,
        executor: Executor,
        runners: Runners,
        is_awaited: Callable[[str], bool],
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """`is_awaited` reports whether the outcome of an attempt is being written."""
        self._executor = executor
        self._runners = runners
        self._is_awaited = is_awaited
        self._linger_seconds = linger_seconds
        self._lingering: dict[str, Timer] = {}

    def close(self) -> None:
        for timer in self._lingering.values():
            timer.cancel()

    def forget(self, instance: str) -> None:
        """Forget a deleted instance, by its uid."""
        timer = self._lingering.pop(instance, None)
        if timer is not None:
            timer.cancel()

    # Giving.

    def enter(self, member: Member, begins: Task) -> HandOver:
        """Return the write that gives a worker to the lane, and begins the first task on it.

        A backend that is not atomic gets the status of the task by a second write.
        """
        meta, now = begins.metadata, time_of(self._executor.clock.time())
        lane = Assignment(id=new_uid(), kind="Task", name=meta.name, uid=meta.uid, since=now)
        return HandOver(member.subject, None, lane, begins=begins)

    def rename(self, member: Member, name: str, uid: str) -> None:
        """Write the name of the running task into the assignment of its instance, unless it is there."""
        assigned = member.assignment
        if assigned is not None and assigned.name != name and not member.is_changing_hands:
            renamed = msgspec.structs.replace(assigned, name=name, uid=uid)
            self._executor.hand_over(member, HandOver(member.subject, assigned.id, renamed))

    # Taking back.

    def acknowledge_rest(self, member: Member) -> None:
        """Acknowledge the outcomes of a worker that no task uses, except those that are being written."""
        for outcome in self._runners.outcomes(member.subject):
            if not self._is_awaited(outcome.id):
                self._runners.send(member.subject, Acknowledge(outcome.id))

    def leave_if_idle(self, member: Member | None) -> None:
        """Take a worker from the lane once it has had no task for a moment."""
        if member is None or not self._may_leave(member):
            return
        uid = member.subject.uid
        if not self._linger_seconds or not member.opened or member.reset != "Keep":
            self._leave(member)
        elif uid not in self._lingering:
            clock = self._executor.clock

            def due() -> None:
                self._lingering.pop(uid, None)
                if self._may_leave(member):
                    self._leave(member)

            self._lingering[uid] = clock.call_at(clock.now() + self._linger_seconds, due)

    def _may_leave(self, member: Member) -> bool:
        executor = self._executor
        if member.lane is None or member.is_changing_hands or not executor.is_known(member):
            return False
        if member.ends:
            return False  # While ends are written, only the assignment shows that the runner has their outcomes.
        return not executor.ledger(member.pool).is_used(member.subject.uid)

    def _leave(self, member: Member) -> None:
        self._executor.ledger(member.pool).open(member.subject.uid, Opened.CLOSED)
        self.acknowledge_rest(member)
        self._executor.hand_over(member, HandOver(member.subject, member.lane, None))
