"""The number of instances, by the use of their CPUs."""

from __future__ import annotations

import pytest

from rota.api.workload import PlacementScale, ScaleMetric
from rota.client import Key
from rota.control.workloads.scaling import DOWN_SECONDS, Measured, PlacementAutoscaler, needed

KEY = Key("default", "web")
SCALE = PlacementScale(min=1, max=10, metric=ScaleMetric(cpu_percent=50))


@pytest.mark.parametrize(
    ("deployments", "wanted"),
    [
        ([Measured(4, 4, 50)], 4),
        ([Measured(4, 4, 55)], 4),
        ([Measured(4, 4, 45)], 4),
        ([Measured(4, 4, 100)], 8),
        ([Measured(4, 4, 57)], 5),
        ([Measured(4, 4, 25)], 2),
        ([Measured(4, 4, 0)], 0),
        ([Measured(2, 2, 100), Measured(2, 2, 50)], 6),
    ],
    ids=["met", "little more", "little less", "twice", "one more", "half", "idle", "two cells"],
)
def test_as_many_as_bring_the_average_to_the_target(deployments: list[Measured], wanted: int) -> None:
    assert needed(50, deployments) == wanted


def test_what_is_not_measured_counts_as_idle_when_there_should_be_more() -> None:
    """Instances that were just added do not answer yet: they must not be added once more."""
    assert needed(50, [Measured(4, 2, 100)]) == 4


def test_what_is_not_measured_counts_as_busy_when_there_should_be_fewer() -> None:
    assert needed(50, [Measured(4, 3, 10)]) == 2


@pytest.mark.parametrize(
    "deployments",
    [[Measured(4, 4, None)], [Measured(4, 1, 100)], [Measured(4, 1, 0)], [Measured(1, 1, 100), Measured(4, 4, None)]],
    ids=["no metric", "one of four busy", "one of four idle", "a cell is silent"],
)
def test_nothing_changes_where_less_than_half_was_measured(deployments: list[Measured]) -> None:
    assert needed(50, deployments) == sum(one.replicas for one in deployments)


def test_up_at_once_and_down_to_the_most_of_the_last_minute() -> None:
    scaling = PlacementAutoscaler()

    def decide(replicas: int, percent: int, now: float) -> int:
        return scaling.decide(KEY, "eu", "ams", SCALE, [Measured(replicas, replicas, percent)], now).replicas

    assert decide(1, 50, 0) == 1
    assert decide(1, 100, 15) == 2
    assert decide(2, 100, 30) == 4
    assert decide(4, 10, 45) == 4
    assert decide(4, 10, 45 + DOWN_SECONDS - 1) == 4
    assert decide(4, 10, 45 + 2 * DOWN_SECONDS) == 1


def test_when_fewer_will_do_it_says_when_to_look_again() -> None:
    scaling = PlacementAutoscaler()
    scaling.decide(KEY, "eu", "ams", SCALE, [Measured(4, 4, 50)], 0)
    decision = scaling.decide(KEY, "eu", "ams", SCALE, [Measured(4, 4, 10)], 15)
    assert decision.replicas == 4 and decision.again_after is not None and 0 < decision.again_after <= 66


def test_the_bounds_hold_and_the_minimum_is_where_it_begins() -> None:
    scaling = PlacementAutoscaler()
    assert scaling.decide(KEY, "eu", "ams", SCALE, [], 0).replicas == 1
    assert scaling.decide(KEY, "eu", "ams", SCALE, [Measured(9, 9, 100)], 15).replicas == 10


def test_without_a_metric_it_is_the_minimum_whatever_is_there() -> None:
    scaling = PlacementAutoscaler()
    scaling.decide(KEY, "eu", "ams", SCALE, [Measured(9, 9, 100)], 0)
    assert scaling.decide(KEY, "eu", "ams", PlacementScale(min=2), [Measured(9, 9, 100)], 15) == (2, (), None)


def test_after_a_restart_what_is_there_was_needed() -> None:
    assert PlacementAutoscaler().decide(KEY, "eu", "ams", SCALE, [Measured(6, 6, 5)], 1000).replicas == 6


def test_a_workload_that_is_gone_leaves_nothing() -> None:
    scaling = PlacementAutoscaler()
    scaling.decide(KEY, "eu", "ams", SCALE, [Measured(6, 6, 5)], 0)
    scaling.decide(Key("default", "other"), "eu", "ams", SCALE, [Measured(6, 6, 5)], 0)
    scaling.forget(KEY)
    assert [one[0].name for one in scaling._history] == ["other"]
