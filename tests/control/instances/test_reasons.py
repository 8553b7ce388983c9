"""The one table of reasons."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.api import Condition, Instance
from rota.control.instances import blocker, blockers_of, is_ready, ready_condition, rolled_up
from rota.control.instances.reasons import TABLE, rank
from tests.control.instances.making import CRASHING, READY, STARTING, an_instance, said

EXCEEDED = said("QuotaGranted", "False", "QuotaExceeded", "cpu: 2 short")
GATED = said("Programmed", "False", "Provisioning")
NO_IMAGE = said("Available", "False", "ImageUnavailable", "no such image: x")


def test_an_instance_with_nothing_in_its_way_is_ready() -> None:
    assert ready_condition(an_instance(0)) == Condition(type="Ready", status="True", reason="Ready")


@pytest.mark.parametrize(
    ("instance", "reason", "message"),
    [
        (an_instance(0, conditions=(EXCEEDED, NO_IMAGE), gates=("Quota", "Other")), "QuotaExceeded", "cpu: 2 short"),
        (an_instance(0, conditions=(NO_IMAGE,), gates=("Other",)), "SchedulingGated", "it waits for Other"),
        (an_instance(0, conditions=(GATED, NO_IMAGE)), "ImageUnavailable", "no such image: x"),
        (an_instance(0, conditions=(GATED,)), "Provisioning", "the runtime has not taken it on yet"),
        (an_instance(0, conditions=CRASHING), "InstanceCrashing", "exited with code 3"),
        (an_instance(0, conditions=STARTING), "Starting", "it is being started"),
        (an_instance(0, conditions=(said("Programmed"),)), "Starting", "it is being started"),
        (an_instance(0, conditions=()), "Provisioning", "the runtime has not taken it on yet"),
        (an_instance(0, leaving=True), "Stopping", "it is being stopped"),
    ],
)
def test_the_reason_is_the_most_specific_blocker_with_its_own_message(
    instance: Instance, reason: str, message: str
) -> None:
    ready = ready_condition(instance)
    assert (ready.status, ready.reason, ready.message) == ("False", reason, message)


def test_an_instance_without_a_status_is_not_ready() -> None:
    instance = replace(an_instance(0), status=None)
    assert ready_condition(instance).reason == "Provisioning"
    assert not is_ready(instance)


def test_waiting_for_a_quota_of_which_nothing_is_said_is_shown_as_that() -> None:
    assert ready_condition(an_instance(0, conditions=(), gates=("Quota",))).reason == "QuotaNotGranted"


def test_a_gate_that_is_left_holds_even_when_the_quota_is_granted() -> None:
    assert ready_condition(an_instance(0, gates=("Quota",))).status == "False"
    assert ready_condition(an_instance(0, gates=("Other",))).reason == "SchedulingGated"


def test_a_sandbox_that_was_asked_for_and_is_not_there_is_a_blocker() -> None:
    bare = said("Isolated", "False", "NoBubblewrap", "bwrap is not installed")
    assert ready_condition(an_instance(0, conditions=(*READY, bare))).status == "True"
    asked = ready_condition(an_instance(0, conditions=(*READY, bare), isolation="sandbox"))
    assert (asked.reason, asked.message) == ("NotIsolated", "bwrap is not installed")


def test_a_providers_own_reason_ranks_before_what_is_merely_under_way() -> None:
    assert rank("ConfigurationError") < rank("OutOfSockets") < rank("Provisioning")
    own = said("Available", "False", "OutOfSockets", "none left")
    assert ready_condition(an_instance(0, conditions=(GATED, own))).reason == "OutOfSockets"


def test_a_quotas_own_reason_ranks_with_the_quotas() -> None:
    own = said("QuotaGranted", "False", "BudgetFrozen", "until Monday")
    assert ready_condition(an_instance(0, conditions=(own, NO_IMAGE), gates=("Quota",))).reason == "BudgetFrozen"


def test_each_reason_is_in_the_table_once_and_the_bands_follow_each_other() -> None:
    assert len({reason.name for reason in TABLE}) == len(TABLE)
    bands = list(dict.fromkeys(reason.band for reason in TABLE))
    assert bands == ["quota", "gate", "failure", "progress"]


CONDITIONS = st.lists(
    st.builds(
        Condition,
        type=st.sampled_from(["QuotaGranted", "Programmed", "Available", "Isolated", "ResolvedRefs", "Ready"]),
        status=st.sampled_from(["True", "True", "True", "False", "Unknown"]),
        reason=st.sampled_from(["", "Provisioning", "Other"]),
    ),
    unique_by=lambda one: one.type,
)


@settings(deadline=None)
@given(CONDITIONS, st.booleans(), st.sampled_from([(), (), ("Quota",), ("Other",)]), st.booleans())
def test_being_ready_is_having_no_blocker(
    conditions: list[Condition], leaving: bool, gates: tuple[str, ...], sandboxed: bool
) -> None:
    isolation = "sandbox" if sandboxed else None
    instance = an_instance(0, conditions=tuple(conditions), leaving=leaving, gates=gates, isolation=isolation)
    ready = ready_condition(instance)
    assert is_ready(instance) == (ready.status == "True")
    assert ready.reason and (ready.message or ready.reason in ("Ready", "Other"))


def rolled(instances: list[Instance], wanted: int, needed: int | None = None) -> Condition:
    ready = sum(is_ready(one) for one in instances)
    blockers = blockers_of(instances, missing=wanted - len(instances))
    return rolled_up("ReplicasReady", ready=ready, wanted=wanted, blockers=blockers, needed=needed)


def test_none_of_some_is_not_ready() -> None:
    none = rolled([], 3)
    assert (none.status, none.reason) == ("False", "NotCreated")
    assert rolled([], 3, needed=0).status == "False"


def test_none_of_none_is_ready() -> None:
    assert rolled([], 0).status == "True"


def test_all_of_some_are_ready() -> None:
    assert (rolled([an_instance(0)], 1).status, rolled([an_instance(0)], 1).reason) == ("True", "Ready")


def test_as_many_as_are_needed_are_enough() -> None:
    some = [an_instance(0), an_instance(1, conditions=CRASHING)]
    assert rolled(some, 2, needed=1).status == "True"
    assert rolled(some, 2).status == "False"


def test_the_worst_blocker_is_told_with_how_many_it_affects_and_the_first_ones_message() -> None:
    some = [
        an_instance(0, conditions=STARTING),
        an_instance(4, conditions=CRASHING),
        an_instance(2, conditions=CRASHING),
        an_instance(3),
    ]
    told = rolled(some, 6)
    assert (told.status, told.reason) == ("False", "InstanceCrashing")
    assert told.message == "1 of 6 ready; 2 InstanceCrashing: agents-2: exited with code 3"


def test_a_level_further_up_tells_the_same_reason() -> None:
    below = rolled([an_instance(0, conditions=(EXCEEDED,))], 1)
    above = [blocker("Starting", affected=4), blocker(below.reason, below.message, who="web-ams", affected=1)]
    told = rolled_up("Available", ready=5, wanted=10, blockers=above)
    assert told.reason == "QuotaExceeded"
    assert told.message.startswith("5 of 10 ready; 1 QuotaExceeded: web-ams: 0 of 1 ready; ")
