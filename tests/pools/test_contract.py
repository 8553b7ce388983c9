"""The contract of the package, a test a bullet."""

from __future__ import annotations

from rota.pools import Queue
from rota.pools.fit import IDLE_KINDS_MAX
from tests.pools.making import assert_no_trace, bound, hold, offer, pair, request, served


def test_nothing_waits_that_could_be_served() -> None:
    queue = Queue()
    assert queue.offer(offer("i1")) is None
    assert pair(queue.add(request("r1"))) == ("r1", "i1")
    assert queue.add(request("r2")) is None
    assert pair(queue.offer(offer("i2"))) == ("r2", "i2")
    assert (queue.view.depth, queue.view.free) == (0, 0)


def test_in_order() -> None:
    queue = Queue()
    hold(queue, request("r0", "has-one"), "i0")
    queue.add(request("r1", "has-one"))
    queue.add(request("r2", "has-none"))
    queue.add(request("r3", "has-none"))
    queue.add(request("r4", "has-one", priority=1))
    assert served(queue, 4) == ["r4", "r2", "r3", "r1"]


def test_none_blocks_another() -> None:
    queue = Queue()
    queue.add(request("r1", priority=9, needs="gpu"))
    queue.add(request("r2"))
    assert pair(queue.offer(offer("i1"))) == ("r2", "i1")
    assert pair(queue.offer(offer("i2", "gpu"))) == ("r1", "i2")


def test_never_twice() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    for _ in range(2):
        # In flight, then held.
        assert queue.add(request("r1")) is None
        assert queue.offer(offer("i1")) is None
        assert queue.view.free == queue.view.depth == 0
        assert queue.confirmed(binding)
    assert queue.view.bound == 1


def test_cancelled_at_any_instant() -> None:
    queue = Queue()
    queue.add(request("r1"))
    assert queue.cancel("r1") is None
    assert queue.offer(offer("i1")) is None

    in_flight = queue.add(request("r2"))
    assert in_flight is not None
    assert queue.cancel("r2") is None
    assert not queue.confirmed(in_flight)

    hold(queue, request("r3"), "i3")
    assert queue.cancel("r3") == "i3"
    assert_no_trace(queue)


def test_forgets_nothing() -> None:
    waiting = [request(f"r{number}", holder) for number, holder in enumerate("aaabbc")]
    held = [(request("h1", "a"), "i1"), (request("h2", "a"), "i2"), (request("h3", "c"), "i3")]
    queue, again = Queue(), Queue()
    queue.restore(bound=held, waiting=waiting)
    again.restore(bound=reversed(held), waiting=reversed(waiting))
    order = served(queue, 6)
    assert order == served(again, 6) == ["r3", "r4", "r5", "r0", "r1", "r2"]


def test_keeps_nothing() -> None:
    queue = Queue()
    for number in range(500):
        binding = hold(queue, request(f"r{number}", f"holder-{number}"), f"i{number}")
        queue.released(binding.instance)
        queue.add(request(f"w{number}", f"holder-{number}", needs=f"image-{number}"))
        queue.cancel(f"w{number}")
        queue.offer(offer(f"i{number}", f"image-{number}", last=f"key-{number}"))
        queue.withdraw(f"i{number}")
    assert_no_trace(queue)
    fit = queue._books.fit
    assert max(len(fit.demands), len(fit.supplies)) <= 2 * IDLE_KINDS_MAX


def test_kinds_that_are_gone_are_forgotten_by_those_that_stay() -> None:
    queue = Queue()
    kinds = [f"image-{number}" for number in range(500)]
    for id_ in ("i1", "i2"):
        queue.offer(offer(id_, " ".join(kinds)))
    for number, kind in enumerate(kinds):
        binding = bound(queue, queue.add(request(f"r{number}", needs=kind)))
        queue.released(binding.instance)
        queue.offer(offer(binding.instance, " ".join(kinds)))
    [supply] = queue._books.fit.supplies.values()
    assert len(supply.demands) <= 2 * IDLE_KINDS_MAX

    queue = Queue()
    for id_ in ("r1", "r2"):
        queue.add(request(id_))
    for number, kind in enumerate(kinds):
        binding = bound(queue, queue.offer(offer(f"i{number}", kind)))
        queue.released(binding.instance)
        queue.add(binding.request)
    [demand] = queue._books.fit.demands.values()
    assert len(demand.supplies) <= 2 * IDLE_KINDS_MAX
