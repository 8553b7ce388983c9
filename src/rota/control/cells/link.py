"""The link of a cell to its hub: it sends reports, and mirrors the deployments that are bound to the cell.

The cell needs it for nothing that it runs already. While the hub is away, controllers work on the cell's own store; the
link retries, and then reports what the hub missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from rota.api import Cell, Condition, Instance, InstanceType, Object, WorkloadDeployment
from rota.api.cell import Used
from rota.api.meta import with_condition
from rota.api.problems import NOT_JSON
from rota.client import Client
from rota.client.requests import Sleep
from rota.control.cells.binding import TRAVELLING
from rota.control.cells.counting import LinkCounting
from rota.control.cells.fence import Fence, Moment
from rota.control.cells.messages import DEPLOYMENTS_MAX, NAME_LENGTH_MAX, Answer, Report
from rota.control.cells.mirror import Mirror
from rota.control.cells.names import BOUND_NAME, BOUND_NAMESPACE, mirrored_source, store_identity
from rota.control.cells.outbox import Outbox
from rota.control.gate import status_of
from rota.control.quotas.amounts import Amount, amount_of, used_of
from rota.control.sizes import size_of
from rota.engine import ControlLoop
from rota.engine.clock import Clock, sleep
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Recording
from rota.registry import ApiError

log = logging.getLogger(__name__)

LINKED = "Linked"
COALESCE_SECONDS = 0.02
"""Changes within this time go into one report."""
INTERVAL_SECONDS_MIN = 0.5
INTERVAL_SECONDS = 10.0
"""The longest time between two reports."""
RETRY_SECONDS_FIRST = 0.05
RETRY_SECONDS_MAX = 2.0
"""The longest pause between two tries, well below the shortest lease of 5 seconds."""
COUNT_SECONDS = 1.0
"""Pause between two counts of the resources in use."""
ORPHANS_MAX = 200
TROUBLES = (ApiError, OSError, TimeoutError, *NOT_JSON)
"""Errors of the connection, and of a hub, which may answer anything. None of them ends the link."""
FORBIDDEN = 403
"""The status code of a report about another cell's objects, or with a token that has no right any more."""
REFUSED = (400, FORBIDDEN, 413, 422)
"""Status codes of reports that the hub refuses for good."""


class Hub(Protocol):
    """The hub, as a cell sees it."""

    async def report(self, report: Report) -> Answer:
        """Send a report. Raises `ApiError` if it is refused, `OSError` if the hub is not reached."""
        ...

    def objects(self, wait: Sleep) -> Objects:
        """Return the objects that are bound to this cell. Entering them waits for the hub, with `wait` as the pause."""
        ...


class Tunnelling(Protocol):
    """The connections over which the hub reaches instances of this cell."""

    async def run(self) -> None:
        """Keep the connections open, until cancelled."""
        ...


class About(NamedTuple):
    """The cell's own fields in every report."""

    cell: str
    identity: str
    """A random id that is stored in the cell's home."""
    boot: int
    """The number of its starts."""
    version: str


