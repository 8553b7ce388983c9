from __future__ import annotations

import pytest

from rota.api.task import Dependency, TaskSpec
from rota.control.tasks.templating import TemplateError, environment, given

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
