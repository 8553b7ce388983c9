from __future__ import annotations

from typing import Any

import pytest

from rota import Client
from tests.conformance.expecting import Object, causes, refused
from tests.conformance.objects import (
    CLAIMS,
    INSTANCES,
    POOLS,
    TASKS,
    claim,
    instance,
    placement,
    pool,
    schedule,
    task,
    workload,
    workspace,
)

METRIC = {"cpuPercent": 50}
NOT_CHECKED = ("<nil>", "FieldValueInvalid")
"""The cause that says that rules were not asked about an object that is not even well-formed."""

# Defaults.


async def test_defaults_are_stored(client: Client) -> None:
    spec = (await client.create(pool("a")))["spec"]
    assert spec == {
        "worker": {"type": "shell"},
        "reset": "Clean",
        "update": {"maxUnavailable": 1, "drainSeconds": 3600},
        "queue": {"limit": 8192, "defaultWaitSeconds": 120},
    }


async def test_defaults_fill_up_what_is_given_in_part(client: Client) -> None:
    spec = (await client.create(pool("a", {"queue": {"limit": 5}})))["spec"]
    assert spec["queue"] == {"limit": 5, "defaultWaitSeconds": 120}


async def test_defaults_reach_into_the_items_of_lists(client: Client) -> None:
    [east] = (await client.create(workload("a")))["spec"]["placements"]
    assert east == {
        "name": "east",
        "cityCodes": ["ams"],
        "scale": {"min": 1},
        "onCellLost": "Keep",
        "leaseSeconds": 60,
    }


async def test_what_is_absent_has_no_inner_defaults(client: Client) -> None:
    assert "scale" not in (await client.create(pool("a")))["spec"]


async def test_a_default_does_not_replace_a_value_that_is_false_or_zero(client: Client) -> None:
    spec = (await client.create(schedule("a", {"enabled": False, "catchUpWithinSeconds": 0})))["spec"]
    assert (spec["enabled"], spec["catchUpWithinSeconds"]) == (False, 0)


async def test_null_is_replaced_by_a_default(client: Client) -> None:
    assert (await client.create(pool("a", {"reset": None})))["spec"]["reset"] == "Clean"


@pytest.mark.parametrize(
    ("obj", "field", "default"),
    [
        (schedule(), "timeZone", "UTC"),
        (schedule(), "overlap", "Skip"),
        (schedule(), "history", {"succeeded": 10, "failed": 10}),
        (task(), "cancel", False),
        (task(), "priority", 0),
        (claim(), "leaseSeconds", 3600),
        (instance(), "restartPolicy", "Always"),
        (instance(), "terminationGracePeriodSeconds", 30),
        (workload(), "revisionHistoryLimit", 10),
    ],
)
async def test_kinds_have_their_defaults(client: Client, obj: Object, field: str, default: Any) -> None:
    assert (await client.create(obj))["spec"][field] == default


# Types and bounds.


@pytest.mark.parametrize(
    ("obj", "field", "reason"),
    [
        (task(spec={"priority": "high"}), "spec.priority", "FieldValueTypeInvalid"),
        (task(spec={"priority": 1.5}), "spec.priority", "FieldValueTypeInvalid"),
        (pool(spec={"worker": "shell"}), "spec.worker", "FieldValueTypeInvalid"),
        (schedule(spec={"enabled": "yes"}), "spec.enabled", "FieldValueTypeInvalid"),
        (schedule(spec={"regions": "ams"}), "spec.regions", "FieldValueTypeInvalid"),
        (pool(spec={"reset": "Polish"}), "spec.reset", "FieldValueNotSupported"),
        (schedule(spec={"timeZone": "Z" * 65}), "spec.timeZone", "FieldValueTooLong"),
        (schedule(spec={"regions": [f"c{i}" for i in range(65)]}), "spec.regions", "FieldValueTooMany"),
        (workload(spec={"placements": [{"name": "east"}]}), "spec.placements[0].cityCodes", "FieldValueRequired"),
        (task(spec={"workerPoolRef": {}}), "spec.workerPoolRef.name", "FieldValueRequired"),
    ],
)
async def test_an_object_that_is_not_well_formed_is_refused(
    client: Client, obj: Object, field: str, reason: str
) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(obj)
    assert set(causes(refusal)) == {NOT_CHECKED, (field, reason)}


