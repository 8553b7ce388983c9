"""The verdict of a probe and its schedule, computed from its results. Pure functions: no clock, no I/O."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rota.api.instance import Probe

Role = Literal["readiness", "liveness"]
Verdict = Literal["Waiting", "Passing", "Failing"]

WHY_LENGTH_MAX = 256
FIRST_SPREAD_SECONDS_MAX = 1.0
"""The most seconds by which the first probe of an unready container is delayed, so that not all start at once."""
DRIFT = 0.05
"""The largest share by which a period is lengthened at random, so that probes do not stay in step."""


class Result(NamedTuple):
    """The result of one probe."""

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
    """The state of one probe of one run."""

    verdict: Verdict
    failure_threshold: int
    failures: int = 0
    """Failures in a row."""
    why: str = ""
    """The reason of the last failed or unknown result since the probe last passed."""

    @classmethod
    def first(cls, role: Role, failure_threshold: int, *, passed_before: bool = False) -> ProbeState:
        """Return the first state: liveness begins as passing, readiness as waiting unless it had passed before."""
        begins_well = role == "liveness" or passed_before
        return cls("Passing" if begins_well else "Waiting", failure_threshold)

    def after(self, result: Result) -> ProbeState:
        """Return the state after a further result."""
        if result.outcome == "Passed":
            return replace(self, verdict="Passing", failures=0, why="")
        if result.outcome == "Unknown":
            return replace(self, why=result.why)
        # Capped: a count that grows for ever would be a changed state each time.
        failures = min(self.failures + 1, self.failure_threshold)
        verdict = "Failing" if failures == self.failure_threshold else self.verdict
        return replace(self, verdict=verdict, failures=failures, why=result.why)


def first_in_seconds(probe: Probe, up_seconds: float, chance: float, *, awaited: bool) -> float:
    """Return the seconds until the first probe of a run that has been up for `up_seconds`.

    chance   a number from 0 to 1 that places the probe in its spread
    awaited  something waits for the verdict: the spread is short, else a whole period
    """
    spread = min(probe.period_seconds, FIRST_SPREAD_SECONDS_MAX) if awaited else probe.period_seconds
    # A clock that was set back must not make it wait longer than was asked for.
    delay = probe.initial_delay_seconds - max(0.0, up_seconds)
    return max(0.0, delay) + spread * chance


def next_in_seconds(probe: Probe, took_seconds: float, chance: float) -> float:
    """Return the seconds from the end of a probe to the start of the next: periods are counted from start to start."""
    return max(0.0, probe.period_seconds * (1 + DRIFT * chance) - took_seconds)


def _cut(why: str) -> str:
    return why if len(why) <= WHY_LENGTH_MAX else why[: WHY_LENGTH_MAX - 1] + "…"
