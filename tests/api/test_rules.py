"""Rules of kinds, as they are evaluated on objects."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS
from rota.api.form import form
from tests.examples import example


def task(**spec: Any) -> dict[str, Any]:
    return example("Task", {"prompt": "hi", "workerPoolRef": {"name": "p"}, "cancel": False, **spec})


def broken(old: dict[str, Any] | None, new: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in form(KINDS["Task"]).break_rules(new, old, [])]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_rules_of_every_kind_compile(kind: str) -> None:
    assert form(KINDS[kind]).rules is not None


def test_a_set_in_another_order_is_the_same_set() -> None:
    assert not broken(task(dependsOn=["a", "b"]), task(dependsOn=["b", "a"]))
    assert broken(task(dependsOn=["a", "b"]), task(dependsOn=["b", "c"]))


def test_a_keyed_list_in_another_order_is_the_same_list() -> None:
    one, two = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}

    def with_env(*env: Any) -> dict[str, Any]:
        return example("Task", {"command": ["hi"], "worker": {"type": "shell", "env": list(env)}, "cancel": False})

    assert not broken(with_env(one, two), with_env(two, one))
    assert broken(with_env(one, two), with_env(one))


def test_a_command_in_another_order_is_another_command() -> None:
    old, new = task(), task()
    for obj, argv in ((old, ["a", "b"]), (new, ["b", "a"])):
        del obj["spec"]["prompt"]
        obj["spec"]["command"] = argv
    assert broken(old, new)


def test_what_did_not_change_is_not_judged_again() -> None:
    bad = task(workerPoolRef=None)
    bad["spec"].pop("workerPoolRef")
    assert broken(None, bad)
    assert not broken(bad, bad)


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, {"branch": "x"}), ({"branch": "x"}, {"branch": "y"}), ({"branch": "x"}, None)],
    ids=["set", "changed", "removed"],
)
def test_immutable_covers_setting_changing_and_removing(old: Any, new: Any) -> None:
    assert broken(task(**(old or {})), task(**(new or {}))) == ["spec: Invalid value: branch is immutable"]
