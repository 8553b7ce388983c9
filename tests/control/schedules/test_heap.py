"""One heap for all: what is due comes out in order, once, as it was last set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.control.schedules.heap import STALE_MAX, Heap

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcdef"), st.integers(0, 20)),
        st.tuples(st.just("discard"), st.sampled_from("abcdef"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
    )
)


@given(STEPS, st.integers(1, 3))
def test_it_is_as_a_plain_table_of_times(steps: list[tuple[str, str, int]], most: int) -> None:
    heap, table = Heap(), dict[str, int]()
    for what, name, at in steps:
        if what == "set":
            heap.set(name, at)
            table[name] = at
        elif what == "discard":
            heap.discard(name)
            table.pop(name, None)
        else:
            due = sorted((when, name) for name, when in table.items() if when <= at)[:most]
            assert heap.pop_due(at, most) == [name for _, name in due]
            for _, gone in due:
                del table[gone]
        assert heap.next_due() == min(table.values(), default=None)
        assert set(heap) == set(table) and len(heap) == len(table)


def test_what_was_overtaken_does_not_pile_up() -> None:
    heap = Heap()
    for number in range(10 * STALE_MAX):
        heap.set("a", float(number))
    assert len(heap._heap) <= STALE_MAX + 3
