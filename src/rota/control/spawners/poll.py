"""The polling of one spawner: due time, back-off, and the items that wait. It need not outlive the process."""

from __future__ import annotations

import random
from collections.abc import Callable

from rota.control.gate import Problem
from rota.control.spawners.github import PollError
from rota.control.spawners.items import Item, tail_of
from rota.control.spawners.listing import Listing

BACKOFF_SECONDS_FIRST = 5.0
BACKOFF_SECONDS_MAX = 900.0
DOUBLINGS_MAX = 16
WHOLE_SECONDS = 3600.0
"""Time after which everything is read again, changed or not.

Pages shift while they are read, and not all servers report changes reliably.
"""


class Poll:
    """The state of one spawner's polling. Times are of the monotonic clock."""

    def __init__(self, basis: object, now: float, *, jitter: Callable[[float, float], float] = random.uniform) -> None:
        self.basis = basis
        """Spawner, source and token. If one of them changes, polling begins anew."""
        self.due = now
        self.polled_at: float | None = None
        """In seconds since 1970."""
        self.failure: Problem | None = None
        self.listed: frozenset[str] = frozenset()
        """The ends of the names of the Tasks of all listed items."""
        self.waiting: list[Item] = []
        self.refused: list[Item] = []
        """Items whose Tasks were refused. They are retried when the spawner has changed."""
        self.refusal: Problem | None = None
        """The problem of the first refused item."""
        self.generation = 0
        self.unread = 0
        self.is_cut = False
        self._etag = ""
        self._whole_due = now
        self._failures = 0
        self._jitter = jitter

    @property
    def problem(self) -> Problem | None:
        return self.failure or self.refusal

    @property
    def undone(self) -> int:
        """The number of listed items without a Task."""
        return len(self.waiting) + len(self.refused) + self.unread

    def retry_refused(self, generation: int) -> None:
        """Put refused items back among the waiting ones, if the spawner has changed."""
        if generation != self.generation:
            self.generation = generation
            self.waiting = sorted((*self.refused, *self.waiting), key=lambda item: int(item.fields["number"]))
            self._forget_refusals()

    def refuse(self, items: list[Item], why: Problem | None) -> None:
        self.refused += items
        self.refusal = self.refusal or why

    def etag(self, now: float) -> str:
        """Return the ETag of the next request; empty: everything is to be read."""
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

    def failed(self, failure: PollError, now: float, every: float) -> None:
        """Set the next try: after the pause that the API asks for, else after one that doubles each time."""
        self.failure = Problem(failure.reason, failure.message)
        pause = min(max(BACKOFF_SECONDS_MAX, every), BACKOFF_SECONDS_FIRST * 2.0 ** min(self._failures, DOUBLINGS_MAX))
        self._failures += 1
        if failure.retry_seconds is not None:
            # With jitter, so that spawners that were refused together do not come back together.
            self.due = now + failure.retry_seconds + self._jitter(0.0, BACKOFF_SECONDS_FIRST)
        else:
            self.due = now + pause * self._jitter(0.5, 1.0)

    def _forget_refusals(self) -> None:
        self.refused = []
        self.refusal = None

    def _go_on(self, now: float, pause: float) -> None:
        self.failure = None
        self._failures = 0
        self.due = now + pause