class Link:
    """Reports and mirrors while `run` runs."""

    def __init__(
        self,
        about: About,
        hub: Hub,
        client: Client,
        objects: Objects,
        events: Recording,
        clock: Clock,
        fence: Fence,
        tunnel: Tunnelling | None = None,
        counting: LinkCounting | None = None,
    ) -> None:
        self._about = about
        self._counting = counting or LinkCounting(Metrics(), clock)
        self._tunnel = tunnel
        self._fence = fence
        self._cell = about.cell
        self._hub = hub
        self._client = client
        self._objects = objects
        self._events = events
        self._clock = clock
        self._boot = about.boot
        self._sequence = 0
        self._news = asyncio.Event()
        self._outbox: Outbox | None = None
        self._bound: Objects | None = None
        self._counted: tuple[float, int, Used | None] = (float("-inf"), 0, None)
        self.trouble = ""
        """The reason why the hub cannot be reached or is refused; empty: the link is up."""
        self._back = asyncio.Event()
        self.is_cut = False
        self._mirroring: asyncio.Task[None] | None = None
        self._tunnelling: asyncio.Task[None] | None = None

    def cut(self) -> None:
        """Simulate a cut connection, until `heal` or a restart."""
        self.is_cut = True
        self._news.set()
        for task in (self._mirroring, self._tunnelling):
            if task is not None:
                task.cancel()

    def heal(self) -> None:
        self.is_cut = False

    async def run(self) -> None:
        self._outbox = Outbox(self._objects, self._clock, self._news.set)
        delay, interval = RETRY_SECONDS_FIRST, INTERVAL_SECONDS
        deployments_max = DEPLOYMENTS_MAX
        # After a refusal, a report without deployments: whatever the hub refuses of one of them, the cell lives.
        is_refused = was_answered = False
        try:
            while get(self._objects, Cell, self._cell) is None:
                # A controller creates it at the server's first start.
                await sleep(self._clock, COALESCE_SECONDS)
            while True:
                reports, taken = self._outbox.take(0 if is_refused else deployments_max)
                sent = Moment.now(self._clock)
                try:
                    answer = await self._exchange(self._report(reports))
                except TROUBLES as error:
                    self._counting.failed(error)
                    is_refused = bool(reports) and _is_refused(error)
                    if not is_refused:
                        await self._write_status(False, *_reason(error))
                    # A 403 may be about the token. Right after an answered report it is about this one.
                    is_about_report = was_answered or not _is_forbidden(error)
                    was_answered = False
                    if is_refused and is_about_report and len(reports) == 1:
                        # Dropped: a refused deployment must not hold up the others.
                        log.warning(
                            "the hub refuses the report of %s/%s: %s", reports[0].namespace, reports[0].name, error
                        )
                    else:
                        self._outbox.put_back(taken)
                        deployments_max = 1 if is_refused else deployments_max
                    await sleep(self._clock, max(delay * random.uniform(0.5, 1.0), _asked_seconds(error)))
                    delay = min(delay * 2, RETRY_SECONDS_MAX)
                    if delay >= RETRY_SECONDS_MAX:
                        self._outbox.announce()
                    continue
                self._counting.answered(answer, self._clock.now() - sent.uptime)
                is_refused, was_answered = False, True
                if answer.late is not None:
                    self._count_on(answer.late, taken)
                    await sleep(self._clock, delay * random.uniform(0.5, 1.0))
                    continue
                delay, interval = RETRY_SECONDS_FIRST, max(INTERVAL_SECONDS_MIN, answer.interval_seconds)
                interval = min(interval, INTERVAL_SECONDS)
                if await self._is_own(answer):
                    await self._fence.renew(answer.rights, sent)
                    self._begin_mirroring()
                    self._begin_tunnelling()
                else:
                    await _end(self._mirroring)
                    await _end(self._tunnelling)
                self._outbox.resync(answer.resync)
                if self._outbox:
                    continue
                deployments_max = DEPLOYMENTS_MAX
                if not await self._pause(interval):
                    self._outbox.announce_some()
        finally:
            await _end(self._tunnelling)
            await _end(self._mirroring)
            self._outbox.end()

    def _count_on(self, boot: int, taken: Any) -> None:
        """Number the next report after all that the hub has received, and report the untaken news again."""
        self._boot = max(self._boot, boot) + 1
        self._sequence = 0
        assert self._outbox is not None
        self._outbox.put_back(taken)
        self._outbox.announce()

    async def _exchange(self, report: Report) -> Answer:
        if self.is_cut:
            raise ConnectionError("the line is cut")
        answer = await self._hub.report(report)
        if self.is_cut:
            raise ConnectionError("the line is cut")
        return answer

    def _begin_mirroring(self) -> None:
        if self._mirroring is None or self._mirroring.done():
            if self._mirroring is not None and not self._mirroring.cancelled():
                self._mirroring.result()
            self._mirroring = asyncio.create_task(self._mirror(), name="mirror")

    def _begin_tunnelling(self) -> None:
        if self._tunnel is not None and (self._tunnelling is None or self._tunnelling.done()):
            if self._tunnelling is not None and not self._tunnelling.cancelled():
                self._tunnelling.result()
            self._tunnelling = asyncio.create_task(self._tunnel.run(), name="tunnel to the hub")

    async def _wait(self, seconds: float) -> None:
        """Wait for these seconds, or until the hub answers reports again, and so can be read as well."""
        await self._until(self._back, seconds)

    async def _until(self, event: asyncio.Event, seconds: float) -> None:
        waiting = asyncio.ensure_future(event.wait())
        timer = asyncio.ensure_future(sleep(self._clock, seconds))
        try:
            await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (waiting, timer):
                one.cancel()

    async def _pause(self, seconds: float) -> bool:
        """Wait for news, and then for more of it. Returns False if there was none within these seconds."""
        self._news.clear()
        await self._until(self._news, seconds)
        if self._news.is_set():
            await sleep(self._clock, COALESCE_SECONDS)
        return self._news.is_set()

    def _report(self, deployments: list[Any]) -> Report:
        self._sequence += 1
        instances, allocated = self._count()
        return Report(
            identity=self._about.identity,
            boot=self._boot,
            sequence=self._sequence,
            version=self._about.version,
            instances=instances,
            allocated=allocated,
            deployments=deployments,
            orphans=self._orphans(),
        )

    def _count(self) -> tuple[int, Used | None]:
        """Return the number of instances of this cell, and their resources."""
        at, count, allocated = self._counted
        now = self._clock.now()
        if now - at >= COUNT_SECONDS:
            every = cast("list[Instance]", self._objects.list(Instance.api))
            living = [one for one in every if not one.over()]
            total = Amount()
            for one in living:
                total = total.plus(amount_of(size_of(self._objects, one.spec)))
            count, allocated = len(living), used_of(total)
            self._counted = (now, count, allocated)
        return count, allocated

    def _orphans(self) -> list[str]:
        """Return the deployments that run here for the hub, and that the hub lacks; none until its objects are read."""
        if self._bound is None:
            return []
        found = []
        for obj in cast("list[WorkloadDeployment]", self._objects.list(WorkloadDeployment.api)):
            source, meta = mirrored_source(obj), obj.metadata
            where = meta.annotations.get(BOUND_NAMESPACE, ""), meta.annotations.get(BOUND_NAME, "")
            if source is not None and not self._bound.has(WorkloadDeployment.api, *where):
                found.append(f"{source.namespace}/{source.name}"[:NAME_LENGTH_MAX])
        return found[:ORPHANS_MAX]

    # The identity of the hub.

    async def _is_own(self, answer: Answer) -> bool:
        """Report whether an answer is from this cell's hub. A cell belongs to the first hub that answers."""
        cell = get(self._objects, Cell, self._cell)
        if cell is None:
            return False
        if answer.hub and answer.hub == store_identity(self._objects):
            message = "the hub's objects are on this very server: a cell has an API server of its own"
            await self._write_status(False, "HubIsHere", message)
            return False
        known = status_of(cell).hub_id
        if known is not None and known != answer.hub:
            await self._write_status(
                False,
                "HubChanged",
                "another hub answers than the one that this cell belongs to: what runs goes on, and nothing is taken"
                f" from it. `rota cell accept-hub {self._cell}` takes it",
            )
            return False
        await self._write_status(True, "Reporting", "the hub answers", hub=answer.hub)
        return True

    async def _write_status(self, linked: bool, reason: str, message: str, *, hub: str | None = None) -> None:
        """Write the condition Linked of this cell's Cell. A failed write is logged, and does not end the link."""
        if linked and self.trouble:
            log.info("the hub answers again")
            self._back.set()
            self._back = asyncio.Event()
        elif not linked and self.trouble != message:
            log.warning("the link to the hub: %s", message)
        self.trouble = "" if linked else message
        cell = get(self._objects, Cell, self._cell)
        if cell is None:
            return
        condition = Condition(
            type=LINKED,
            status="True" if linked else "False",
            reason=reason,
            message=message,
            observed_generation=cell.metadata.generation,
        )
        before = status_of(cell)
        conditions = with_condition(before.conditions, condition, self._clock.time())
        status = msgspec.structs.replace(before, conditions=conditions, hub_id=hub or before.hub_id)
        if status == before:
            return
        try:
            await self._client.update_status(msgspec.structs.replace(cell, status=status))
        except ApiError as error:
            if not error.is_overtaken:
                log.warning("the condition %s could not be written: %s", LINKED, error)

    # Mirroring.

    async def _mirror(self) -> None:
        assert self._outbox is not None
        delay = RETRY_SECONDS_FIRST
        while True:
            try:
                async with self._hub.objects(self._wait) as bound:
                    delay = RETRY_SECONDS_FIRST
                    self._bound = bound
                    mirror = Mirror(self._cell, self._objects, self._outbox, fenced=self._fence.holds)
                    await ControlLoop(self._client, bound, [mirror], self._events, clock=self._clock).serve()
            except TROUBLES as error:
                log.warning("the objects bound to this cell cannot be read: %s", error)
            finally:
                self._bound = None
            await sleep(self._clock, delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, RETRY_SECONDS_MAX)


