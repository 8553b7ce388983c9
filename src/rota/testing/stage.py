"""What both forms of `Project` stand on: a plane, and all that is not a matter of how a handler is called."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from rota.testing.performing import Attempt, StandIn
from rota.testing.plane import Plane
from rota.testing.record import Call, Run
from rota.testing.works import Works, moment, span

R = TypeVar("R")


class Stage:
    """A project that is open."""

    def __init__(self, start: float, environment: Mapping[str, str] | None, namespace: str) -> None:
        self._plane = Plane(start, namespace)
        self.works = Works(self._plane, environment)
        self.performer = self._plane.performer
        self._plane.open()

    def close(self) -> None:
        self._plane.close()

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Have some work done, while time stands still."""
        return self._plane.do(work)

    # Time.

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._plane.clock.time(), UTC)

    @property
    def at(self) -> float:
        """Now, on the plane's clock."""
        return self._plane.clock.now()

    def after(
        self, by: timedelta | None = None, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> float:
        """A moment of the plane's clock that is so much later."""
        return self.at + span(by, days, hours, minutes, seconds)

    def until(self, at: datetime | str) -> float:
        """A moment of the plane's clock."""
        return self.after(seconds=moment(at) - self._plane.clock.time())

    def down(self, until: float) -> None:
        """Nobody sees to anything until then."""
        self._plane.down(until)

    def before_idle(self, began: float, within: timedelta) -> float | None:
        """The next moment at which a Task may go on; None: all are over. Raises `NotIdle` when that is too late."""
        if not self._plane.record.under_way():
            return None
        due = self._plane.clock.next_due()
        if due is None or due > began + within.total_seconds():
            raise self.works.not_idle(self.at - began)
        return due

    # Calls, each made by whoever asks for them.

    def step(self, until: float, done: Attempt | None = None, found: Any = None) -> Attempt | None:
        """Go on to the next call that is to be made, or (None) to that moment. What was made before has come to this.

        What was raised is wrapped in `Raised`.
        """
        if done is not None:
            performer = self.performer
            is_raised = isinstance(found, Raised)
            ending = performer.raised(done.call, found.error) if is_raised else performer.returned(done.call, found)
            self._plane.end(done, ending)
        attempt = self._plane.go(until)
        if attempt is None:
            self.performer.code.leave()
        return attempt

    def begin_call(self, function: str, event: Any) -> Attempt:
        """A call of a function that is no Task's."""
        found = self.do(self.works.function(function))
        return Attempt(Call(function, self.now, event={} if event is None else event), found, lambda ending: None)

    def end_call(self, attempt: Attempt, found: Any) -> Any:
        """What such a call returned, as JSON has it. Raises what it raised."""
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
        self.do(self.works.know(name))
        self.performer.stand_in(name, do, takes)

    def module(self, function: str) -> ModuleType:
        return self.works.module(self.do(self.works.function(function)))

    # What happened.

    def runs(self, schedule: str | None) -> list[Run]:
        found = self._plane.record.runs(schedule)
        if schedule is not None and not found:
            # A name that is no schedule's would be taken for one that never ran.
            self.do(self.works.known_schedule(schedule))
        return found

    def calls(self, name: str | None) -> list[Call]:
        found = [call for call in self._plane.record.calls if name is None or call.is_of(name)]
        if name is not None and not found:
            self.do(self.works.know(name))
        return found


class Raised:
    """What a call has raised, instead of returning."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
