"""How far the polling of one spawner is: when it is due, what came of it, and what waits. Nothing is lost with it but
time."""

from __future__ import annotations

import random
from collections.abc import Callable

from rota.control.gate import Problem
from rota.control.spawners.github import Trouble
from rota.control.spawners.items import Item, tail_of
from rota.control.spawners.polling import Listing

BACKOFF_SECONDS_FIRST = 5.0
BACKOFF_SECONDS_MAX = 900.0
DOUBLINGS_MAX = 16
WHOLE_SECONDS = 3600.0
"""Everything is read at least this often, whether the API says that it has changed or not: pages shift while they are
read, and not all servers tell changes well."""


class Poll:
    """The state of one spawner's polling. Times are those of a clock that only grows."""

    def __init__(self, basis: object, now: float, *, jitter: Callable[[float, float], float] = random.uniform) -> None:
        self.basis = basis
        """What it rests on: with another source, or another Secret, it begins anew."""
        self.due = now
        self.polled_at: float | None = None
        """In seconds since 1970."""
        self.trouble: Problem | None = None
        self.listed: frozenset[str] = frozenset()
        """Tails of the names of the Tasks of all items that are listed."""
        self.waiting: list[Item] = []
        self.refused: list[Item] = []
        """Those of which no Task can be made as they are, and as the spawner is."""
        self.refusal: Problem | None = None
        """Why the first of them cannot."""
        self.generation = 0
        self.unread = 0
        self.is_cut = False
        self._etag = ""
        self._whole_due = now
        self._failures = 0
        self._jitter = jitter

    @property
    def problem(self) -> Problem | None:
        return self.trouble or self.refusal

    @property
    def undone(self) -> int:
        """How many items that are listed have no Task."""
        return len(self.waiting) + len(self.refused) + self.unread

    def take_up(self, generation: int) -> None:
        """What was refused is tried again when the spawner has changed."""
        if generation != self.generation:
            self.generation = generation
            self.waiting = sorted((*self.refused, *self.waiting), key=lambda item: int(item.fields["number"]))
            self._forget_refusals()

    def refuse(self, items: list[Item], why: Problem | None) -> None:
        self.refused += items
        self.refusal = self.refusal or why

    def etag(self, now: float) -> str:
        """By which the API may say that nothing has changed; empty when it should tell all."""
        return self._etag if now < self._whole_due and not self.unread else ""

    def succeeded(self, listing: Listing, now: float, every: float) -> None:
        self.listed = frozenset(map(tail_of, listing.listed))
        self.waiting = listing.waiting
        self._forget_refusals()
        self.unread = listing.unread
        self.is_cut = listing.is_cut
        self._etag = listing.etag
        self._whole_due = now + WHOLE_SECONDS
        self._go_on(now, max(every, listing.again_seconds))

    def unchanged(self, now: float, every: float) -> None:
        self._go_on(now, every)

    def failed(self, trouble: Trouble, now: float, every: float) -> None:
        """Try again: when the API says so, else after a pause that doubles each time."""
        self.trouble = Problem(trouble.reason, trouble.message)
        pause = min(max(BACKOFF_SECONDS_MAX, every), BACKOFF_SECONDS_FIRST * 2.0 ** min(self._failures, DOUBLINGS_MAX))
        self._failures += 1
        if trouble.retry_seconds is not None:
            # All that were refused together should not come back together.
            self.due = now + trouble.retry_seconds + self._jitter(0.0, BACKOFF_SECONDS_FIRST)
        else:
            self.due = now + pause * self._jitter(0.5, 1.0)

    def _forget_refusals(self) -> None:
        self.refused = []
        self.refusal = None

    def _go_on(self, now: float, pause: float) -> None:
        self.trouble = None
        self._failures = 0
        self.due = now + pause
