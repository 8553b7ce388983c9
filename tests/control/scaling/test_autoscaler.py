"""What is known of a scaled pool between two looks."""

from __future__ import annotations

from rota.api import Instance, ObjectMeta, WorkerPool
from rota.api.pool import PoolScale, WorkerPoolSpec
from rota.control.scaling import Book
from tests.control.instances.making import CRASHING, STARTING, TEMPLATE, an_instance, said, several

SCALE = PoolScale(min=0, max=10, target_idle=0, scale_down_seconds=100)
POOL = WorkerPool(metadata=ObjectMeta(name="agents", uid="pool-uid"), spec=WorkerPoolSpec(template=TEMPLATE))


def replicas(book: Book, own: list[Instance], waiting: int | None = 0, now: float = 0.0) -> int:
    return book.look(POOL, SCALE, own, waiting, now).replicas


def a_book() -> Book:
    return Book(POOL, SCALE)


def test_those_that_come_up_are_not_made_twice() -> None:
    assert replicas(a_book(), several(3, conditions=STARTING), waiting=3) == 3


def test_a_hold_that_came_and_went_between_two_looks_protects_its_instance() -> None:
    book, idle = a_book(), several(2)
    replicas(book, idle)
    for instance, is_held in ((0, True), (1, True), (0, False), (1, False)):
        book.seen(an_instance(instance, held=is_held), f"uid-{instance}")
    assert replicas(book, idle, now=90.0) == 2
    assert replicas(book, idle, now=150.0) == 2
    assert replicas(book, idle, now=200.0) == 0


def test_more_that_wait_than_there_are_instances_for_outgrow_it() -> None:
    book = a_book()
    replicas(book, several(1, held=True))
    assert not book.is_outgrown
    book.waits(1)
    assert book.is_outgrown
    book.waits(0)
    assert not book.is_outgrown


def test_an_instance_that_is_gone_is_held_no_more() -> None:
    book = a_book()
    replicas(book, several(1, held=True))
    book.seen(None, an_instance(0).metadata.uid)
    assert book.level == 0


def test_one_at_its_greatest_size_is_not_outgrown_but_limited() -> None:
    book = a_book()
    replicas(book, several(10, held=True), waiting=5)
    assert not book.is_outgrown and book.is_limited


def test_where_nobody_knows_who_waits_nothing_is_taken_away() -> None:
    book = a_book()
    assert [replicas(book, several(4), None, now) for now in (0.0, 1000.0)] == [4, 4]


def test_what_cannot_start_gets_no_stand_in() -> None:
    refused = (said("Programmed", "False", "ImageUnavailable"),)
    assert replicas(a_book(), [an_instance(0, held=True), an_instance(1, conditions=CRASHING)], 1) == 3
    assert replicas(a_book(), [an_instance(0, held=True), an_instance(1, conditions=refused)], 1) == 2
