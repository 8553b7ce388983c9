"""The intake of reports at the hub: it limits each cell to its share of the hub.

- One report of each cell is processed at a time. A few more wait; others are refused with 429.
- A cell that has sent more than its share waits before its next report is read. A burst of real changes is within it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rota.api import Cell, Kind
from rota.api.problems import NOT_JSON
from rota.client import Update
from rota.control.cells.counting import HubCounting
from rota.control.cells.messages import REPORT_BYTES_MAX, Answer, Report
from rota.control.cells.reports import Reports
from rota.engine.clock import Clock, sleep
from rota.engine.objects import Objects
from rota.registry import ApiError
from rota.registry.errors import bad_request, too_busy

WAITING_MAX = 2
"""Reports of one cell that wait. A cell sends the next one only after an answer, or a timeout."""
BYTES_PER_SECOND = 1024 * 1024
"""The share of one cell, for all its reports together."""
BYTES_BURST = 16 * BYTES_PER_SECOND
"""Bytes that a cell may send at once: some 16,000 instances that have changed."""
REPORT_BYTES_COUNTED_MIN = 8 * 1024
"""Least number of bytes that a report counts as, since the smallest one costs the hub something, too."""
PAUSE_SECONDS_MAX = 2.0
"""The longest wait of a cell beyond its share, short enough that it still renews the shortest lease, 5 seconds."""
REFUSED_SECONDS = 1.0
"""Delay of a refusal, so that a cell that retries at once does not keep the hub busy."""

_report = msgspec.json.Decoder(Report).decode


class Share:
    """The token bucket of one cell, in bytes, and its reports under way."""

    def __init__(self, now: float) -> None:
        self.lock = asyncio.Lock()
        self.under_way = 0
        self._left = float(BYTES_BURST)
        self._at = now

    def pause_seconds(self, now: float) -> float:
        """Return the seconds before the next report is read."""
        self._refill(now)
        return max(0.0, -self._left / BYTES_PER_SECOND)

    def _refill(self, now: float) -> None:
        self._left = min(BYTES_BURST, self._left + max(0.0, now - self._at) * BYTES_PER_SECOND)
        self._at = now

    def charge(self, size: int, now: float) -> None:
        self._refill(now)
        # The debt has a bound, so that a cell with large reports is slow, but not lost.
        debt_max = PAUSE_SECONDS_MAX * BYTES_PER_SECOND
        self._left = max(-debt_max, self._left - max(size, REPORT_BYTES_COUNTED_MIN))


class Intake:
    """Decodes reports and passes them on to `Reports`, within each cell's share. `end` it."""

    def __init__(self, reports: Reports, objects: Objects, clock: Clock, counting: HubCounting) -> None:
        self._reports = reports
        self._objects = objects
        self._clock = clock
        self._counting = counting
        self._shares: dict[str, Share] = {}
        self._unsubscribe = objects.listen((Cell.api,), self._cell_changed)

    def end(self) -> None:
        self._unsubscribe()

    def _cell_changed(self, kind: Kind, update: Update[Any]) -> None:
        if update.new is None:
            self._shares.pop(update.key.name, None)
            self._counting.forget(update.key.name)

    async def take(self, cell: str, body: bytes) -> Answer:
        """Take a report. Raises `ApiError` if it is refused."""
        with self._counting.report(cell if self._objects.has(Cell.api, "", cell) else "") as count:
            if len(body) > REPORT_BYTES_MAX:
                message = f"the report has {len(body)} bytes, and {REPORT_BYTES_MAX} are the most: divide it"
                raise ApiError(413, "RequestEntityTooLarge", message)
            async with self._slot(cell, len(body)):
                count.begin()
                try:
                    report = _report(body)
                except NOT_JSON as error:
                    raise bad_request(f"this is no report of a cell: {error}") from None
                answer = await self._reports.receive(cell, report)
                count.taken(answer)
                return answer

    @asynccontextmanager
    async def _slot(self, cell: str, size: int) -> AsyncIterator[None]:
        """Wait until the cell's earlier reports are done. Raises `ApiError` if too many wait already."""
        share = self._shares.get(cell)
        if share is None:
            share = Share(self._clock.now())
            if self._objects.has(Cell.api, "", cell):
                self._shares[cell] = share
        if share.under_way > WAITING_MAX:
            await sleep(self._clock, REFUSED_SECONDS)
            raise too_busy(f'{WAITING_MAX + 1} reports of cell "{cell}" are under way: send one after the other')
        share.under_way += 1
        try:
            async with share.lock:
                if pause := share.pause_seconds(self._clock.now()):
                    await sleep(self._clock, pause)
                share.charge(size, self._clock.now())
                yield
        finally:
            share.under_way -= 1
