"""The runs of claimed instances: a holder has what ran when it claimed, and nothing that was started after that."""

from __future__ import annotations

from collections.abc import Callable

from rota.api import Instance
from rota.control.claims import lifecycle
from rota.control.holds.members import Member
from rota.control.holds.options import has_runner, is_restarted_for, options_of, run_of


class Runs:
    """Tells by runners' reports, exits and counted commands what became of a run."""

    def __init__(self, entries: Callable[[Instance], int] | None) -> None:
        """`entries` returns a number that changes with each command that is run in an instance.

        None: it is not known whether a holder got there.
        """
        self._entries = entries
        self._entries_before: dict[str, int] = {}
        """By the uid of a claim that was bound here, the number of its instance before that."""
        self._accepted: dict[str, str] = {}
        """By the uid of an instance, the claim that its runner has reported to hold it."""

    def begin(self, uid: str, instance: Instance) -> None:
        """Note an instance as it is before a claim is bound to it."""
        if self._entries is not None:
            self._entries_before[uid] = self._entries(instance)

    def observe(self, member: Member, id_: str) -> None:
        """Note whether the runner of an instance reports the claim that the instance is assigned to."""
        if member.report is not None and member.report.holder == id_:
            self._accepted[member.subject.uid] = id_

    def forget_claim(self, uid: str) -> None:
        self._entries_before.pop(uid, None)

    def forget_instance(self, uid: str) -> None:
        self._accepted.pop(uid, None)

    def is_another(self, member: Member) -> bool:
        """Report whether what was claimed has ended in between, and was started again."""
        instance, report = member.instance, member.report
        assigned = instance.spec.assignment
        known = instance.status.assignment if instance.status is not None else None
        if assigned is None:
            return False
        if known is not None and known.id == assigned.id and known.phase == "Done":
            return True
        if is_restarted_for(instance):
            return False  # It is what it is started anew for that was claimed.
        if member.has_runner and report is not None and self._accepted.get(member.subject.uid) == assigned.id:
            # What was in it is gone, even if the runner is the same.
            return report.holder != assigned.id or options_of(instance).run != run_of(instance)
        return options_of(instance).run != run_of(instance)

    def is_forgotten(self, member: Member, id_: str) -> bool:
        """Report whether a runner that had it for somebody has it for nobody now, without having been sent that."""
        report = member.report
        is_accepted = self._accepted.get(member.subject.uid) == id_
        return is_accepted and report is not None and report.phase == "Idle" and not report.holder

    def is_untouched(self, member: Member, id_: str) -> bool:
        """Report whether it is certain that a holder never got to what runs there, so that nothing of it is left."""
        instance = member.instance
        if has_runner(instance) or lifecycle.can_be_touched(instance) or self.is_another(member):
            return False
        return self._entries is not None and self._entries_before.get(id_) == self._entries(instance)

    def can_be_given_back(self, member: Member, id_: str) -> bool:
        """Report whether an instance can be taken from its holder: its runner, which resets it, knows of the hold."""
        if not member.has_runner or (member.report is not None and member.report.holder == id_):
            return True
        # Or it was, and what has it now is another run, which began as new.
        known = member.instance.status.assignment if member.instance.status is not None else None
        return (known is not None and known.id == id_ and known.phase == "Done") or self.is_forgotten(member, id_)
