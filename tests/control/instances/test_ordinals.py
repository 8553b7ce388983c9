"""The instances that stay where any ordinals will do."""

from __future__ import annotations

from rota.api import Instance
from rota.control.instances import plan
from tests.control.instances.making import CRASHING, NOW, OLD, STARTING, an_instance, in_short, several, wanting


def actions(replicas: int, instances: list[Instance], hash_: str = "new") -> list[str]:
    desired = wanting(replicas, hash_, pooled=True, sparse=True, drain_seconds=60.0)
    return in_short(plan(desired, instances, NOW))


def test_whoever_works_stays_whatever_the_ordinal() -> None:
    assert actions(2, [an_instance(0), an_instance(1, held=True), an_instance(2), an_instance(3, held=True)]) == [
        "delete 2",
        "delete 0",
    ]


def test_of_idle_ones_the_highest_go_first() -> None:
    assert actions(1, several(3)) == ["delete 2", "delete 1"]


def test_what_crashes_goes_before_what_starts_and_that_before_what_is_ready() -> None:
    instances = [an_instance(0, conditions=CRASHING), an_instance(1, conditions=STARTING), an_instance(2)]
    assert actions(2, instances) == ["delete 0"]
    assert actions(1, instances) == ["delete 1", "delete 0"]


def test_a_hole_is_filled_only_when_more_are_wanted() -> None:
    instances = [an_instance(1, held=True), an_instance(4)]
    assert actions(2, instances) == []
    assert actions(4, instances) == ["create 0", "create 2"]


def test_what_crashes_is_not_replaced_by_another_ordinal() -> None:
    assert actions(2, [an_instance(0, conditions=CRASHING), an_instance(1)]) == []


def test_one_that_is_leaving_is_waited_for_before_another_is_made() -> None:
    instances = [an_instance(0), an_instance(3, leaving=True)]
    assert actions(2, instances) == []
    assert actions(3, instances) == ["create 1"]


def test_only_when_all_work_is_the_holder_of_one_asked() -> None:
    assert actions(1, several(2, held=True)) == ["drain 1"]


def test_who_was_asked_already_goes_first() -> None:
    assert actions(1, [an_instance(0, held=True, drained_for=5), an_instance(1, held=True)]) == []


def test_one_that_was_asked_stays_when_another_falls_idle() -> None:
    assert actions(1, [an_instance(0), an_instance(1, held=True, drained_for=5)]) == ["undrain 1", "delete 0"]


def test_a_rollout_goes_on_with_holes() -> None:
    assert actions(2, [an_instance(1, OLD), an_instance(5, OLD)]) == ["delete 5"]
    assert actions(2, [an_instance(1, OLD), an_instance(5, OLD, leaving=True)]) == []
    assert actions(2, [an_instance(1, OLD)]) == ["create 0"]
