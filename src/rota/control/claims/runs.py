"""The runs of claimed instances: a claim is for the run that it was bound to, and for no later one."""

from __future__ import annotations

from collections.abc import Callable

from rota.api import Instance
from rota.control.claims import lifecycle
from rota.control.holds.members import Member
from rota.control.holds.options import has_runner, is_restarted_for, options_of, run_of


class Runs:
    """Follows the run of each claimed instance by runners' reports, ends of containers, and counts of commands."""

    def __init__(self, entries: Callable[[Instance], int] | None) -> None:
        """`entries` returns a number that changes with each command that is run in an instance.

        If it is None, any holder may have run something.
        """
        self._entries = entries
        self._entries_before: dict[str, int] = {}
        """`entries` of the instance before each claim was bound, by the claim's uid."""
        self._accepted: dict[str, str] = {}
        """The claim that the runner of each instance has reported as holder, by the instance's uid."""

    def begin(self, uid: str, instance: Instance) -> None:
        """Note the state of an instance before a claim is bound to it."""
        if self._entries is not None:
            self._entries_before[uid] = self._entries(instance)

    def observe(self, member: Member, id_: str) -> None:
        """Note if the runner of an instance reports its claim as holder."""
        if member.report is not None and member.report.holder == id_:
            self._accepted[member.subject.uid] = id_

    def forget_claim(self, uid: str) -> None:
        self._entries_before.pop(uid, None)

    def forget_instance(self, uid: str) -> None:
        self._accepted.pop(uid, None)

    def is_another(self, member: Member) -> bool:
        """Report whether the claimed run has ended, or another one has replaced it."""
        instance, report = member.instance, member.report
        assigned = instance.spec.assignment
        known = instance.status.assignment if instance.status is not None else None
        if assigned is None:
            return False
        if known is not None and known.id == assigned.id and known.phase == "Done":
            return True
        if is_restarted_for(instance):
            return False  # The claimed run is the one that is started with the claim's options.
        if member.has_runner and report is not None and self._accepted.get(member.subject.uid) == assigned.id:
            # With another run, the processes of the holder are gone, even if the runner is the same.
            return report.holder != assigned.id or options_of(instance).run != run_of(instance)
        return options_of(instance).run != run_of(instance)

    def is_forgotten(self, member: Member, id_: str) -> bool:
        """Report whether a runner has lost a hold that it had accepted: it is idle, and was not sent the end."""
        report = member.report
        is_accepted = self._accepted.get(member.subject.uid) == id_
        return is_accepted and report is not None and report.phase == "Idle" and not report.holder

    def is_untouched(self, member: Member, id_: str) -> bool:
        """Report whether a holder certainly never reached what runs in an instance, so that nothing of it is left."""
        instance = member.instance
        if has_runner(instance) or lifecycle.can_be_touched(instance) or self.is_another(member):
            return False
        return self._entries is not None and self._entries_before.get(id_) == self._entries(instance)

    def can_be_given_back(self, member: Member, id_: str) -> bool:
        """Report whether an instance can be taken back: it has no runner, or one that knows the hold and resets it."""
        if not member.has_runner or (member.report is not None and member.report.holder == id_):
            return True
        # The runner has ended the hold already, or has lost it with its run, after which it began as new.
        known = member.instance.status.assignment if member.instance.status is not None else None
        return (known is not None and known.id == id_ and known.phase == "Done") or self.is_forgotten(member, id_)
