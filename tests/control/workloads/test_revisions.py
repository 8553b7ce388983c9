"""Earlier templates of a workload."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.api import Revision, Workload
from rota.control.workloads.revisions import hash_of, plan_revisions


def a_workload(command: str, *, limit: int = 2, annotations: dict[str, str] | None = None) -> Workload:
    template: dict[str, Any] = {"spec": {"containers": [{"name": "main", "command": [command]}]}}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    return msgspec.convert(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "web-uid"},
            "spec": {
                "template": template,
                "placements": [{"name": "eu", "cityCodes": ["ams"]}],
                "revisionHistoryLimit": limit,
            },
        },
        Workload,
    )


class History:
    """The revisions of a workload, as the controller keeps them."""

    def __init__(self) -> None:
        self.there: list[Revision] = []

    def has(self, workload: Workload) -> list[tuple[int, str]]:
        made = plan_revisions(workload, self.there)
        gone = {one.metadata.name for one in made.delete}
        self.there = [one for one in self.there if one.metadata.name not in gone]
        self.there += [made.create] if made.create is not None else []
        return [(one.spec.number, one.spec.template.spec.containers[0].command[0]) for one in self.there]


def test_each_template_is_a_revision_and_the_oldest_go() -> None:
    history = History()
    assert history.has(a_workload("one")) == [(1, "one")]
    assert history.has(a_workload("one")) == [(1, "one")]
    history.has(a_workload("two"))
    history.has(a_workload("three"))
    assert history.has(a_workload("four")) == [(2, "two"), (3, "three"), (4, "four")]


def test_to_go_back_makes_an_old_template_the_newest() -> None:
    history = History()
    for command in ("one", "two", "one"):
        there = history.has(a_workload(command))
    assert there == [(2, "two"), (3, "one")]


def test_a_restart_is_no_new_template() -> None:
    history = History()
    history.has(a_workload("one"))
    again = a_workload("one", annotations={"kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z"})
    assert history.has(again) == [(1, "one")]
    assert hash_of(a_workload("one", annotations={"team": "a"})) != hash_of(a_workload("one"))


def test_no_history_keeps_the_newest_only() -> None:
    history = History()
    for command in ("one", "two", "three"):
        there = history.has(a_workload(command, limit=0))
    assert there == [(3, "three")]
    assert there != history.has(a_workload("four", limit=0))
