"""`rota schedule` and `rota cron`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Client
from rota.api import Task
from tests.cli.conftest import Terminal

Object = dict[str, Any]
TARGET = {"taskTemplate": {"command": ["make", "report"], "workerPoolRef": {"name": "agents"}}}


def put(rota: Terminal, name: str = "report", status: Object | None = None, **spec: Any) -> None:
    body = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {"cron": "30 2 * * *", "timeZone": "Europe/Berlin", "target": TARGET, **spec},
    }

    async def act(client: Client) -> None:
        made = await client.create(body)
        if status is not None:
            await client.update_status({**made, "status": status})

    rota.act(act)


def test_a_list_shows_what_ticks_when(rota: Terminal) -> None:
    put(rota, status={"runCount": 4, "skippedCount": 1, "lastError": "Failed: boom"})
    put(rota, "quiet", enabled=False)
    ran = rota("schedule", "list")
    assert ran.code == 0
    assert ran.lines[0][:5] == ["NAME", "CRON", "ZONE", "STATE", "NEXT"]
    quiet, report = ran.out.splitlines()[1:]
    assert "Paused" in quiet
    assert "30 2 * * *   Europe/Berlin" in report and report.endswith("4      1         Failed: boom")


def test_a_wide_list_shows_the_next_five_runs_of_each(rota: Terminal) -> None:
    put(rota)
    ran = rota("schedule", "list", "-o", "wide")
    assert sum(" 02:30:00 +0" in line for line in ran.out.splitlines()) == 5


def test_columns_are_as_wide_as_the_longest_of_all(rota: Terminal) -> None:
    for name in ("a", "one-with-a-longer-name"):
        put(rota, name)
    for form in ("table", "wide"):
        rows = [line for line in rota("schedule", "list", "-o", form).out.splitlines() if not line.startswith("  ")]
        assert len({row.find("30 2 * * *") for row in rows[1:]} | {rows[0].find("CRON")}) == 1, rows


def test_show_has_the_next_five_runs(rota: Terminal) -> None:
    put(rota)
    ran = rota("schedule", "show", "report")
    assert "target     make report on WorkerPool/agents" in ran.out
    assert ran.out.count("  next  ") == 5


def test_without_schedules_that_is_said(rota: Terminal) -> None:
    assert rota("schedule", "list").err == "there are no schedules\n"


def test_run_makes_a_task_beside_the_ticks(rota: Terminal) -> None:
    put(rota, status={"lastScheduledTime": "2026-01-05T01:30:00Z"})
    ran = rota("schedule", "run", "report")
    assert ran.code == 0
    name = ran.out.strip().removeprefix("task.rota.dev/")
    task = rota.stored("Task", name)
    assert task["spec"]["command"] == ["make", "report"]
    assert task["metadata"]["annotations"]["rota.dev/trigger"] == "manual"
    assert task["metadata"]["ownerReferences"][0]["name"] == "report"
    assert rota.stored("Schedule", "report")["status"]["lastScheduledTime"] == "2026-01-05T01:30:00Z"


def test_where_no_cell_serves_its_regions_it_does_not_run_by_hand_either(rota: Terminal) -> None:
    why = {"type": "Ready", "status": "False", "reason": "RegionNotServed", "message": "no cell serves fra"}
    put(rota, regions=["fra"], status={"conditions": [{**why, "lastTransitionTime": "2026-01-05T01:30:00Z"}]})
    ran = rota("schedule", "run", "report")
    assert ran.code == 1 and "schedule.rota.dev/report does not run here: no cell serves fra" in ran.err
    assert rota("schedule", "history", "report").err == "schedule.rota.dev/report has no runs\n"


def test_what_holds_it_up_is_shown_once(rota: Terminal) -> None:
    why = {"status": "False", "reason": "DependencyNotFound", "message": "no such pool"}
    both = [{**why, "type": one, "lastTransitionTime": "2026-01-05T01:30:00Z"} for one in ("ResolvedRefs", "Ready")]
    put(rota, status={"conditions": both})
    assert rota("schedule", "show", "report").out.count("DependencyNotFound: no such pool") == 1


@pytest.mark.parametrize("prefix", ["sched/", "schedule.rota.dev/"])
@pytest.mark.parametrize("command", ["show", "run", "pause", "resume", "history"])
def test_a_name_may_have_its_kind_before_it(rota: Terminal, command: str, prefix: str) -> None:
    put(rota)
    assert rota("schedule", command, f"{prefix}report").code == 0
    assert "task/report is no schedule" in rota("schedule", command, "task/report").err


def test_two_runs_are_two_tasks(rota: Terminal) -> None:
    put(rota)
    assert rota("schedule", "run", "report").out != rota("schedule", "run", "report").out


def test_pause_and_resume_are_said_and_done(rota: Terminal) -> None:
    put(rota)
    assert rota("schedule", "pause", "report").out == "schedule.rota.dev/report is paused\n"
    assert rota.stored("Schedule", "report")["spec"]["enabled"] is False
    assert rota("schedule", "pause", "report").out == "schedule.rota.dev/report is paused already\n"
    assert rota("schedule", "resume", "report").out == "schedule.rota.dev/report ticks\n"
    assert rota.stored("Schedule", "report")["spec"].get("enabled", True) is True


def test_history_shows_the_runs_with_how_each_ended(rota: Terminal) -> None:
    put(rota)
    name = rota("schedule", "run", "report").out.strip().removeprefix("task.rota.dev/")

    async def end(client: Client) -> None:
        task = await client.get(Task.api, name)
        times = {"startTime": "2026-01-05T01:30:00Z", "completionTime": "2026-01-05T01:30:02Z"}
        await client.update_status({**task, "status": {"phase": "Failed", "reason": "Timeout", **times}})

    rota.act(end)
    ran = rota("schedule", "history", "report")
    [row] = ran.lines[1:]
    assert row[4:] == [name, "manual", "Failed", "2.0s", "Timeout"]


def test_history_of_a_namesake_that_is_gone_is_not_shown(rota: Terminal) -> None:
    put(rota)
    name = rota("schedule", "run", "report").out.strip().removeprefix("task.rota.dev/")
    other = {"metadata": {"annotations": {"rota.dev/schedule-uid": "another"}}}
    rota.act(lambda client: client.patch(Task.api, name, other))
    assert rota("schedule", "history", "report").err == "schedule.rota.dev/report has no runs\n"


@pytest.mark.parametrize("command", ["show", "run", "pause", "resume", "history"])
def test_one_that_is_not_there_is_told(rota: Terminal, command: str) -> None:
    ran = rota("schedule", command, "none")
    assert ran.code == 1 and "not found" in ran.err


def test_cron_shows_the_next_runs_without_a_server(rota: Terminal) -> None:
    ran = rota("cron", "*/5 * * * *", "--tz", "Asia/Kathmandu", "-c", "3")
    assert ran.code == 0
    assert len(ran.lines) == 3
    assert all("+0545" in line for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["61 * * * *"], 'CRON: Invalid value: "61 * * * *": minute 61 is too high: it must be 0 to 59'),
        (["* * * *"], 'CRON: Invalid value: "* * * *": it has 4 fields, and must have 5'),
        (["* * * * *", "--tz", "Berlin"], '--tz: Invalid value: "Berlin": it is no time zone; write an IANA name'),
        (["0 0 30 2 *"], 'CRON: Invalid value: "0 0 30 2 *": it never ticks'),
    ],
)
def test_cron_says_what_is_wrong(rota: Terminal, argv: list[str], said: str) -> None:
    ran = rota("cron", *argv)
    assert ran.code == 2 and said in ran.err


def test_the_last_run_is_the_newest_that_is_counted_also_before_it_starts(rota: Terminal) -> None:
    ticked = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    status = {
        "runCount": 2,
        "lastStartedTime": (ticked - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lastScheduledTime": ticked.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    put(rota, status=status)
    assert "   5m" in rota("schedule", "list").out.splitlines()[1]
