"""The autoscaler of a pool, which takes news between two evaluations."""

from __future__ import annotations

from rota.api import Instance, ObjectMeta, WorkerPool
from rota.api.pool import PoolScale, WorkerPoolSpec
from rota.control.scaling import Autoscaler
from tests.control.instances.making import CRASHING, STARTING, TEMPLATE, an_instance, said, several

SCALE = PoolScale(min=0, max=10, target_idle=0, scale_down_seconds=100)
POOL = WorkerPool(metadata=ObjectMeta(name="agents", uid="pool-uid"), spec=WorkerPoolSpec(template=TEMPLATE))


def replicas(autoscaler: Autoscaler, own: list[Instance], waiting: int | None = 0, now: float = 0.0) -> int:
    return autoscaler.evaluate(POOL, SCALE, own, waiting, now).replicas


def an_autoscaler() -> Autoscaler:
    return Autoscaler(POOL, SCALE)


def test_those_that_come_up_are_not_made_twice() -> None:
    assert replicas(an_autoscaler(), several(3, conditions=STARTING), waiting=3) == 3


def test_a_hold_that_came_and_went_between_two_looks_protects_its_instance() -> None:
    autoscaler, idle = an_autoscaler(), several(2)
    replicas(autoscaler, idle)
    for instance, is_held in ((0, True), (1, True), (0, False), (1, False)):
        autoscaler.note_instance(an_instance(instance, held=is_held), f"uid-{instance}")
    assert replicas(autoscaler, idle, now=90.0) == 2
    assert replicas(autoscaler, idle, now=150.0) == 2
    assert replicas(autoscaler, idle, now=200.0) == 0


def test_more_that_wait_than_there_are_instances_for_outgrow_it() -> None:
    autoscaler = an_autoscaler()
    replicas(autoscaler, several(1, held=True))
    assert not autoscaler.is_outgrown
    autoscaler.note_waiting(1)
    assert autoscaler.is_outgrown
    autoscaler.note_waiting(0)
    assert not autoscaler.is_outgrown


def test_an_instance_that_is_gone_is_held_no_more() -> None:
    autoscaler = an_autoscaler()
    replicas(autoscaler, several(1, held=True))
    autoscaler.note_instance(None, an_instance(0).metadata.uid)
    assert autoscaler.level == 0


def test_one_at_its_greatest_size_is_not_outgrown_but_limited() -> None:
    autoscaler = an_autoscaler()
    replicas(autoscaler, several(10, held=True), waiting=5)
    assert not autoscaler.is_outgrown and autoscaler.is_limited


def test_where_nobody_knows_who_waits_nothing_is_taken_away() -> None:
    autoscaler = an_autoscaler()
    assert [replicas(autoscaler, several(4), None, now) for now in (0.0, 1000.0)] == [4, 4]


def test_what_cannot_start_gets_no_stand_in() -> None:
    refused = (said("Programmed", "False", "ImageUnavailable"),)
    assert replicas(an_autoscaler(), [an_instance(0, held=True), an_instance(1, conditions=CRASHING)], 1) == 3
    assert replicas(an_autoscaler(), [an_instance(0, held=True), an_instance(1, conditions=refused)], 1) == 2
