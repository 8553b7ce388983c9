"""The changes of a deploy, as a pure function."""

from __future__ import annotations

from typing import Any

from rota.api import KINDS
from rota.manifest.deploy import in_dependency_order, make_step
from rota.manifest.deploy_diff import ABSENT, Change, canonical, diff, json_patch
from rota.manifest.load import Manifest

SCHEDULE = KINDS["Schedule"]


def obj(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": "u"}, "spec": spec}


def test_true_and_one_are_not_the_same_but_one_and_one_point_nought_are() -> None:
    assert canonical({"a": True}) != canonical({"a": 1})
    assert canonical({"b": 1.0, "a": [2]}) == canonical({"a": [2.0], "b": 1})
    assert diff(SCHEDULE, obj(payload={"a": True}), obj(payload={"a": 1})) != []
    assert diff(SCHEDULE, obj(payload={"a": 1.0}), obj(payload={"a": 1})) == []


def test_a_field_that_the_server_has_not_is_set_once_and_read_as_nothing_else() -> None:
    (change,) = diff(SCHEDULE, obj(enabled=True), obj(cron="@daily"))
    assert change == (("spec", "enabled"), ABSENT, True)
    assert diff(SCHEDULE, obj(enabled=True), obj(cron="@daily", enabled=True)) == []
    assert diff(SCHEDULE, obj(), obj(cron="@daily", enabled=False)) == []


def test_regions_are_a_set() -> None:
    assert diff(SCHEDULE, obj(regions=["a", "b"]), obj(regions=["b", "a"])) == []
    assert len(diff(SCHEDULE, obj(regions=["a"]), obj(regions=["b", "a"]))) == 1


def test_the_defaults_of_the_server_within_a_list_are_no_change() -> None:
    pool = KINDS["WorkerPool"]
    declared = obj(template={"containers": [{"name": "a", "readinessProbe": {"tcpSocket": {"port": 80}}}]})
    probe = {"tcpSocket": {"port": 80}, "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}
    live = obj(template={"containers": [{"name": "a", "readinessProbe": {**probe, "initialDelaySeconds": 0}}]})
    assert diff(pool, declared, live) == []


def test_the_live_object_is_never_changed() -> None:
    live = obj(scale={"min": 9, "max": 10}, source={"inline": "a"})
    before = canonical(live)
    found = diff(KINDS["Function"], obj(scale={"max": 5}, source={"digest": "d"}), live)
    assert canonical(live) == before
    assert Change(("spec", "scale", "min"), 9, ABSENT) in found
    assert Change(("spec", "source", "inline"), "a", ABSENT) in found


def test_a_patch_names_the_object_and_says_nothing_of_other_fields() -> None:
    found = [Change(("metadata", "labels", "rota.dev/a~b"), ABSENT, "x"), Change(("spec", "min"), 1, ABSENT)]
    assert json_patch(found, "u") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/metadata/labels/rota.dev~1a~0b", "value": "x"},
        {"op": "remove", "path": "/spec/min"},
    ]


def test_objects_come_after_those_that_they_refer_to() -> None:
    def planned(kind: str, name: str, spec: dict[str, Any]) -> Any:
        meta = {"name": name, "namespace": "n"}
        one = {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
        return make_step(Manifest(KINDS[kind], one, "", 0), None), one

    target = {"taskTemplate": {"command": ["a"], "workerPoolRef": {"name": "pool"}}}
    worker = {"workspaceRef": {"name": "repo"}, "agentConfigRefs": [{"name": "agent"}]}
    steps = in_dependency_order(
        [
            planned("Schedule", "tick", {"cron": "@daily", "target": target}),
            planned("WorkerPool", "alone", {"worker": {}}),
            planned("WorkerPool", "pool", {"worker": worker}),
            planned("AgentConfig", "agent", {}),
            planned("Workspace", "repo", {"repo": "https://a"}),
        ]
    )
    assert [step.name for step in steps] == ["agent", "repo", "pool", "tick", "alone"]
