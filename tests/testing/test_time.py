"""Time passes when a test says so, and everything is done at its moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.testing import NotIdle, Project
from tests.testing.projects import COMMANDS, MARCH, NIGHTLY, with_field


def test_a_month_has_a_run_for_each_tick_at_its_time() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        project.advance(days=31)
        runs = project.runs("report.nightly")
        assert [run.at for run in runs] == [datetime(2026, 3, day, 3, tzinfo=UTC) for day in range(1, 32)]
        assert all(run.succeeded and run.started == run.at == run.ended for run in runs)
        assert runs[0].result == {"said": "2026-03-01T03:00:00Z", "by": "report"}


def test_history_is_kept_as_the_schedule_says_and_runs_all_the_same() -> None:
    with Project(with_field(NIGHTLY, "history: {succeeded: 2}"), at=MARCH) as project:
        project.advance(days=10)
        assert len(project.list("Task")) == 2 and len(project.runs("report.nightly")) == 10
        assert project.get("Schedule", "report.nightly").status.run_count == 10


def test_a_time_zone_has_its_summer() -> None:
    with Project(with_field(NIGHTLY, "timeZone: Europe/Berlin"), at="2026-03-28T00:00:00Z") as project:
        project.advance(days=2)
        assert [run.at.hour for run in project.runs("report.nightly")] == [2, 1]


def test_what_is_due_at_the_last_moment_is_done() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        project.until("2026-03-01T02:59:59Z")
        assert project.runs("report.nightly") == []
        project.advance(seconds=1)
        assert [run.phase for run in project.runs("report.nightly")] == ["Succeeded"]


def test_a_moment_without_a_zone_is_in_utc() -> None:
    with Project(NIGHTLY, at="2026-03-01") as project:
        project.until(datetime(2026, 3, 2))
        assert project.now == datetime(2026, 3, 2, tzinfo=UTC)


def test_time_does_not_go_back() -> None:
    with Project(NIGHTLY, at=MARCH) as project, pytest.raises(ValueError, match="time does not go back"):
        project.until("2026-02-01")


@pytest.mark.parametrize(
    ("overlap", "phases"),
    [
        ("Skip", ["Succeeded", "Succeeded", "Running"]),
        ("Replace", ["Cancelled"] * 5 + ["Running"]),
        ("Allow", ["Succeeded"] * 4 + ["Running"] * 2),
    ],
)
def test_what_takes_longer_than_its_cron_overlaps_as_the_schedule_says(overlap: str, phases: list[str]) -> None:
    text = with_field(NIGHTLY, f"overlap: {overlap}").replace("0 3 * * *", "*/10 * * * *")
    with Project(text.replace("- name: report", "- name: report\n    timeoutSeconds: 3600"), at=MARCH) as project:
        project.on("report", takes=timedelta(minutes=15))
        project.advance(hours=1)
        assert [run.phase for run in project.runs("report.nightly")] == phases


def test_a_pool_of_one_worker_runs_one_after_the_other() -> None:
    with Project(with_field(COMMANDS, "overlap: Allow"), at=MARCH) as project:
        project.on("workers", takes=timedelta(minutes=25))
        project.advance(hours=1, seconds=1)
        started = [run.started for run in project.runs("tidy") if run.started is not None]
        assert [f"{at:%H:%M}" for at in started] == ["00:10", "00:35", "01:00"]
        assert {run.phase for run in project.runs("tidy")} == {"Succeeded", "Running", "Queued"}


def test_a_function_takes_as_many_calls_at_once_as_its_workers_would() -> None:
    text = with_field(NIGHTLY, "overlap: Allow").replace("0 3 * * *", "* * * * *")
    function = "- name: report\n    timeoutSeconds: 3600\n    scale: {max: 2}"
    with Project(text.replace("- name: report", function), at=MARCH) as project:
        project.on("report", takes=600)
        project.advance(minutes=5, seconds=1)
        assert [run.phase for run in project.runs()] == ["Running", "Running", "Queued", "Queued", "Queued"]
        project.advance(minutes=7)
        assert [run.phase for run in project.runs()][:5] == ["Succeeded", "Succeeded", "Running", "Running", "Queued"]


@pytest.mark.parametrize(("catch_up", "minutes"), [("None", []), ("Last", [50]), ("All", [0, 10, 20, 30, 40, 50])])
def test_what_was_missed_while_the_server_was_down_is_made_up_for(catch_up: str, minutes: list[int]) -> None:
    with Project(with_field(COMMANDS, f'catchUp: "{catch_up}"'), at="2026-03-01T00:55:00Z") as project:
        project.down(minutes=62)
        assert [run.at.minute for run in project.runs("tidy")] == minutes
        project.advance(minutes=3)
        assert [run.at.hour for run in project.runs("tidy")][-1] == 2, "it goes on as before"


def test_what_workers_have_begun_outlives_the_server_and_calls_do_not() -> None:
    both = COMMANDS + NIGHTLY.partition("name: shop")[2].replace("0 3 * * *", "*/10 * * * *")
    with Project(both, at=MARCH) as project:
        project.on("workers", takes=300)
        project.on("report", takes=20)
        project.advance(minutes=10)
        project.down(minutes=6)
        (tidy,), (report,) = project.runs("tidy"), project.runs("report.nightly")
        assert (tidy.phase, report.phase) == ("Succeeded", "Running")
        assert [call.attempt for call in project.calls("tidy")] == [1]
        assert [call.attempt for call in project.calls("report")] == [1, 2]


def test_it_is_idle_when_all_tasks_are_over() -> None:
    with Project(COMMANDS, at=MARCH) as project:
        project.on("workers", takes=timedelta(minutes=5))
        project.advance(minutes=10)
        project.run_until_idle()
        assert project.now == datetime(2026, 3, 1, 0, 15, tzinfo=UTC)
        assert [run.phase for run in project.runs("tidy")] == ["Succeeded"]


def test_what_is_never_over_is_named_with_its_reason() -> None:
    with Project(COMMANDS.replace("replicas: 1", "replicas: 0"), at=MARCH) as project:
        project.run("tidy")
        project.pause("tidy")
        with pytest.raises(NotIdle, match=r"tidy-run-\w+: Queued"):
            project.run_until_idle(timedelta(hours=1))
