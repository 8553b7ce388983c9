"""The variables that a run gets from its schedule."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.api import Instance, Task
from rota.control.schedules.making import MANUAL, task_name, task_of
from rota.control.tasks.jobs import job
from rota.engine import StoreObjects
from rota.registry import Registry
from rota.store import MemoryStore
from tests.schedules.subjects import schedule

TICK = 1_767_614_460


def environment(task: Task) -> dict[str, str]:
    spec: dict[str, Any] = {"containers": [{"name": "main"}], "templateHash": "t", "ordinal": 0, "worker": {}}
    instance = msgspec.convert({"metadata": {"name": "w-0", "namespace": "default"}, "spec": spec}, Instance)
    made = job(StoreObjects(Registry(MemoryStore())), task, instance, "1", "log")
    return {name: value for name, value in made.env.items() if name.startswith("ROTA_SCHEDULE_")}


def test_a_command_is_told_of_its_schedule_in_the_environment() -> None:
    subject = schedule()
    name = task_name(subject, TICK)
    assert environment(msgspec.convert(task_of(subject, TICK, name), Task)) == {
        "ROTA_SCHEDULE_NAME": "tick",
        "ROTA_SCHEDULE_UID": "uid-1",
        "ROTA_SCHEDULE_RUN_ID": name,
        "ROTA_SCHEDULE_TIME": "2026-01-05T12:01:00Z",
    }


def test_a_task_of_no_schedule_is_told_nothing() -> None:
    body = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"command": ["true"], "worker": {}}}
    assert environment(msgspec.convert(body, Task)) == {}


def test_a_template_that_calls_a_function_keeps_what_it_says_itself() -> None:
    template = {"function": {"name": "f", "payload": {"a": 1}}}
    subject = schedule(target={"taskTemplate": template}, payload={"a": 2, "b": 3})
    payload = task_of(subject, TICK, "n", MANUAL)["spec"]["function"]["payload"]
    assert (payload["a"], payload["b"], payload["schedule"]["runId"]) == (1, 3, "n")


def test_a_template_has_the_tick_where_it_asks_for_it() -> None:
    template = {
        "command": ["sh", "-c", "report --for {{ schedule.time }} --run {{ schedule.runId }}", "{{ schedule.name }}"],
        "stdin": "{{schedule.scheduledTime}} {{ schedule.uid }}",
        "branch": "report/{{ schedule.runId }}",
        "worker": {"env": [{"name": "AT", "value": "{{ schedule.time }}"}]},
    }
    made = task_of(schedule(target={"taskTemplate": template}), TICK, "n")["spec"]
    assert made["command"] == ["sh", "-c", "report --for 2026-01-05T12:01:00Z --run n", "tick"]
    assert made["stdin"] == "2026-01-05T12:01:00Z uid-1"
    assert made["branch"] == "report/n"
    assert made["worker"]["env"] == [{"name": "AT", "value": "2026-01-05T12:01:00Z"}]


def test_so_have_the_payloads_of_a_schedule_and_of_its_template() -> None:
    called = schedule(target={"functionRef": {"name": "f"}}, payload={"for": ["{{ schedule.time }}"], "n": 1})
    assert task_of(called, TICK, "n")["spec"]["function"]["payload"]["for"] == ["2026-01-05T12:01:00Z"]
    template = {"function": {"name": "f", "payload": {"a": "{{ schedule.runId }}"}}}
    both = schedule(target={"taskTemplate": template}, payload={"b": "{{ schedule.name }}"})
    payload = task_of(both, TICK, "n")["spec"]["function"]["payload"]
    assert (payload["a"], payload["b"]) == ("n", "tick")
