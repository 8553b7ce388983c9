"""The sorted keys of a bucket against a plain sorted set."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.store import index
from rota.store.index import KeyIndex

KEYS = st.text("abc/0", max_size=4)


def some(keys: set[str], low: str, high: str, limit: int) -> list[str]:
    found = sorted(key for key in keys if low <= key < high)
    return found[:limit] if limit else found


@given(st.lists(st.lists(KEYS, max_size=60), max_size=8), KEYS, KEYS, st.integers(0, 5))
def test_every_range_is_what_a_sorted_set_has(rounds: list[list[str]], low: str, high: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "CHUNK_KEYS", 3)
        keys: set[str] = set()
        tested = KeyIndex()
        for toggled in rounds:
            for key in toggled:
                if key in keys:
                    keys.remove(key)
                    tested.remove(key)
                else:
                    keys.add(key)
                    tested.add(key)
            assert tested.size == len(keys)
            assert tested.keys(low, high, limit) == some(keys, low, high, limit)
            assert list(tested.iterate(low, high)) == some(keys, low, high, 0)
            assert tested.count(low, high) == len(some(keys, low, high, 0)) if low <= high else True


def test_a_large_index_settles_few_and_many_changes_alike() -> None:
    random = Random(7)
    tested = KeyIndex()
    keys: set[str] = set()
    for size in (20_000, 10, 3000, 1):
        for _ in range(size):
            key = f"{random.randrange(100_000):06}"
            if key not in keys:
                keys.add(key)
                tested.add(key)
        for key in random.sample(sorted(keys), size // 3):
            keys.remove(key)
            tested.remove(key)
        assert tested.keys("", "9", 0) == some(keys, "", "9", 0)
        assert tested.count("03", "05") == len(some(keys, "03", "05", 0))