@pytest.mark.parametrize(
    ("obj", "field", "reason"),
    [
        (pool(spec={"replicas": 1001}), "spec.replicas", "FieldValueInvalid"),
        (task(spec={"priority": -1001}), "spec.priority", "FieldValueInvalid"),
        (schedule(spec={"timeZone": ""}), "spec.timeZone", "FieldValueInvalid"),
        (schedule(spec={"cron": "often"}), "spec.cron", "FieldValueInvalid"),
        (schedule(spec={"regions": ["Amsterdam"]}), "spec.regions[0]", "FieldValueInvalid"),
        (workload(spec={"placements": [placement("east\n")]}), "spec.placements[0].name", "FieldValueInvalid"),
        (workload(spec={"placements": []}), "spec.placements", "FieldValueInvalid"),
        (schedule(spec={"regions": ["ams", "ams"]}), "spec.regions[1]", "FieldValueDuplicate"),
        (
            workload(spec={"placements": [placement("east"), placement("east")]}),
            "spec.placements[1]",
            "FieldValueDuplicate",
        ),
        (pool(spec={"storage": {"size": "much"}}), "spec.storage.size", "FieldValueInvalid"),
    ],
)
async def test_a_value_out_of_bounds_is_refused(client: Client, obj: Object, field: str, reason: str) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(obj)
    assert set(causes(refusal)) == {(field, reason)}


async def test_a_quantity_may_be_a_number_or_a_text(client: Client) -> None:
    for name, size in (("a", 5), ("b", "500Mi"), ("c", "1.5Gi")):
        made = await client.create(pool(name, {"storage": {"size": size}}))
        assert made["spec"]["storage"]["size"] == size


