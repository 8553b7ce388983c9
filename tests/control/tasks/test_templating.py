from __future__ import annotations

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as some

from rota.api.model import KeyRef
from rota.api.parts import EnvVar, ValueFrom
from rota.api.task import Dependency, TaskSpec
from rota.api.templates.expressions import TemplateError, literal
from rota.control.tasks.templating import environment, given, given_environment

BUILD = Dependency(
    name="build", uid="1", phase="Succeeded", outputs={"image": "a:1", "note": "{{ tasks.build.outputs.image }}"}
)
DOTTED = Dependency(name="a.b-c", uid="2", phase="Succeeded", outputs={"x.y": "1"})


def spec(**fields: object) -> TaskSpec:
    return TaskSpec(**{"worker_pool_ref": {"name": "p"}, **fields})  # type: ignore[arg-type]


def test_every_place_is_filled_in() -> None:
    found = given(
        spec(command=["run", "{{ tasks.build.outputs.image }}"], stdin="from {{tasks.build.outputs.image}}!"), [BUILD]
    )
    assert found.command == ("run", "a:1") and found.stdin == "from a:1!"
    assert given(spec(prompt="{{ tasks.a.b-c.outputs.x.y }}"), [DOTTED]).prompt == "1"


def test_it_is_one_pass() -> None:
    assert given(spec(prompt="{{ tasks.build.outputs.note }}"), [BUILD]).prompt == "{{ tasks.build.outputs.image }}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ tasks.other.outputs.image }}", "other is none of the tasks that it depends on, which are: build"),
        ("{{ tasks.build.outputs.nothing }}", "task build has no output nothing; it has: image, note"),
        ("{{ tasks.build.result }}", "is not understood; write tasks.NAME.outputs.KEY"),
        ("{{ tasks. }}", "is not understood"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_is(text: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        given(spec(prompt=text), [BUILD])


def test_what_is_no_expression_of_ours_is_left_alone() -> None:
    text = "${{ github.token }} {{ range .Items }} {{}} {{ item.x }}"
    assert given(spec(prompt=text), [BUILD]).prompt == text


def test_in_a_command_it_is_a_whole_element_or_an_error() -> None:
    with pytest.raises(TemplateError, match=r"must be the whole element.*ROTA_TASKS_BUILD_IMAGE"):
        given(spec(command=["sh", "-c", "echo {{ tasks.build.outputs.image }}"]), [BUILD])


def test_the_same_values_are_in_the_environment() -> None:
    found = environment([BUILD, DOTTED])
    assert found["ROTA_TASKS_BUILD_IMAGE"] == "a:1" and found["ROTA_TASKS_A_B_C_X_Y"] == "1"


def test_variables_of_a_worker_are_filled_in_and_the_others_left_to_it() -> None:
    env = [
        EnvVar(name="IMAGE", value="of {{ tasks.build.outputs.image }}"),
        EnvVar(name="PLAIN", value="{{ item.x }}"),
        EnvVar(name="KEY", value_from=ValueFrom(secret_key_ref=KeyRef(name="s", key="k"))),
    ]
    assert given_environment(env, [BUILD]) == {"IMAGE": "of a:1"}


def test_a_variable_that_names_what_is_not_there_is_an_error() -> None:
    with pytest.raises(TemplateError, match="env IMAGE: other is none of the tasks that it depends on"):
        given_environment([EnvVar(name="IMAGE", value="{{ tasks.other.outputs.image }}")], [BUILD])


def test_braces_can_be_meant_as_such() -> None:
    text = '{{ "{{" }} tasks.build.outputs.image }}, {{ tasks.build.outputs.image }}'
    assert given(spec(prompt=text), [BUILD]).prompt == "{{ tasks.build.outputs.image }}, a:1"
    in_command = given(spec(command=["echo", 'say {{"{{"}} tasks.build.outputs.image }}']), [BUILD]).command
    assert in_command == ("echo", "say {{ tasks.build.outputs.image }}")


PIECES = some.sampled_from(["{", "}", "{{", "}}", " ", '"', '{{ "{{" }}', "tasks.", "build.outputs.image", "x", "\n"])


@for_all(some.lists(PIECES, max_size=20).map("".join))
def test_a_literal_text_is_what_the_command_reads(text: str) -> None:
    assert given(spec(command=["cat"], stdin=literal(text)), [BUILD]).stdin == text


def test_a_text_that_has_nothing_to_fill_in_is_its_own_literal() -> None:
    text = "${{ github.token }} {{ range .Items }} {{}}"
    assert literal(text) == text
