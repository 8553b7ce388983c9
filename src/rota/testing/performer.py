"""Making calls, by the handler of a function's code, or by a stand-in of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from rota.api import Function
from rota.control.values import value
from rota.engine import Objects
from rota.runtime.interface import Refused
from rota.runtime.runner.handler_program import Context, as_json, last_line
from rota.runtime.runner.jobs import Reason
from rota.testing.code import Code, variables
from rota.testing.record import Call, Record

StandIn = Callable[[Call], Any]
FAILED = 1


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a stand-in, if it is more than a value. An exit code other than 0 is a failed run."""

    value: Any = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The outputs of the task, for its dependents."""
    exit_code: int = 0


class CallOutcome(NamedTuple):
    """The outcome of a call."""

    reason: Reason
    seconds: float = 0.0
    """Its duration on the virtual clock."""
    message: str = ""
    result: str = ""
    """The result as JSON."""
    exit_code: int | None = None
    outputs: Mapping[str, str] = {}

    def within(self, seconds: float | None) -> CallOutcome:
        """Return the outcome under a time-out."""
        if seconds is None or self.seconds <= seconds:
            return self
        return CallOutcome("Timeout", seconds, f"not done in {seconds:g} s")

    def fields(self) -> dict[str, Any]:
        """Return the fields of an outcome beside its reason and times."""
        return {
            "exit_code": self.exit_code,
            "message": self.message,
            "outputs": self.outputs,
            "result": self.result,
        }


class Attempt(NamedTuple):
    """A call to make now."""

    call: Call
    function: Function | None
    end: Callable[[CallOutcome], None]
    """Called with the outcome, on the loop."""


class Role(NamedTuple):
    """The stand-in and the duration of calls of a name."""

    do: StandIn | None
    seconds: float


class Performer:
    """Decides how a call is made. Its user makes it, synchronously or on a loop."""

    def __init__(self, objects: Objects, record: Record) -> None:
        self._objects = objects
        self._record = record
        self._roles: dict[str, Role] = {}
        self.code = Code()

    def stand_in(self, name: str, do: StandIn | None, takes: timedelta | float) -> None:
        seconds = takes.total_seconds() if isinstance(takes, timedelta) else float(takes)
        if seconds < 0:
            raise ValueError(f"takes: {takes}: nothing ends before it begins")
        self._roles[name] = Role(do, seconds)

    def thunk(self, call: Call, function: Function | None) -> Callable[[], Any]:
        """Return a function without arguments that makes a call. Its result may be awaitable."""
        self._record.calls.append(call)
        role = self._role(call)
        do = role.do
        if do is not None:
            return lambda: do(call)
        if function is None or not self.code.is_here(function):
            return lambda: None
        return lambda: self._handled(call, function)

    def _handled(self, call: Call, function: Function) -> Any:
        call.env = self._env(function)
        with variables(call.env):
            _, handler = self.code.handler(function)
            event = json.loads(json.dumps(call.event))
            context = Context(call.task or "call", function.metadata.name, function.spec.timeout_seconds)
            found = handler(event, context)
            return _with_variables(found, call.env) if hasattr(found, "__await__") else found

    def _env(self, function: Function) -> dict[str, str]:
        try:
            return {one.name: value(self._objects, function, one) for one in function.spec.env}
        except Refused as refused:
            raise LookupError(f"Function/{function.metadata.name}: {refused}; apply it to the project") from None

    def returned(self, call: Call, found: Any) -> CallOutcome:
        """Return the outcome of a call that returned."""
        said = found if isinstance(found, Result) else Result(found)
        try:
            text = as_json(said.value).decode() if said.value is not None else ""
        except Exception as error:
            return self.raised(call, error)
        call.result = json.loads(text) if text else None
        self._record.called(call, text)
        seconds, code = self._role(call).seconds, _exit_code(call, said.exit_code)
        if said.exit_code:
            return CallOutcome("Failed", seconds, f"exit code {said.exit_code}", text, code, said.outputs)
        return CallOutcome("Succeeded", seconds, "", text, code, said.outputs)

    def raised(self, call: Call, error: BaseException) -> CallOutcome:
        """Return the outcome of a call that raised an exception."""
        call.error = error
        return CallOutcome("Failed", self._role(call).seconds, last_line(error), exit_code=_exit_code(call, FAILED))

    def _role(self, call: Call) -> Role:
        names = (call.task, call.schedule, call.target)
        return next((self._roles[name] for name in names if name and name in self._roles), Role(None, 0.0))


def _exit_code(call: Call, code: int) -> int | None:
    """Return the exit code; None for calls of functions, which have none."""
    return code if call.event is None else None


async def _with_variables(found: Any, env: Mapping[str, str]) -> Any:
    with variables(env):
        return await found
