"""Templates of tasks, schedules, spawners and pools: what nobody would fill in is refused, and text stays text."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rota.api import KINDS
from rota.api.form import form
from rota.api.templates import LITERAL
from rota.api.templates.expressions import literal
from rota.api.templates.ticks import filled
from tests.examples import example

POOL = {"workerPoolRef": {"name": "p"}}
TICK = {"name": "report", "uid": "u-1", "runId": "report-1", "time": "2026-01-05T12:00:00Z"}
TICK |= {"scheduledTime": TICK["time"]}


def problems(kind: str, spec: dict[str, Any]) -> list[tuple[str, str]]:
    shape, obj = form(KINDS[kind]), example(kind, spec)
    _, found = shape.conform(obj)
    assert not found
    return [(problem.field, problem.message) for problem in shape.break_rules(obj, None, [])]


def of_task(**spec: Any) -> list[tuple[str, str]]:
    return problems("Task", {**POOL, **spec} if "function" not in spec and "worker" not in spec else spec)


def of_schedule(payload: Any = None, **template: Any) -> list[tuple[str, str]]:
    where = {} if "function" in template else POOL
    spec = {"cron": "@daily", "target": {"taskTemplate": {**where, **template}}}
    return problems("Schedule", {**spec, "payload": payload} if payload is not None else spec)


def of_spawner(**template: Any) -> list[tuple[str, str]]:
    return problems("TaskSpawner", {"source": {"github": {"repo": "a/b"}}, "taskTemplate": {**POOL, **template}})


# A task.


def test_a_result_of_a_task_that_it_does_not_depend_on_is_refused() -> None:
    ((field, message),) = of_task(command=["deploy", "{{ tasks.build.outputs.image }}"])
    assert field == "spec.command[1]"
    assert message == (
        'Invalid value: "{{ tasks.build.outputs.image }}": the task does not depend on build: add it to dependsOn,'
        " which has nothing"
    )
    assert not of_task(command=["deploy", "{{ tasks.build.outputs.image }}"], dependsOn=["build"])


@pytest.mark.parametrize("field", ["stdin", "prompt"])
def test_in_longer_texts_too(field: str) -> None:
    text = "From {{ tasks.a.outputs.x }} and {{ tasks.b.outputs.y }}."
    more = {"command": ["cat"]} if field == "stdin" else {}
    ((where, message),) = of_task(**{field: text, **more}, dependsOn=["a"])
    assert where == f"spec.{field}" and "does not depend on b" in message and "which has a" in message


def test_every_mistake_is_told() -> None:
    worker = {"env": [{"name": "A", "value": "x"}, {"name": "B", "value": "{{ tasks.n.outputs.k }}"}]}
    found = of_task(
        command=["{{ tasks.m.outputs.k }}", "{{ tasks.l }}"], worker=worker, branch="{{ tasks.a.outputs.b }}"
    )
    assert [field for field, _ in found] == [
        "spec.command[0]",
        "spec.command[1]",
        "spec.worker.env[1].value",
        "spec.branch",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ tasks.a.result }}", "it is not understood; write tasks.NAME.outputs.KEY"),
        ("{{ tasks.a.outputs.x }", "it does not end in }}"),
        (
            "echo {{ tasks.a.outputs.x }}",
            "must be the whole element; a script reads it from its environment, as ROTA_TASKS_A_X",
        ),
        ("{{ schedule.time }}", "only the taskTemplate of a Schedule is told of its schedule"),
        ("{{ image }}", "image is nothing that is filled in here; there is tasks.NAME.outputs.KEY"),
        ("{{ item.title }}", "item.title is nothing that is filled in here"),
        ("{{ tasks }}", "tasks is nothing that is filled in here"),
    ],
)
def test_what_cannot_be_filled_into_a_command_is_refused(text: str, why: str) -> None:
    ((field, message),) = of_task(command=["echo", text], dependsOn=["a"])
    assert field == "spec.command[1]" and why in message


@pytest.mark.parametrize(
    "text",
    [
        "{{.State.Running}}",
        "{{ range .Items }}{{ . }}{{ end }}",
        "${{ github.token }}",
        "print {{ name }} with Jinja",
        f"{LITERAL} tasks.a.outputs.x }}}}",
        "{{}}",
    ],
)
def test_braces_of_others_are_text_to_a_task(text: str) -> None:
    assert not of_task(command=["echo", text])
    assert not of_task(prompt=text)


def test_a_prompt_may_be_about_templates_of_others() -> None:
    assert not of_task(prompt="{{ name }}") and not of_task(prompt="Ansible has {{ item.name }}")


def test_a_payload_is_data_unless_the_task_has_dependencies() -> None:
    call = {"function": {"name": "f", "payload": {"deep": [{"text": "{{ tasks.a.outputs.x }}"}]}}}
    assert not of_task(**call)
    assert not of_task(**call, dependsOn=["a"])
    ((field, _),) = of_task(**call, dependsOn=["b"])
    assert field == "spec.function.payload.deep[0].text"


def test_what_was_piped_in_is_taken_whatever_it_looks_like() -> None:
    for text in ("{{ tasks.a.outputs.x }}", "{{ schedule.time }}", "{{ tasks.", '{{ "{{" }}', "{{ x }}"):
        assert not of_task(command=["cat"], stdin=literal(text)), text


# A schedule.


def test_a_schedule_knows_itself_and_nothing_else() -> None:
    fields = " ".join(f"{{{{ schedule.{name} }}}}" for name in TICK)
    assert not of_schedule(command=["sh", "-c", f"echo {fields}"], stdin=fields, branch="nightly/{{ schedule.runId }}")
    ((field, message),) = of_schedule(prompt="At {{ schedule.tiem }}")
    assert field == "spec.target.taskTemplate.prompt"
    assert message.endswith("a schedule has no tiem; it has: name, uid, runId, time, scheduledTime")


def test_names_of_nothing_are_refused_anywhere_in_the_template_of_a_schedule() -> None:
    assert [field for field, _ in of_schedule(prompt="For {{ customer }}, with {{ item.x }}")] == [
        "spec.target.taskTemplate.prompt",
        "spec.target.taskTemplate.prompt",
    ]
    assert not of_schedule(command=["docker", "ps", "--format", "{{.Names}} {{ range .Ports }}{{ . }}{{ end }}"])


def test_the_payload_of_a_schedule_is_a_template_too() -> None:
    call = {"function": {"name": "f", "payload": {"at": "{{ schedule.time }}"}}}
    assert not of_schedule(payload={"by": "{{ schedule.name }}"}, **call)
    ((field, _),) = of_schedule(payload={"by": ["{{ tasks.a.outputs.x }}"]}, **call)
    assert field == "spec.payload.by[0]"


def test_a_tick_is_put_in_everywhere_and_what_is_the_tasks_is_left_to_it() -> None:
    text = "{{ schedule.time }} {{schedule.runId}} {{ tasks.a.outputs.x }} " + LITERAL + " {{.Go}}"
    put = "2026-01-05T12:00:00Z report-1 {{ tasks.a.outputs.x }} " + LITERAL + " {{.Go}}"
    spec = {
        "command": ["sh", "-c", text],
        "stdin": text,
        "worker": {"env": [{"name": "A", "value": text}, {"name": "B", "valueFrom": {}}]},
        "function": {"name": "f", "payload": {"a": [text], "n": 1}},
        "dependsOn": ["a"],
        "branch": "{{ schedule.name }}",
        "affinity": {"key": LITERAL},
        "priority": 3,
    }
    assert filled(spec, TICK) == {
        "command": ["sh", "-c", put],
        "stdin": put,
        "worker": {"env": [{"name": "A", "value": put}, {"name": "B", "valueFrom": {}}]},
        "function": {"name": "f", "payload": {"a": [put], "n": 1}},
        "dependsOn": ["a"],
        "branch": "report",
        "affinity": {"key": "{{"},
        "priority": 3,
    }


# A spawner, and a pool.


def test_a_spawner_is_checked_for_its_items_and_for_its_tasks() -> None:
    found = of_spawner(
        command=["{{ item.titel }}", "{{ tasks.a.outputs.x }}", "{{ item.title }}", "{{ schedule.time }}"]
    )
    assert [(field, message.partition(": ")[2].split('": ')[1][:20]) for field, message in found] == [
        ("spec.taskTemplate.command[0]", "an item has no titel"),
        ("spec.taskTemplate.command[3]", "that is not understo"),
        ("spec.taskTemplate.command[1]", "the task does not de"),
    ]


def test_what_a_field_cannot_hold_is_refused_for_a_spawner() -> None:
    worker = {"type": "codex", "model": "{{ item.title }}"}
    spec = {"source": {"github": {"repo": "a/b"}}, "taskTemplate": {"prompt": "p", "worker": worker}}
    (field, message), _ = problems("TaskSpawner", spec)
    assert field == "spec.taskTemplate.worker.model" and "this field cannot be filled in" in message


def test_the_variables_of_a_pool_are_checked_for_their_form() -> None:
    def of(value: str) -> list[tuple[str, str]]:
        return problems("WorkerPool", {"worker": {"env": [{"name": "A", "value": value}]}})

    assert not of("{{ tasks.any.outputs.thing }}") and not of("about {{ x }}")
    assert [field for field, _ in of("{{ tasks.any }}")] == ["spec.worker.env[0].value"]
    assert of("{{ image }}") and of("{{ schedule.time }}")


@pytest.mark.parametrize("text", ["{{ tasks." + " " * 60_000, "{{" * 30_000, "{{ a." * 13_000, "{{ tasks.a" * 6_000])
def test_no_text_takes_long_to_check(text: str) -> None:
    began = time.monotonic()
    of_task(command=["cat"], stdin=text)
    of_schedule(prompt=text)
    assert time.monotonic() - began < 2.0
