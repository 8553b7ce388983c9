"""The text of an item, put into a task: once, as data, or not at all."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from rota.api.spawner import TaskSpawnerSpec
from rota.api.task import Dependency, TaskTemplate
from rota.api.templates import LITERAL, TemplateError
from rota.api.templates.items import fill, problems, resolver
from rota.control.tasks.templating import given

ITEM = {
    "title": "Broken",
    "number": 12,
    "open": True,
    "ratio": 0.5,
    "nothing": None,
    "labels": ["bug", "p1"],
    "user": {"login": "ann"},
    "comments": [{"text": "a"}, {"text": "b"}, {}],
}
SECOND_SECONDS_MAX = 1.0


def template(**fields: Any) -> TaskTemplate:
    return msgspec.convert({"workerPoolRef": {"name": "p"}, **fields}, TaskTemplate)


def filled(item: Any = None, **fields: Any) -> dict[str, Any]:
    return fill(template(**fields), resolver(ITEM if item is None else item))


def prompt(text: str, item: Any = None) -> str:
    made: str = filled(item, prompt=text)["prompt"]
    return made


def refused(text: str) -> str:
    with pytest.raises(TemplateError) as caught:
        prompt(text)
    return str(caught.value)


def test_fields_are_filled_in_anywhere_in_a_prompt() -> None:
    assert prompt("Fix {{ item.title }} (#{{item.number}}).") == "Fix Broken (#12)."


def test_values_are_written_as_people_expect_them() -> None:
    assert prompt("{{ item.open }} {{ item.ratio }} [{{ item.nothing }}] {{ item.labels }}") == (
        'true 0.5 [] ["bug","p1"]'
    )


def test_a_path_reaches_into_objects_and_lists() -> None:
    assert prompt("{{ item.user.login }} {{ item.labels.1 }} {{ item.comments.text }}") == 'ann p1 ["a","b"]'


def test_the_item_as_a_whole_is_json() -> None:
    assert msgspec.json.decode(prompt("{{ item }}")) == ITEM


def test_an_unknown_field_is_an_error_that_names_what_there_is() -> None:
    said = refused("Fix {{ item.titel }}")
    assert said.startswith("taskTemplate.prompt: {{ item.titel }}: the item has no titel; it has: comments, labels,")


@pytest.mark.parametrize("path", ["labels.2", "labels.-1", "title.x", "user.name", "number.0"])
def test_what_is_not_at_a_path_is_an_error(path: str) -> None:
    assert f"the item has no {path}" in refused(f"{{{{ item.{path} }}}}")


@pytest.mark.parametrize(
    "text",
    ["{{ title }}", "{{ itm.title }}", "{{ item. }}", "{{ item..title }}", "{{ item title }}", "{{}}", "${{ env.X }}"],
)
def test_an_expression_that_is_not_understood_is_an_error_and_no_text(text: str) -> None:
    assert "is not understood" in refused(text)


@pytest.mark.parametrize("text", ["{{ item.title", "{{ item.title }", "a {{ b {{ item.title }}"])
def test_braces_that_are_not_closed_are_an_error(text: str) -> None:
    assert "is not closed" in refused(text)


def test_braces_themselves_can_be_written() -> None:
    assert prompt(f"${LITERAL} github.ref }}}} {{x}} }}}}") == "${{ github.ref }} {x} }}"


def test_what_is_put_in_is_not_looked_at_again() -> None:
    assert (
        prompt("{{ item.a }} {{ item.b }}", {"a": "{{ item.b }}", "b": "{{ item.a }}"}) == "{{ item.b }} {{ item.a }}"
    )


def test_expressions_for_the_task_itself_are_left_to_it() -> None:
    text = "{{ tasks.build.outputs.url }} for {{ item.title }}"
    assert prompt(text) == "{{ tasks.build.outputs.url }} for Broken"


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("{{ item.a }}", {"a": "{{ tasks.build.outputs.key }}"}),
        ("{{ item.a }}{{ item.b }}", {"a": "{", "b": "{ tasks.build.outputs.key }}"}),
        ("{{ item.a }} }}", {"a": "{{tasks.build.outputs.key"}),
        ("{{{ item.a }}", {"a": "{ tasks.build.outputs.key }}"}),
        ("{{ item }}", {"a": "{{ tasks.build.outputs.key }}"}),
    ],
)
def test_an_item_cannot_ask_for_the_result_of_another_task(text: str, item: Any) -> None:
    mine = "; {{ tasks.build.outputs.url }}"
    spec = msgspec.convert(filled(item, prompt=text + mine, dependsOn=["build"]), TaskTemplate)
    outputs = {"key": "TOP SECRET", "url": "https://x"}
    made = given(spec, [Dependency(name="build", uid="u", phase="Succeeded", outputs=outputs)])  # type: ignore[arg-type]
    assert "TOP SECRET" not in made.prompt and made.prompt.endswith("; https://x")


def test_in_a_command_an_item_is_a_whole_element() -> None:
    assert filled(command=["say", "{{ item.title }}", "{{ item.number }}"])["command"] == ["say", "Broken", "12"]


@pytest.mark.parametrize("element", ["echo {{ item.title }}", "{{ item.title }} ", "{{ item.title }}{{ item.title }}"])
def test_a_part_of_an_element_is_refused(element: str) -> None:
    with pytest.raises(TemplateError, match=r"command\[2\]: .* must be the whole element"):
        filled(command=["sh", "-c", element])


@pytest.mark.parametrize("value", ["; rm -rf /", "$(id)", "`id`", "a\nb", "'\"", "--force"])
def test_an_element_is_what_the_item_says_to_the_letter(value: str) -> None:
    assert filled({"v": value}, command=["say", "--", "{{ item.v }}"])["command"][2] == value


def test_a_payload_gets_values_and_not_their_text() -> None:
    payload = {"n": "{{ item.number }}", "all": ["{{ item.labels }}"], "text": "#{{ item.number }}", "plain": 1}
    made = fill(msgspec.convert({"function": {"name": "f", "payload": payload}}, TaskTemplate), resolver(ITEM))
    assert made["function"]["payload"] == {"n": 12, "all": [["bug", "p1"]], "text": "#12", "plain": 1}


def test_branch_holder_affinity_and_environment_can_be_filled_in() -> None:
    made = fill(
        msgspec.convert(
            {
                "prompt": "p",
                "worker": {"type": "custom", "entrypoint": ["x"], "env": [{"name": "T", "value": "{{ item.title }}"}]},
                "branch": "fix/{{ item.number }}",
                "holder": "{{ item.user.login }}",
                "affinity": {"key": "{{ item.title }}"},
            },
            TaskTemplate,
        ),
        resolver(ITEM),
    )
    assert (made["branch"], made["holder"], made["affinity"]["key"]) == ("fix/12", "ann", "Broken")
    assert made["worker"]["env"] == [{"name": "T", "value": "Broken"}]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "p", "workerPoolRef": {"name": "{{ item.title }}"}},
        {"prompt": "p", "dependsOn": ["{{ item.title }}"]},
        {"function": {"name": "{{ item.title }}"}, "workerPoolRef": None},
    ],
)
def test_an_item_cannot_choose_what_a_task_refers_to(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        filled(**fields)


def test_the_name_of_a_field_of_a_payload_cannot_be_filled_in() -> None:
    made = msgspec.convert({"function": {"name": "f", "payload": {"{{ item.title }}": 1}}}, TaskTemplate)
    with pytest.raises(TemplateError, match="the name of a field"):
        fill(made, resolver(ITEM))


def test_a_template_is_checked_without_an_item() -> None:
    assert not [*problems({"prompt": "{{ item.title }} {{ item.anything.else }} {{ item }}"}, None)]
    assert not [*problems({"prompt": "{{ item.title }}"}, {"title"})]
    wrong = [
        *problems({"prompt": "{{ item.titel }}", "command": ["{{ titel }}", "a {{ item.title }}"]}, {"title", "number"})
    ]
    assert [str(one) for one in wrong] == [
        "taskTemplate.prompt: {{ item.titel }}: an item has no titel; it has: number, title",
        f"taskTemplate.command[0]: {{{{ titel }}}}: that is not understood; write item.FIELD, or {LITERAL} for the"
        " braces themselves",
        "taskTemplate.command[1]: {{ item.title }}: it must be the whole element; a script is given it as an argument,"
        " or reads it from stdin",
    ]


@pytest.mark.parametrize("text", ["{{ tasks." + " " * 60_000, "{{" * 30_000, "{{ " * 20_000, "{" * 60_000])
def test_no_text_takes_long(text: str) -> None:
    began = time.perf_counter()
    prompt("{{ item.a }}", {"a": text})
    with pytest.raises(TemplateError):
        prompt(text + "}{{ item.title")
    assert time.perf_counter() - began < SECOND_SECONDS_MAX


def test_the_types_of_a_template_are_those_of_a_spawner() -> None:
    spec = {
        "source": {"github": {"repo": "a/b"}},
        "taskTemplate": {"prompt": "{{ item.title }}", "workerPoolRef": {"name": "p"}},
    }
    made = msgspec.convert(spec, TaskSpawnerSpec)
    assert fill(made.task_template, resolver(ITEM))["prompt"] == "Broken"