async def test_a_spec_is_required(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create({k: v for k, v in pool("a").items() if k != "spec"})
    assert ("spec", "FieldValueRequired") in causes(refusal)


async def test_a_whole_number_may_be_written_with_a_fraction_of_zero(client: Client) -> None:
    made = await client.create(task("a", {"priority": 2.0}))
    assert made["spec"]["priority"] == 2


async def test_metadata_of_the_wrong_type_is_a_bad_request(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.create(pool("a", labels={"x": 1}))


async def test_a_refusal_names_the_object_and_every_problem(client: Client) -> None:
    spec = {"queue": {"limit": "high"}, "reset": "Polish", "worker": {"type": "magic"}}
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", spec))
    assert refusal.value.message.startswith('WorkerPool.rota.dev "a" is invalid: [')
    details = refusal.value.details or {}
    assert (details["name"], details["group"], details["kind"]) == ("a", "rota.dev", "WorkerPool")
    assert causes(refusal) == [
        NOT_CHECKED,
        ("spec.queue.limit", "FieldValueTypeInvalid"),
        ("spec.reset", "FieldValueNotSupported"),
        ("spec.worker.type", "FieldValueNotSupported"),
    ]


async def test_problems_of_metadata_and_of_the_spec_are_told_together(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", {"replicas": 1001}, labels={"x": "not a value"}))
    assert set(causes(refusal)) == {
        ("metadata.labels", "FieldValueInvalid"),
        ("spec.replicas", "FieldValueInvalid"),
    }


async def test_unknown_fields_are_refused_before_anything_else(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.create(pool("a", {"colour": "red", "replicas": "three", "reset": "Polish"}))


# Rules.


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (pool(spec={"scale": {"min": 5, "max": 2}}), "spec.scale.min", "min must not be greater than max"),
        (pool(spec={"worker": None}), "spec", "exactly one of worker, template must be set"),
        (pool(spec={"replicas": 1, "scale": {"min": 1, "max": 2}}), "spec", "replicas and scale exclude each other"),
        (pool(spec={"worker": {"type": "custom"}}), "spec.worker", "entrypoint is for type custom"),
        (task(spec={"prompt": "hello"}), "spec", "exactly one of function, command, prompt must be set"),
        (task("me", {"dependsOn": ["me"]}), "spec.dependsOn", "a task cannot depend on itself"),
        (task(spec={"dependsOn": ["fine", "No Name"]}), "spec.dependsOn[1]", "should match"),
        (task(spec={"dependsOn": ["a."]}), "spec.dependsOn[0]", "should match"),
        (task(spec={"dependsOn": ["a\n"]}), "spec.dependsOn[0]", "should match"),
        (task(spec={"command": [""]}), "spec.command", "command must begin with a program"),
        (task(spec={"command": ["cat", "a\0b"]}), "spec.command[1]", "should match"),
        (task(spec={"stdin": "\0"}), "spec.stdin", "stdin must not contain a NUL character"),
        (
            task(spec={"command": None, "prompt": "do\0"}),
            "spec.prompt",
            "prompt must not contain a NUL character",
        ),
        (
            schedule(spec={"target": {"taskTemplate": {"command": [""], "workerPoolRef": {"name": "pool"}}}}),
            "spec.target.taskTemplate.command",
            "command must begin with a program",
        ),
        (
            workload(spec={"placements": [placement("east", scale={"min": 3, "max": 2, "metric": METRIC})]}),
            "spec.placements[0].scale.max",
            "max must not be less than min",
        ),
        (
            workload(spec={"placements": [placement("east", scale={"min": 3, "max": 4})]}),
            "spec.placements[0].scale",
            "max and metric need each other",
        ),
        (
            workspace(spec={"files": [{"path": "../out", "content": ""}]}),
            "spec.files[0].path",
            "path must not leave the workspace",
        ),
    ],
)
async def test_fields_must_agree(client: Client, obj: Object, field: str, message: str) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(obj)
    assert causes(refusal) == [(field, "FieldValueInvalid")]
    assert message in refusal.value.message


async def test_all_broken_rules_are_told_at_once(client: Client) -> None:
    spec = {"worker": {"type": "custom"}, "replicas": 1, "scale": {"min": 5, "max": 2}}
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", spec))
    assert {field for field, _ in causes(refusal)} == {"spec", "spec.scale.min", "spec.worker"}


async def test_a_value_out_of_bounds_does_not_keep_rules_from_being_checked(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", {"replicas": 1001, "scale": {"min": 5, "max": 2}}))
    assert {"spec.replicas", "spec.scale.min"} <= {field for field, _ in causes(refusal)}


async def test_rules_hold_for_updates_too(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", {"spec": {"scale": {"min": 5, "max": 2}}})
    assert causes(refusal) == [("spec.scale.min", "FieldValueInvalid")]
    assert await client.get(POOLS, "a") == made


@pytest.mark.parametrize(
    ("before", "patch"),
    [
        ({}, {"holder": "me"}),
        ({"holder": "me"}, {"holder": "you"}),
        ({"holder": "me"}, {"holder": None}),
        ({}, {"poolRef": {"name": "other"}}),
    ],
    ids=["set", "changed", "removed", "changed inside"],
)
async def test_an_immutable_field_is_not(client: Client, before: Object, patch: Object) -> None:
    await client.create(claim("a", before))
    with refused(422, "Invalid") as refusal:
        await client.patch(CLAIMS, "a", {"spec": patch})
    [field] = patch
    assert f"{field} is immutable" in refusal.value.message


async def test_an_immutable_field_may_stay_as_it_is(client: Client) -> None:
    made = await client.create(claim("a", {"holder": "me"}))
    changed = await client.update({**made, "spec": {**made["spec"], "leaseSeconds": 60}})
    assert changed["spec"]["leaseSeconds"] == 60


async def test_a_whole_spec_can_be_immutable_but_for_one_field(client: Client) -> None:
    await client.create(task("a"))
    for patch in ({"command": ["false"]}, {"priority": 5}, {"timeoutSeconds": 9}, {"worker": {"type": "shell"}}):
        with refused(422, "Invalid"):
            await client.patch(TASKS, "a", {"spec": patch})
    assert (await client.patch(TASKS, "a", {"spec": {"cancel": True}}))["spec"]["cancel"] is True


async def test_a_one_way_field_goes_one_way(client: Client) -> None:
    await client.create(claim("a"))
    await client.patch(CLAIMS, "a", {"spec": {"release": True}})
    with refused(422, "Invalid") as refusal:
        await client.patch(CLAIMS, "a", {"spec": {"release": False}})
    assert causes(refusal) == [("spec.release", "FieldValueInvalid")]


async def test_immutability_does_not_keep_metadata_or_status_from_changing(client: Client) -> None:
    await client.create(task("a"))
    await client.patch(TASKS, "a", {"metadata": {"labels": {"x": "1"}}})
    changed = await client.patch(TASKS, "a", {"status": {"phase": "Running"}}, subresource="status")
    assert changed["status"]["phase"] == "Running"


async def test_a_gate_is_removed_by_its_key(client: Client) -> None:
    await client.create(instance("a", {"schedulingGates": [{"name": "quota"}, {"name": "network"}]}))
    patch = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "quota"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    changed = await client.patch(INSTANCES, "a", patch, type="json")
    assert changed["spec"]["schedulingGates"] == [{"name": "network"}]
