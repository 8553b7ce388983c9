"""A queue that bounds how much runs at once, in total and for each holder."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Begins items: at most `at_once_max` at once, and `share_max` of one holder.

    Items of one holder begin in the order in which they were added. Holders take turns.
    """

    def __init__(
        self, at_once_max: int, share_max: int, holder: Callable[[T], str], begin: Callable[[T], None]
    ) -> None:
        self._free = at_once_max
        self._share_max = share_max
        self._holder = holder
        self._begin = begin
        self._begun: Counter[str] = Counter()
        self._waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()

    def enter(self, one: T) -> None:
        """Add an item. It begins as soon as there is room for it."""
        self._waiting.setdefault(self._holder(one), OrderedDict())[one] = None
        self._begin_next()

    def leave(self, one: T) -> None:
        """Note that an item has ended, which makes room for others."""
        holder = self._holder(one)
        self._free += 1
        self._begun[holder] -= 1
        if not self._begun[holder]:
            del self._begun[holder]
        self._begin_next()

    def drop(self, one: T) -> None:
        """Remove an item that has not begun."""
        holder = self._holder(one)
        waiting = self._waiting.get(holder, OrderedDict())
        waiting.pop(one, None)
        if not waiting:
            self._waiting.pop(holder, None)

    def _begin_next(self) -> None:
        while self._free:
            holder = next((each for each in self._waiting if self._begun[each] < self._share_max), None)
            if holder is None:
                return
            one, _ = self._waiting[holder].popitem(last=False)
            if self._waiting[holder]:
                self._waiting.move_to_end(holder)
            else:
                del self._waiting[holder]
            self._free -= 1
            self._begun[holder] += 1
            self._begin(one)
