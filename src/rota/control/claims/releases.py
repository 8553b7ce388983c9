"""The ends of claims' holds: one hand-over frees the instance and ends the claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from rota.api import Claim, Instance
from rota.api.instance import Assignment
from rota.control.claims import lifecycle
from rota.control.claims.runs import Runs
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver, Written
from rota.control.holds.members import Member
from rota.control.instances.states import USED
from rota.registry import ApiError

NOT_FOUND = 404


class Releases:
    """Takes instances back from claims."""

    def __init__(
        self, executor: Executor, runs: Runs, on_ended: Callable[[str], None], drop: Callable[[str], None]
    ) -> None:
        """`on_ended` gets the uid of a claim whose hold ends, before the instance can be given to another.

        `drop` gets the uid when the end is written: the claim needs nothing more.
        """
        self._executor = executor
        self._runs = runs
        self._on_ended = on_ended
        self._drop = drop

    async def release(self, member: Member, ended: Claim) -> Claim | None:
        """Write the end of a claim and of its hold. Returns None if the instance is gone. Raises `ApiError`."""
        uid, ledger = ended.metadata.uid, self._executor.ledger(member.pool)
        ledger.ending(uid, frees=False)
        try:
            written = await self._unassign(member, uid, ended)
        except BaseException as error:
            ledger.held_again(uid)
            if isinstance(error, ApiError) and error.code == NOT_FOUND:
                return None
            raise
        return cast(Claim, written.ended or ended)

    def free(self, member: Member, assigned: Assignment) -> None:
        """Free an instance whose assignment names a claim that is over or gone."""
        ledger = self._executor.ledger(member.pool)
        for uid in ledger.holders_of(member.subject.uid):
            ledger.ended(uid)
        if self._runs.can_be_given_back(member, assigned.id) and not member.is_changing_hands:
            self._executor.start(self._free(member, assigned.id))

    async def _free(self, member: Member, id_: str) -> None:
        if member.is_changing_hands:
            return
        try:
            await self._unassign(member, id_, None)
        except ApiError as error:
            await self._executor.pause(error, f"{member.subject.name} could not be given back")
            self._executor.look_again(member)

    async def _unassign(self, member: Member, id_: str, ends: Claim | None) -> Written:
        """Remove the assignment of an instance. If `ends` is given, end that claim in the same hand-over."""
        is_forgotten = self._runs.is_forgotten(member, id_)
        is_untouched = self._runs.is_untouched(member, id_)

        async def finish(written: Written) -> Written:
            if is_untouched:
                # From here on the holder cannot begin anything more in it.
                self._on_ended(id_)
                if not self._runs.is_untouched(member, id_):
                    written = written._replace(instance=await self._mark(member, id_))
            self._runs.forget_instance(member.subject.uid)
            self._drop(id_)
            return written

        marks = lifecycle.marks_at_end(member.instance, is_lost=is_forgotten, is_untouched=is_untouched)
        return await self._executor.end(member, HandOver(member.subject, id_, None, ends, marks=marks), finish)

    async def _mark(self, member: Member, id_: str) -> Instance:
        """Mark an instance as used, since its holder reached it while the end of the hold was written."""
        subject = member.subject
        mark = {"metadata": {"uid": subject.uid, "annotations": {USED: id_}}}
        while True:
            try:
                written: Instance = await self._executor.client.patch(
                    Instance, subject.name, mark, namespace=subject.namespace, type="merge"
                )
                return written
            except ApiError as error:
                if error.code == NOT_FOUND:
                    raise
                await self._executor.pause(error, f"{member.subject.name} could not be marked")
