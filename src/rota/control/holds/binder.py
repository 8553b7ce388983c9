"""The beginning of holds: each binding that a ledger has decided is written, or the request is tried again.

A binding becomes a hand-over when it is written, by the objects as they are then. The ledger gets the result:

    written                     `bound`: the request holds the instance, unless it was cancelled meanwhile
    a race (404, 409, 422)      `lost`: another instance is tried at once; this one is read again after a moment
    the request is at fault     `refused`: the request is dropped, and its caller gets the error
    the server is at fault      `lost`, after a pause
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from rota.control.holds.handover import HandOver, Result, Written
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.writes import Writes
from rota.engine.clock import sleep
from rota.pools import Binding
from rota.registry import ApiError

if TYPE_CHECKING:
    from rota.control.holds.executor import Executor, Holders

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.02
"""Pause after a lost race. The winning write is known by then."""
RETRY_SECONDS = 1.0
"""Pause after an error of the server that no object caused."""
LOST_RACE = frozenset((404, 409, 422))
"""Status codes of a write that was refused because the instance is not in the expected state."""
STATUS_RACE = LOST_RACE - {422}
"""Status codes of a status write that was refused because its object has changed. Not 422: an invalid status."""


Finish = Callable[[Written], Awaitable[Written]]


class Binder:
    """Writes bindings and other hand-overs, one at a time for each instance.

    The precondition of a second one would refuse it, and its request would try again a moment later. So what is bound
    to an instance that is changing hands is written after that: several tasks enter a lane by one write.
    """

    def __init__(self, executor: Executor, writes: Writes) -> None:
        self._executor = executor
        self._writes = writes
        self._waiting: dict[str, list[tuple[PoolKey, Binding]]] = {}
        """Bindings that wait until another hand-over of their instance is written, by the instance's uid."""

    def bind(self, pool: PoolKey, binding: Binding) -> None:
        """Write a binding with the other writes of this iteration of the event loop."""
        self._writes.add(partial(self._begin, pool, binding), partial(self._receive, pool, binding))

    def hand_over(self, member: Member, handover: HandOver) -> None:
        """Write a hand-over without a binding. Other hand-overs of the instance wait until it is written."""
        member.is_changing_hands = True

        def receive(_: HandOver, result: Result) -> None:
            if isinstance(result, Written):
                self._changed_hands(member, result)
            else:
                seconds = self._pause_after(result, handover, f"{member.subject.name} could not change hands")
                self._after(seconds, partial(self._not_changed_hands, member.subject.uid))

        self._writes.add(lambda: handover, receive)

    async def end(self, member: Member, handover: HandOver, finish: Finish) -> Written:
        """Write a hand-over that ends a hold, and finish it before anybody else can have the instance.

        Returns what `finish` made of it. Raises `ApiError`. Cancelled in time, it is not written.
        """
        member.is_changing_hands = True
        try:
            written = await finish(await self._writes.write(handover))
        except BaseException:
            # Its watch events were ignored meanwhile, for example that its claim is over.
            self._not_changed_hands(member.subject.uid)
            raise
        self._changed_hands(member, written)
        return written

    def _begin(self, pool: PoolKey, binding: Binding) -> HandOver | None:
        member = self._executor.members.get(binding.instance)
        stored = self._holders(binding).creation_under_way(binding.request.id)
        if stored is not None:
            stored.add_done_callback(lambda _: self.bind(pool, binding))
            return None
        if member is not None and member.is_changing_hands:
            self._waiting.setdefault(binding.instance, []).append((pool, binding))
            return None
        try:
            handover = self._holders(binding).begin(member, binding) if member is not None else None
        except ApiError as error:
            self._refuse(pool, binding, error)
            return None
        except Exception as error:
            log.exception("an instance could not be given to a request")
            message = f"it could not be given an instance: {error}"
            self._refuse(pool, binding, ApiError(500, "InternalError", message))
            return None
        if handover is None:
            self._lose(pool, binding)
        elif member is not None and handover.subject is not None:
            member.is_changing_hands = True
        return handover

    def _receive(self, pool: PoolKey, binding: Binding, handover: HandOver, result: Result) -> None:
        if isinstance(result, Written):
            self._written(pool, binding, handover, result)
        elif self._holders(binding).is_at_fault(handover, result):
            self._refuse(pool, binding, result)
            self._not_changed_hands(binding.instance)
        else:
            seconds = self._pause_after(result, handover, f"a {binding.request.kind} could not be given an instance")
            is_taken = handover.subject is not None
            self._after(seconds, partial(self._lose, pool, binding, result, instance_taken=is_taken))

    def _written(self, pool: PoolKey, binding: Binding, handover: HandOver, written: Written) -> None:
        holders, member = self._holders(binding), self._executor.members.get(binding.instance)
        if written.begun is None and not holders.by_instance:
            # The backend is not atomic: the status of the task is written next.
            self.bind(pool, binding)
        else:
            if member is not None and written.instance is not None:
                member.learn(written.instance)
            is_held = self._executor.ledger(pool).bound(binding)
            holders.begun(binding, handover, written, member if is_held else None)
            self._executor.carry_out(pool)
        if member is not None and written.instance is not None:
            self._changed_hands(member, written)

    def _lose(
        self, pool: PoolKey, binding: Binding, error: ApiError | None = None, *, instance_taken: bool = True
    ) -> None:
        """Put a request back into the queue, at its place."""
        self._executor.ledger(pool).lost(binding, instance_taken=instance_taken)
        self._executor.carry_out(pool)
        self._holders(binding).not_begun(binding, error)
        if instance_taken:
            self._not_changed_hands(binding.instance)

    def _refuse(self, pool: PoolKey, binding: Binding, error: ApiError) -> None:
        """Drop a request. Its instance stays as free as it was."""
        self._holders(binding).refused(binding.request, error)
        self._executor.ledger(pool).refused(binding)
        self._executor.carry_out(pool)

    # Instances that change hands.

    def _changed_hands(self, member: Member, written: Written) -> None:
        assert written.instance is not None
        member.is_changing_hands = False
        member.learn(written.instance)
        for pool, binding in self._waiting.pop(member.subject.uid, ()):
            self.bind(pool, binding)
        self._executor.update(member)

    def _not_changed_hands(self, instance: str) -> None:
        """Read an instance again whose hand-over failed. Bindings that waited for it try other instances."""
        member = self._executor.members.get(instance)
        if member is not None:
            member.is_changing_hands = False
            self._executor.look_again(member)
        for pool, binding in self._waiting.pop(instance, ()):
            self._lose(pool, binding)

    # Tries.

    def _pause_after(self, error: ApiError, handover: HandOver, what: str) -> float:
        """Return the seconds before a refused write is tried again."""
        changes_hands = handover.subject is not None
        if error.code not in (LOST_RACE if changes_hands else STATUS_RACE):
            log.warning("%s: %s", what, error)
            return RETRY_SECONDS
        is_current = self._executor.client.in_process or changes_hands
        return 0.0 if is_current else LOOK_AGAIN_SECONDS

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await sleep(self._executor.clock, seconds)
            act()

        if seconds:
            self._executor.start(wait())
        else:
            act()

    def _holders(self, binding: Binding) -> Holders:
        return self._executor.holders(binding.request)
