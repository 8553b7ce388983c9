"""The lane of a pool: workers that are given to its tasks, which then follow each other on them.

One write of the Instance gives it, and one takes it back; between the two no task needs a write of the Instance.
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
"""A worker without a task stays given to the tasks of its pool for so long: the next one often comes at once."""


class Lane:
    """Gives workers to the tasks of their pools, and takes them back."""

    def __init__(
        self,
        executor: Executor,
        runners: Runners,
        is_awaited: Callable[[str], bool],
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """`is_awaited` returns whether the outcome of an attempt is still to be written."""
        self._executor = executor
        self._runners = runners
        self._is_awaited = is_awaited
        self._linger_seconds = linger_seconds
        self._lingering: dict[str, Timer] = {}

    def close(self) -> None:
        for timer in self._lingering.values():
            timer.cancel()

    def forget(self, instance: str) -> None:
        """An instance is gone, by its uid."""
        timer = self._lingering.pop(instance, None)
        if timer is not None:
            timer.cancel()

    # Giving.

    def enter(self, member: Member, begins: Task) -> HandOver:
        """Return the write that gives a worker to the tasks of its pool, and to the first of them, that task as begun.

        Where the backend is not atomic, that the task runs is written next.
        """
        meta, now = begins.metadata, time_of(self._executor.clock.time())
        lane = Assignment(id=new_uid(), kind="Task", name=meta.name, uid=meta.uid, since=now)
        return HandOver(member.subject, None, lane, begins=begins)

    def rename(self, member: Member, name: str, uid: str) -> None:
        """Have an instance name the task that runs on it now, if it names one that it was given for earlier."""
        assigned = member.assignment
        if assigned is not None and assigned.name != name and not member.is_changing_hands:
            renamed = msgspec.structs.replace(assigned, name=name, uid=uid)
            self._executor.hand_over(member, HandOver(member.subject, assigned.id, renamed))

    # Taking back.

    def acknowledge_rest(self, member: Member) -> None:
        """Have the runner of a worker that no task uses forget the outcomes that nobody waits for."""
        for outcome in self._runners.outcomes(member.subject):
            if not self._is_awaited(outcome.id):
                self._runners.send(member.subject, Acknowledge(outcome.id))

    def leave_if_idle(self, member: Member | None) -> None:
        """Take a worker from the tasks of its pool when none of them has been on it for a moment."""
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
            return False  # Until they are written, only this tells that its runner has them.
        return not executor.ledger(member.pool).is_used(member.subject.uid)

    def _leave(self, member: Member) -> None:
        self._executor.ledger(member.pool).open(member.subject.uid, Opened.CLOSED)
        self.acknowledge_rest(member)
        self._executor.hand_over(member, HandOver(member.subject, member.lane, None))
