"""The Task of a tick: its unique name, its body, and the variables with its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.api import Schedule, Task
from rota.api.templates import ticks
from rota.control.functions import call_tasks
from rota.control.instances.names import LABEL_LENGTH_MAX, tailed
from rota.registry import privileges

SCHEDULE_LABEL = "rota.dev/schedule"
SCHEDULE_NAME = "rota.dev/schedule-name"
SCHEDULE_UID = "rota.dev/schedule-uid"
SCHEDULED_TIME = "rota.dev/scheduled-time"
TRIGGER = "rota.dev/trigger"
COUNTED = "rota.dev/run-counted"
"""Annotation of the Task of a manual run: the schedule has counted it."""
CRON = "cron"
MANUAL = "manual"

Body = dict[str, Any]


def task_name(schedule: Schedule, tick: int) -> str:
    """Return the name of a tick's Task, which depends on the schedule and the tick only. It ends in a hash of both."""
    return tailed(schedule.metadata.name, f"{_utc(tick):%Y%m%d%H%M}", kind=f"{schedule.metadata.uid} {tick}")


def manual_name(schedule: Schedule, nonce: str) -> str:
    """Return the name of the Task of a manual run."""
    return tailed(schedule.metadata.name, "run", kind=f"{schedule.metadata.uid} {nonce}")


def label_of(schedule: str) -> str:
    """Return the value of the label that selects the Tasks of a schedule."""
    return schedule if len(schedule) <= LABEL_LENGTH_MAX else tailed(schedule)


def task_of(schedule: Schedule, tick: int, name: str, trigger: str = CRON) -> Body:
    meta = schedule.metadata
    owner = {
        "apiVersion": schedule.api.api_version,
        "kind": schedule.api.name,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    notes = {
        SCHEDULE_NAME: meta.name,
        SCHEDULE_UID: meta.uid,
        SCHEDULED_TIME: time_text(tick),
        TRIGGER: trigger,
        **privileges.inherited(meta.annotations),
    }
    spec = _spec(schedule, tick, name)
    called = call_tasks.label_of(spec["function"]["name"]) if "function" in spec else {}
    return {
        "apiVersion": Task.api.api_version,
        "kind": Task.api.name,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {SCHEDULE_LABEL: label_of(meta.name), **called},
            "annotations": notes,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _spec(schedule: Schedule, tick: int, name: str) -> Body:
    """Return the spec of a Task, with the tick filled into the template, and into the event of a function.

    A command has the tick in its `environment`.
    """
    target, meta = schedule.spec.target, schedule.metadata
    run = {"name": meta.name, "uid": meta.uid, "runId": name, "scheduledTime": time_text(tick)}
    fields = {**run, "time": run["scheduledTime"]}
    if target.task_template is not None:
        spec: Body = ticks.filled(msgspec.to_builtins(target.task_template), fields)
    else:
        assert target.function_ref is not None
        spec = {"function": {"name": target.function_ref.name}}
    if "function" in spec:
        own = spec["function"].get("payload") or {}
        common = ticks.payload(schedule.spec.payload or {}, fields, is_data=not spec.get("dependsOn"))
        spec["function"] = {**spec["function"], "payload": {**common, **own, "schedule": run}}
    return spec


def environment(task: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a Task's command with its schedule; none if the Task is not of a schedule."""
    if SCHEDULE_UID not in annotations:
        return {}
    return {
        "ROTA_SCHEDULE_NAME": annotations.get(SCHEDULE_NAME, ""),
        "ROTA_SCHEDULE_UID": annotations[SCHEDULE_UID],
        "ROTA_SCHEDULE_RUN_ID": task,
        "ROTA_SCHEDULE_TIME": annotations.get(SCHEDULED_TIME, ""),
    }


def time_text(moment: int) -> str:
    return f"{_utc(moment):%Y-%m-%dT%H:%M:%SZ}"


def _utc(moment: int) -> datetime:
    return datetime.fromtimestamp(moment, UTC)
