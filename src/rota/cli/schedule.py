"""`rota schedule`."""

from __future__ import annotations

import os
import time
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from rota.api import Schedule, Task
from rota.cli.command import command
from rota.cli.cron import SHOWN, parts, shown, understood, upcoming
from rota.cli.following import everything
from rota.cli.naming import name_in, reference
from rota.cli.options import AllNamespaces
from rota.cli.output import Columns, note, print_line
from rota.cli.session import CommandError, Session
from rota.cli.usage import Group
from rota.client import ALL_NAMESPACES, Client

app = typer.Typer(
    cls=Group, help="List schedules, run them now, pause them, and show their runs.", rich_markup_mode=None
)

Object = dict[str, Any]
NONCE_BYTES = 8
LISTED_RUNS = 5
"""Runs that a wide list shows."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]


class ListFormat(StrEnum):
    """The format of a list."""

    table = "table"
    wide = "wide"


@app.callback(no_args_is_help=True)
def _group() -> None:
    """List schedules, run them now, pause them, and show their runs."""


@command
async def list_(
    session: Session,
    form: Annotated[
        ListFormat, typer.Option("--output", "-o", help="Choose the format; wide has the next five runs of each.")
    ] = ListFormat.table,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show the schedules, with their last and next run."""
    async with session.client() as client:
        where = ALL_NAMESPACES if all_namespaces else None
        found, _ = await everything(client, Schedule.api, namespace=where)
    if not found:
        note("there are no schedules")
        return
    found.sort(key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"]))
    heading = ["NAME", "CRON", "ZONE", "STATE", "NEXT", "LAST", "RUNS", "SKIPPED", "ERROR"]
    if all_namespaces:
        heading.insert(0, "NAMESPACE")
    table = Columns(heading)
    rows = [_row(one) for one in found]
    if all_namespaces:
        rows = [[one["metadata"]["namespace"], *row] for one, row in zip(found, rows, strict=True)]
    if form is not ListFormat.wide:
        table.write(rows)
        return
    table.fit(rows)
    for one, row in zip(found, rows, strict=True):
        table.write([row])
        for tick in _next_runs(one, LISTED_RUNS):
            print_line("  ", *parts(tick, one["spec"].get("timeZone", "UTC")))


def _row(schedule: Object) -> list[Any]:
    from rota.api.table import age

    spec, status = schedule["spec"], schedule.get("status") or {}
    now = time.time()
    runs = status.get("runCount", 0), status.get("skippedCount", 0)
    # A tick is counted when it is fired, and its run starts a moment after.
    times = filter(None, (status.get("lastStartedTime"), status.get("lastScheduledTime")))
    last = max(times, key=lambda text: datetime.fromisoformat(text), default=None)
    return [
        schedule["metadata"]["name"],
        spec["cron"],
        spec.get("timeZone", "UTC"),
        _state(schedule),
        _ahead(status.get("nextRunTime"), now),
        f"{age(last, now)} ago" if last else "",
        *runs,
        status.get("lastError"),
    ]


def _state(schedule: Object) -> str:
    conditions = (schedule.get("status") or {}).get("conditions", [])
    ready = next((one for one in conditions if one["type"] == "Ready"), None)
    if not schedule["spec"].get("enabled", True):
        return "Paused"
    return "Pending" if ready is None else str(ready["reason"])


def _ahead(text: str | None, now: float) -> str:
    from rota.api.table import duration

    if text is None:
        return ""
    left = datetime.fromisoformat(text).timestamp() - now
    return f"in {duration(left)}" if left > 0 else "now"


def _next_runs(schedule: Object, count: int) -> list[int]:
    """Return the next ticks of a schedule; none while it is paused, or if its cron is invalid."""
    spec, status = schedule["spec"], schedule.get("status") or {}
    if not spec.get("enabled", True):
        return []
    try:
        ticking = understood(spec["cron"], spec.get("timeZone", "UTC"))
    except CommandError:
        return []
    last = status.get("lastScheduledTime")
    return upcoming(ticking, max(time.time(), datetime.fromisoformat(last).timestamp() if last else 0), count)


@command
async def show(session: Session, name: Name) -> None:
    """Show a schedule with its next five runs."""
    name = name_in(name, Schedule.api)
    async with session.client() as client:
        found = await client.get(Schedule.api, name)
    spec, status = found["spec"], found.get("status") or {}
    zone = spec.get("timeZone", "UTC")
    target = spec["target"]
    print_line(reference(Schedule.api, name), f"  {_state(found)}")
    print_line(f"  cron       {spec['cron']} ({zone})")
    print_line(f"  target     {_target(target)}")
    print_line(f"  overlap    {spec.get('overlap', 'Skip')}, catch up {spec.get('catchUp', 'Last')}")
    print_line(f"  runs       {status.get('runCount', 0)}, skipped {status.get('skippedCount', 0)}")
    troubles = [one for one in status.get("conditions", []) if one["status"] == "False"]
    for trouble in dict.fromkeys(f"{one['reason']}: {one['message']}" for one in troubles):
        print_line(f"  {trouble}")
    if status.get("lastError"):
        print_line(f"  last error {status['lastError']}")
    for tick in _next_runs(found, SHOWN):
        print_line("  next       ", *parts(tick, zone))


def _target(target: Object) -> str:
    if "functionRef" in target:
        return f"Function/{target['functionRef']['name']}"
    template = target["taskTemplate"]
    what = " ".join(template.get("command", [])) or template.get("prompt") or template.get("function", {}).get("name")
    where = template.get("workerPoolRef", {}).get("name")
    return f"{what}" + (f" on WorkerPool/{where}" if where else "")


@command
async def run(session: Session, name: Name) -> None:
    """Run a schedule's task now, beside its ticks. Prints the task's name."""
    from rota.control.schedules.making import MANUAL, manual_name, task_of

    async with session.client() as client:
        found: Schedule = await client.get(Schedule, name_in(name, Schedule.api))
        ready = found.status.condition("Ready") if found.status is not None else None
        if ready is not None and ready.reason == "RegionNotServed":
            raise CommandError(f"{reference(Schedule.api, found.metadata.name)} does not run here: {ready.message}")
        own_name = manual_name(found, os.urandom(NONCE_BYTES).hex())
        await client.create(task_of(found, int(time.time()), own_name, MANUAL))
    print_line(reference(Task.api, own_name))


@command
async def pause(session: Session, name: Name) -> None:
    """Stop a schedule from ticking. What runs goes on."""
    await _set_enabled(session, name, enabled=False)


@command
async def resume(session: Session, name: Name) -> None:
    """Let a schedule tick again. Ticks missed during the pause are not made up for."""
    await _set_enabled(session, name, enabled=True)


async def _set_enabled(session: Session, name: str, *, enabled: bool) -> None:
    name = name_in(name, Schedule.api)
    async with session.client() as client:
        found = await client.get(Schedule.api, name)
        state = "ticks" if enabled else "is paused"
        if found["spec"].get("enabled", True) == enabled:
            print_line(f"{reference(Schedule.api, name)} {state} already")
            return
        await client.patch(Schedule.api, name, {"spec": {"enabled": enabled}})
    print_line(f"{reference(Schedule.api, name)} {state}")


@command
async def history(session: Session, name: Name) -> None:
    """Show the runs of a schedule that are kept, the newest first."""
    name = name_in(name, Schedule.api)
    async with session.client() as client:
        schedule = await client.get(Schedule.api, name)
        tasks = await _tasks(client, schedule)
    if not tasks:
        note(f"{reference(Schedule.api, name)} has no runs")
        return
    zone = schedule["spec"].get("timeZone", "UTC")
    table = Columns(["SCHEDULED", "TASK", "TRIGGER", "PHASE", "TOOK", "MESSAGE"])
    table.write([_run(task, zone) for task in tasks])


async def _tasks(client: Client, schedule: Object) -> list[Object]:
    from rota.control.schedules.making import SCHEDULE_LABEL, SCHEDULE_UID, SCHEDULED_TIME, label_of

    meta = schedule["metadata"]
    labels = f"{SCHEDULE_LABEL}={label_of(meta['name'])}"
    found, _ = await everything(client, Task.api, namespace=None, labels=labels)
    own = [task for task in found if task["metadata"].get("annotations", {}).get(SCHEDULE_UID) == meta["uid"]]
    return sorted(own, key=lambda task: str(task["metadata"]["annotations"].get(SCHEDULED_TIME)), reverse=True)


def _run(task: Object, zone: str) -> list[Any]:
    from rota.cli.tasks import span
    from rota.control.schedules.making import SCHEDULED_TIME, TRIGGER

    notes, status = task["metadata"]["annotations"], task.get("status") or {}
    times = [status.get(field) for field in ("startTime", "completionTime")]
    took = ""
    if all(times):
        began, ended = (datetime.fromisoformat(str(text)).timestamp() for text in times)
        took = span(max(0.0, ended - began))
    said = (status.get("message") or "").strip().partition("\n")[0]
    when = int(datetime.fromisoformat(notes[SCHEDULED_TIME]).timestamp())
    reason = status.get("reason") if status.get("reason") not in (None, status.get("phase")) else ""
    message = ": ".join(part for part in (reason, said) if part)
    return [
        shown(when, zone),
        task["metadata"]["name"],
        notes.get(TRIGGER),
        status.get("phase") or "Waiting",
        took,
        message,
    ]


app.command("list")(list_)
app.command("show")(show)
app.command("run")(run)
app.command("pause")(pause)
app.command("resume")(resume)
app.command("history")(history)
