"""Every kind is documented, bounded and complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rota.api import KINDS, Kind, Location, Task, WorkerPool
from rota.api.meta import Condition, ObjectMeta
from rota.api.pool import WorkerPoolSpec, WorkerPoolStatus
from rota.api.references import references
from rota.api.schema import Schema, object_schema
from rota.api.task import TaskSpec, TaskStatus
from rota.api.worker import WorkerConfig

ALL = sorted(KINDS.values(), key=lambda kind: kind.name)
NAMED_IN_THE_FORMAT = {
    "Instance Function Schedule Task WorkerPool Claim Workspace AgentConfig TaskSpawner Workload WorkloadDeployment "
    "Revision Location Cell InstanceType Quota QuotaClaim Namespace Secret ConfigMap Event Lease Role"
}


def walk(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, prop in schema.get("properties", {}).items():
        yield from walk(prop, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from walk(schema[inner], f"{path}[]")


def parts(kind: Kind) -> Iterator[tuple[str, Schema]]:
    for path, schema in walk(object_schema(kind), kind.name):
        if path.split(".")[1:2] not in (["apiVersion"], ["kind"], ["metadata"]):
            yield path, schema


def test_all_kinds_of_the_wire_format_are_there() -> None:
    assert set(KINDS) == set(next(iter(NAMED_IN_THE_FORMAT)).split())


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_every_field_has_a_line_of_documentation(kind: Kind) -> None:
    fields = [
        (f"{path}.{name}", prop) for path, schema in parts(kind) for name, prop in schema.get("properties", {}).items()
    ]
    undocumented = [path for path, prop in fields if not prop.get("description") and not path.endswith(".metadata")]
    assert not undocumented
    assert not [path for path, prop in fields if "\n" in prop.get("description", "")]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_every_string_list_and_map_has_a_bound(kind: Kind) -> None:
    unbounded = []
    for path, schema in parts(kind):
        if schema.get("type") == "string" and not {"maxLength", "enum", "format"} & schema.keys():
            unbounded.append(path)
        if schema.get("type") == "array" and "maxItems" not in schema:
            unbounded.append(path)
        if "additionalProperties" in schema and "maxProperties" not in schema:
            unbounded.append(path)
    assert not unbounded


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_lists_of_things_with_names_are_maps_by_name(kind: Kind) -> None:
    unkeyed = [
        path
        for path, schema in parts(kind)
        if schema.get("type") == "array"
        and "name" in schema["items"].get("properties", {})
        and schema.get("x-kubernetes-list-type") != "map"
        # Order counts there, and the last of a name wins.
        and not path.endswith("agentConfigRefs")
    ]
    assert not unkeyed


@pytest.mark.parametrize("kind", [k for k in ALL if k.custom], ids=lambda kind: kind.name)
def test_every_status_carries_observed_generation_and_conditions(kind: Kind) -> None:
    status = object_schema(kind)["properties"]["status"]["properties"]
    assert {"observedGeneration", "conditions"} <= set(status)
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_short_names_and_plurals_are_unique() -> None:
    names = [name for kind in ALL for name in (kind.plural, kind.singular, *kind.short_names)]
    assert len(names) == len(set(names))


def test_references_are_found_in_templates_lists_and_environments() -> None:
    spec: dict[str, Any] = {
        "worker": {
            "workspaceRef": {"name": "repo"},
            "agentConfigRefs": [{"name": "base"}, {"name": "more"}],
            "credentials": {"type": "api-key", "secretRef": {"name": "key"}},
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}],
        }
    }
    found = {(r.path, r.kind.name, r.name) for r in references(WorkerPool.api, {"spec": spec})}
    assert found == {
        ("spec.worker.workspaceRef", "Workspace", "repo"),
        ("spec.worker.agentConfigRefs[0]", "AgentConfig", "base"),
        ("spec.worker.agentConfigRefs[1]", "AgentConfig", "more"),
        ("spec.worker.credentials.secretRef", "Secret", "key"),
        ("spec.worker.env[0].valueFrom.configMapKeyRef", "ConfigMap", "settings"),
    }


def test_names_in_a_list_are_references_each() -> None:
    spec = {"function": {"name": "f"}, "dependsOn": ["a", "b"]}
    assert [(r.path, r.name) for r in references(Task.api, {"spec": spec})] == [
        ("spec.function.name", "f"),
        ("spec.dependsOn[0]", "a"),
        ("spec.dependsOn[1]", "b"),
    ]


def pool(generation: int, status: WorkerPoolStatus | None) -> WorkerPool:
    meta = ObjectMeta(name="p", generation=generation)
    return WorkerPool(metadata=meta, spec=WorkerPoolSpec(worker=WorkerConfig()), status=status)


def test_readiness_follows_a_condition_of_the_current_generation() -> None:
    ready = Condition(type="Ready", status="True", reason="AllUp", observed_generation=2)
    status = WorkerPoolStatus(conditions=[ready])
    assert pool(2, status).readiness().state == "Ready"
    assert pool(3, status).readiness() == ("Pending", "OutOfDate", "generation 3 is not observed yet")
    assert pool(1, None).readiness().state == "Pending"


@pytest.mark.parametrize(
    ("phase", "state"),
    [(None, "Pending"), ("Running", "Pending"), ("Succeeded", "Ready"), ("Failed", "Failed"), ("Cancelled", "Failed")],
)
def test_a_task_is_ready_when_it_has_succeeded(phase: Any, state: str) -> None:
    status = TaskStatus(phase=phase)
    task = Task(metadata=ObjectMeta(name="t"), spec=TaskSpec(prompt="hi", worker=WorkerConfig()), status=status)
    assert task.readiness().state == state


def test_plain_data_is_ready_as_soon_as_it_exists() -> None:
    spec = msgspec.convert({"cityCode": "par"}, type=msgspec.structs.fields(Location)[1].type)
    assert Location(metadata=ObjectMeta(name="paris"), spec=spec).readiness().state == "Ready"


def test_typed_objects_send_only_what_was_said() -> None:
    task = Task(metadata=ObjectMeta(name="t"), spec=TaskSpec(prompt="hi", worker=WorkerConfig()))
    assert msgspec.to_builtins(task) == {"metadata": {"name": "t"}, "spec": {"prompt": "hi", "worker": {}}}
