"""Which instance: what is needed, what is preferred, and which has been free the longest."""

from __future__ import annotations

import pytest

from rota.pools import Queue
from tests.pools.making import bound, hold, offer, pair, pairs, request


@pytest.mark.parametrize(
    ("needs", "provides", "fits"),
    [
        ("", "", True),
        ("", "gpu", True),
        ("gpu", "", False),
        ("gpu", "gpu", True),
        ("gpu", "gpu big", True),
        ("gpu big", "gpu", False),
        ("gpu big", "big gpu", True),
        ("gpu", "fpga", False),
    ],
)
def test_an_instance_has_to_provide_all_that_is_needed(needs: str, provides: str, fits: bool) -> None:
    queue = Queue()
    queue.offer(offer("i1", provides))
    assert (queue.add(request("r1", needs=needs)) is not None) == fits
    queue = Queue()
    queue.add(request("r1", needs=needs))
    assert (queue.offer(offer("i1", provides)) is not None) == fits


def test_needs_that_nothing_satisfies_block_nobody() -> None:
    queue = Queue()
    for number in range(100):
        queue.add(request(f"r{number}", priority=5, needs=f"image-{number}"))
    queue.add(request("r100"))
    assert pair(queue.offer(offer("i1", "image-none"))) == ("r100", "i1")
    assert queue.view.depth == 100


def test_those_with_special_needs_get_no_preference_by_them() -> None:
    queue = Queue()
    queue.add(request("r1"))
    queue.add(request("r2", needs="gpu"))
    assert pair(queue.offer(offer("i1", "gpu"))) == ("r1", "i1")
    assert pair(queue.offer(offer("i2", "gpu"))) == ("r2", "i2")


def test_the_order_holds_across_different_needs() -> None:
    queue = Queue()
    needs = ["gpu", "", "big", "gpu big", "", "gpu"]
    for number, each in enumerate(needs):
        queue.add(request(f"r{number}", f"holder-{number % 2}", needs=each))
    got = [bound(queue, queue.offer(offer(f"i{number}", "gpu big"))).request.id for number in range(6)]
    assert got == ["r0", "r1", "r2", "r3", "r4", "r5"]


def test_what_a_holder_has_counts_for_all_its_needs() -> None:
    queue = Queue()
    queue.add(request("r1", "a", needs="gpu"))
    queue.add(request("r2", "a"))
    queue.add(request("r3", "b"))
    assert pair(queue.offer(offer("i1", "gpu"))) == ("r1", "i1")
    assert pair(queue.offer(offer("i2"))) == ("r3", "i2")


def test_the_instance_that_has_been_free_the_longest_goes_first() -> None:
    queue = Queue()
    for id_, since in (("i1", 30.0), ("i2", 10.0), ("i3", 20.0)):
        queue.offer(offer(id_, since=since))
    assert [pair(queue.add(request(f"r{number}"))) for number in range(3)] == [("r0", "i2"), ("r1", "i3"), ("r2", "i1")]


def test_among_those_free_since_the_same_time_the_first_offered_goes_first() -> None:
    queue = Queue()
    for id_ in ("i2", "i3", "i1"):
        queue.offer(offer(id_))
    assert [pair(queue.add(request(f"r{number}"))) for number in range(3)] == [("r0", "i2"), ("r1", "i3"), ("r2", "i1")]


def test_an_instance_that_provides_more_takes_its_turn_with_the_others() -> None:
    queue = Queue()
    queue.offer(offer("i1", "gpu", since=1.0))
    queue.offer(offer("i2", since=2.0))
    queue.offer(offer("i3", "big", since=0.0))
    assert [pair(queue.add(request(f"r{number}"))) for number in range(3)] == [("r0", "i3"), ("r1", "i1"), ("r2", "i2")]


def test_an_affinity_picks_the_instance_that_had_the_key_last() -> None:
    queue = Queue()
    queue.offer(offer("i1", last="main"))
    queue.offer(offer("i2", "gpu", last="feature", since=2.0))
    queue.offer(offer("i3", last="feature", since=1.0))
    assert pair(queue.add(request("r1", prefers="feature"))) == ("r1", "i3")
    assert pair(queue.add(request("r2", prefers="feature"))) == ("r2", "i2")
    assert pair(queue.add(request("r3", prefers="feature"))) == ("r3", "i1")


def test_an_affinity_never_makes_a_request_wait() -> None:
    queue = Queue()
    hold(queue, request("r1"), "i1")
    queue.offer(offer("i2", last="other"))
    assert pair(queue.add(request("r2", prefers="main"))) == ("r2", "i2")


def test_an_affinity_never_makes_a_request_overtake() -> None:
    queue = Queue()
    queue.add(request("r1"))
    queue.add(request("r2", prefers="main"))
    assert pair(queue.offer(offer("i1", last="main"))) == ("r1", "i1")


def test_an_affinity_does_not_outweigh_a_need() -> None:
    queue = Queue()
    queue.offer(offer("i1", last="main"))
    queue.offer(offer("i2", "gpu"))
    assert pair(queue.add(request("r1", needs="gpu", prefers="main"))) == ("r1", "i2")


def test_after_a_restart_affinities_are_served_in_the_order_of_the_requests() -> None:
    queue = Queue()
    found = queue.restore(
        waiting=[request("r2", prefers="main"), request("r1", prefers="main"), request("r3")],
        free=[offer("i1"), offer("i2", last="main", since=5.0)],
    )
    assert pairs(found.bindings) == [("r1", "i2"), ("r2", "i1")]


def test_a_free_instance_that_has_changed_is_what_it_is_now() -> None:
    queue = Queue()
    queue.offer(offer("i1", last="main"))
    queue.add(request("r1", needs="gpu"))
    assert pair(queue.offer(offer("i1", "gpu"))) == ("r1", "i1")
    assert queue.view.free == 0


def test_an_offer_that_is_repeated_changes_nothing() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    queue.offer(offer("i2"))
    assert queue.offer(offer("i1")) is None
    assert queue.view.free == 2
    assert pair(queue.add(request("r1"))) == ("r1", "i1")


@pytest.mark.parametrize("provides", ["", "gpu"])
def test_what_is_withdrawn_is_not_handed_out(provides: str) -> None:
    queue = Queue()
    queue.offer(offer("i1", provides, last="main"))
    queue.withdraw("i1")
    queue.withdraw("i1")
    queue.withdraw("unknown")
    assert queue.add(request("r1", needs=provides, prefers="main")) is None
