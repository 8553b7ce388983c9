"""Any schedule in any world: no tick fires twice, none that is promised is lost, all are within bounds."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.api import Schedule
from rota.api.cron import cron
from rota.api.function import ScheduleStatus
from rota.control.schedules.planner import TickPlan, plan
from rota.control.schedules.runs import Run
from rota.control.schedules.statuses import with_plan
from rota.control.schedules.ticks import CATCH_UP_TICKS_MAX, ON_TIME_SECONDS, due_at
from tests.schedules.subjects import schedule

CRONS = ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "15,45 0-3 * * SUN"]
SPECS = st.fixed_dictionaries(
    {
        "cron": st.sampled_from(CRONS),
        "timeZone": st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
        "overlap": st.sampled_from(["Allow", "Skip", "Replace"]),
        "catchUp": st.sampled_from(["None", "Last", "All"]),
        "catchUpWithinSeconds": st.sampled_from([0, 100, 3600, 31_536_000]),
        "jitterSeconds": st.sampled_from([0, 5, 3600]),
    }
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["look", "end runs", "crash before writing", "set the clock"]),
        st.floats(-100_000, 100_000, allow_nan=False),
    ),
    max_size=25,
)
CREATED = 1_774_700_000
"""Shortly before clocks change in Berlin."""


class Life:
    """A schedule through time: it is looked at, its plans are carried out, and its runs end."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.subject: Schedule = schedule(created=CREATED, **spec)
        self.cron = cron(spec["cron"], spec["timeZone"])
        self.runs: dict[int, Run] = {}
        self.fired: list[int] = []
        self.now = float(CREATED)

    def look(self, *, writes: bool = True) -> TickPlan:
        found = plan(self.subject, self.cron, list(self.runs.values()), self.now)
        if found.is_due:
            for tick in found.fire:
                assert tick not in self.fired, "a tick fires once"
                self.fired.append(tick)
                self.runs[tick] = Run(f"r{tick}", "u", tick, manual=False, phase="")
            if self.subject.spec.overlap == "Replace":
                for tick, run in self.runs.items():
                    if run.name in found.cancel:
                        self.runs[tick] = run._replace(phase="Cancelled")
        if writes:
            status = self.subject.status or ScheduleStatus()
            self.subject = msgspec.structs.replace(self.subject, status=with_plan(status, found, self.cron.text))
        return found

    def end_runs(self) -> None:
        self.runs = {tick: run._replace(phase="Succeeded") for tick, run in self.runs.items()}


@settings(max_examples=100, deadline=None)
@given(SPECS, STEPS)
def test_no_tick_fires_twice_or_before_its_time_whatever_happens(spec: dict[str, Any], steps: list[Any]) -> None:
    life = Life(spec)
    for what, amount in steps:
        life.now += amount if what == "set the clock" else abs(amount)
        if what == "end runs":
            life.end_runs()
        before = len(life.fired)
        found = life.look(writes=what != "crash before writing")
        new = life.fired[before:]
        assert len(new) <= CATCH_UP_TICKS_MAX and new == sorted(new)
        assert not before or not new or new[0] > max(life.fired[:before])
        assert all(due_at(life.subject, life.cron, tick) <= life.now for tick in new)
        assert found.wake is None or found.wake > life.now
        under_way = [run for run in life.runs.values() if not run.phase]
        assert spec["overlap"] == "Allow" or len(under_way) <= 1
        status = life.subject.status
        assert status is None or status.run_count <= len(life.fired)


@settings(max_examples=100, deadline=None)
@given(
    SPECS.filter(lambda spec: spec["overlap"] != "Replace"),
    st.lists(st.tuples(st.floats(0, 9_000), st.booleans()), min_size=1, max_size=4),
)
def test_what_catch_up_promises_is_kept_through_any_downtime(spec: dict[str, Any], downs: list[Any]) -> None:
    life = Life(spec)
    life.look()
    for seconds, crashes in downs:
        since, life.now = life.now, life.now + seconds
        promised = _promised(life, since)
        for _ in range(CATCH_UP_TICKS_MAX + 1):
            life.look(writes=not crashes)
            life.end_runs()
            crashes = False
        assert set(promised) <= set(life.fired)


def _promised(life: Life, since: float) -> list[int]:
    """The ticks that came due in a time in which nobody looked, and that must be fired at its end."""
    spec, now = life.subject.spec, life.now
    found, at = [], int(since) - 3601
    while (tick := life.cron.after(at)) is not None and tick <= now:
        at = tick
        if tick > CREATED and since < due_at(life.subject, life.cron, tick) <= now:
            found.append(tick)
    ages = {tick: now - due_at(life.subject, life.cron, tick) for tick in found}
    young = [tick for tick in found if ages[tick] <= max(ON_TIME_SECONDS, spec.catch_up_within_seconds)]
    if spec.catch_up == "All":
        return young[-CATCH_UP_TICKS_MAX:]
    if spec.catch_up == "Last":
        return young[-1:]
    on_time = [tick for tick in young if ages[tick] <= ON_TIME_SECONDS]
    # Jitter may bring several together. Then the first is under way when the others are due.
    return on_time[:1] if spec.overlap == "Skip" else on_time


def test_a_task_that_was_made_and_not_written_down_counts_as_fired() -> None:
    life = Life({"cron": "* * * * *", "timeZone": "UTC"})
    life.now += 65
    life.look(writes=False)
    found = life.look()
    assert (found.fire, found.found, found.skipped) == ((), tuple(life.fired), 0)
    assert life.subject.status is not None and life.subject.status.run_count == len(life.fired) == 1
