"""The common part of both forms of `Project`: a plane, and everything except making calls."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from rota.testing.performer import Attempt, StandIn
from rota.testing.plane import Plane
from rota.testing.record import Call, Run
from rota.testing.verbs import Verbs, moment, span

R = TypeVar("R")


class OpenProject:
    """An open project."""

    def __init__(self, start: float, environment: Mapping[str, str] | None, namespace: str) -> None:
        self._plane = Plane(start, namespace)
        self.verbs = Verbs(self._plane, environment)
        self.performer = self._plane.performer
        self._plane.open()

    def close(self) -> None:
        self._plane.close()

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine without advancing time."""
        return self._plane.do(work)

    # Time.

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._plane.clock.time(), UTC)

    @property
    def at(self) -> float:
        """Return the time of the plane's clock."""
        return self._plane.clock.now()

    def after(
        self, by: timedelta | None = None, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> float:
        """Return a later time of the plane's clock."""
        return self.at + span(by, days, hours, minutes, seconds)

    def until(self, at: datetime | str) -> float:
        """Return an instant as a time of the plane's clock."""
        return self.after(seconds=moment(at) - self._plane.clock.time())

    def down(self, until: float) -> None:
        """Run without controllers until a time."""
        self._plane.down(until)

    def before_idle(self, began: float, within: timedelta) -> float | None:
        """Return the time at which a Task may go on; None if all are finished. Raises `NotIdle` if it is too late."""
        if not self._plane.record.under_way():
            return None
        due = self._plane.clock.next_due()
        if due is None or due > began + within.total_seconds():
            raise self.verbs.not_idle(self.at - began)
        return due

    # Calls, which the caller makes.

    def step(self, until: float, done: Attempt | None = None, found: Any = None) -> Attempt | None:
        """Report the last call and its result, and advance to the next call. Returns None at `until`.

        An exception of the call is wrapped in `Raised`.
        """
        if done is not None:
            performer = self.performer
            is_raised = isinstance(found, Raised)
            outcome = performer.raised(done.call, found.error) if is_raised else performer.returned(done.call, found)
            self._plane.end(done, outcome)
        attempt = self._plane.go(until)
        if attempt is None:
            self.performer.code.leave()
        return attempt

    def begin_call(self, function: str, event: Any) -> Attempt:
        """Return a direct call of a function, without a Task."""
        found = self.do(self.verbs.function(function))
        return Attempt(Call(function, self.now, event={} if event is None else event), found, lambda outcome: None)

    def end_call(self, attempt: Attempt, found: Any) -> Any:
        """Return the result of a direct call, as decoded from JSON. Raises its exception."""
        call = attempt.call
        self.performer.code.leave()
        if isinstance(found, Raised):
            call.error = found.error
        else:
            self.performer.returned(call, found)
        if call.error is not None:
            raise call.error
        return call.result

    def stand_in(self, name: str, do: StandIn | None, takes: timedelta | float) -> None:
        self.do(self.verbs.know(name))
        self.performer.stand_in(name, do, takes)

    def module(self, function: str) -> ModuleType:
        return self.verbs.module(self.do(self.verbs.function(function)))

    # Results.

    def runs(self, schedule: str | None) -> list[Run]:
        found = self._plane.record.runs(schedule)
        if schedule is not None and not found:
            # An unknown name must not look like a schedule that never ran.
            self.do(self.verbs.known_schedule(schedule))
        return found

    def calls(self, name: str | None) -> list[Call]:
        found = [call for call in self._plane.record.calls if name is None or call.is_of(name)]
        if name is not None and not found:
            self.do(self.verbs.know(name))
        return found


class Raised:
    """An exception of a call, instead of its result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