MIRRORED: tuple[type[Object], ...] = (WorkloadDeployment, *TRAVELLING, InstanceType)
"""Kinds that a cell reads from its hub."""


def _is_refused(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.code in REFUSED


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.code == FORBIDDEN


def _asked_seconds(error: Exception) -> float:
    """Return the pause that the hub asks for, at most RETRY_SECONDS_MAX, so that no lease expires because of it."""
    asked = (error.details or {}).get("retryAfterSeconds") if isinstance(error, ApiError) else None
    return min(float(asked), RETRY_SECONDS_MAX) if isinstance(asked, int) and asked > 0 else 0.0


def _reason(error: Exception) -> tuple[str, str]:
    if isinstance(error, NOT_JSON):
        return "HubUnreachable", f"what answers is not the hub, or of quite another version: {error}. What runs goes on"
    if not isinstance(error, ApiError):
        return "HubUnreachable", f"the hub cannot be reached: {error}. What runs goes on"
    if error.code in (401, 403):
        return (
            "NotAuthorised",
            f"the hub does not take this cell's token: {error}. What runs goes on",
        )
    if error.code == 409:
        return "NameTaken", str(error)
    if error.code == 429:
        return "HubBusy", f"the hub takes this report later: {error}. What runs goes on"
    return "ReportRefused", str(error)


async def _end(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
