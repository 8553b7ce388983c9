"""What the results of a probe come to, and when it is made: no clock, no I/O."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rota.api.instance import Probe

Role = Literal["readiness", "liveness"]
Verdict = Literal["Waiting", "Passing", "Failing"]

WHY_LENGTH_MAX = 256
FIRST_SPREAD_SECONDS_MAX = 1.0
"""What a container that waits to be ready waits longer, at most, so that many do not fire in the same instant."""
DRIFT = 0.05
"""What a period is longer, at most, as a share of it: those that began together drift apart. It never is shorter."""


class Result(NamedTuple):
    """What one probe came to."""

    outcome: Literal["Passed", "Failed", "Unknown"]
    why: str = ""


PASSED = Result("Passed")


def failed(why: str) -> Result:
    """The container did not do what the probe asks for."""
    return Result("Failed", _cut(why))


def unknown(why: str) -> Result:
    """The probe could not be made, which says nothing of the container."""
    return Result("Unknown", _cut(why))


class ProbeState(Struct, frozen=True):
    """Where one probe of one run stands."""

    verdict: Verdict
    failure_threshold: int
    failures: int = 0
    """In a row."""
    why: str = ""
    """The last of what did not pass, since one did."""

    @classmethod
    def first(cls, role: Role, failure_threshold: int, *, passed_before: bool = False) -> ProbeState:
        """Alive, but not yet ready; unless it is known to have been."""
        begins_well = role == "liveness" or passed_before
        return cls("Passing" if begins_well else "Waiting", failure_threshold)

    def after(self, result: Result) -> ProbeState:
        """Where it stands after a further result."""
        if result.outcome == "Passed":
            return replace(self, verdict="Passing", failures=0, why="")
        if result.outcome == "Unknown":
            return replace(self, why=result.why)
        # Further ones change nothing: a count that grows for ever would be another state each time.
        failures = min(self.failures + 1, self.failure_threshold)
        verdict = "Failing" if failures == self.failure_threshold else self.verdict
        return replace(self, verdict=verdict, failures=failures, why=result.why)


def first_in_seconds(probe: Probe, up_seconds: float, chance: float, *, awaited: bool) -> float:
    """When a run that is up since so long is first probed.

    chance   from 0 to 1: where in its spread it falls
    awaited  its verdict is waited for; else a period's delay does no harm
    """
    spread = min(probe.period_seconds, FIRST_SPREAD_SECONDS_MAX) if awaited else probe.period_seconds
    # A clock that was set back must not make it wait longer than was asked for.
    delay = probe.initial_delay_seconds - max(0.0, up_seconds)
    return max(0.0, delay) + spread * chance


def next_in_seconds(probe: Probe, took_seconds: float, chance: float) -> float:
    """How long after a probe's end the next one is made: periods are counted from start to start."""
    return max(0.0, probe.period_seconds * (1 + DRIFT * chance) - took_seconds)


def _cut(why: str) -> str:
    return why if len(why) <= WHY_LENGTH_MAX else why[: WHY_LENGTH_MAX - 1] + "…"
