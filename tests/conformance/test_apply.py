from __future__ import annotations

import json
from typing import Any

import pytest

from rota import ApiError, Client
from rota.api import ObjectMeta, WorkerPool
from rota.api.pool import WorkerPoolSpec
from rota.api.worker import WorkerConfig
from tests.conformance.conftest import As
from tests.conformance.expecting import Object, refused
from tests.conformance.objects import (
    CONFIG_MAPS,
    POOLS,
    SCHEDULES,
    WORKLOADS,
    claim,
    config_map,
    placement,
    pool,
    schedule,
    version_of,
    workload,
)


def declared(spec: Object, kind: str = "WorkerPool", **metadata: Any) -> Object:
    """A configuration that says this of the spec of object a, and nothing else."""
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": {"name": "a", **metadata}, "spec": spec}


def managers(obj: Object) -> dict[str, Object]:
    """Return the fields that each manager owns."""
    return {entry["manager"]: entry for entry in obj["metadata"]["managedFields"]}


async def test_an_apply_makes_what_is_not_there(client: Client) -> None:
    made = await client.apply(pool("a", {"replicas": 2}))
    assert made["metadata"]["uid"] and made["metadata"]["generation"] == 1
    assert made["spec"]["reset"] == "Clean"
    assert await client.get(POOLS, "a") == made


async def test_a_typed_object_can_be_applied(client: Client) -> None:
    spec = WorkerPoolSpec(worker=WorkerConfig(), replicas=2)
    made = await client.apply(WorkerPool(metadata=ObjectMeta(name="a"), spec=spec))
    assert made.metadata.uid and made.spec.replicas == 2


async def test_what_is_applied_is_owned(as_manager: As) -> None:
    made = await as_manager("one").apply(pool("a", {"replicas": 2}, labels={"x": "1"}))
    entry = managers(made)["one"]
    assert entry["operation"] == "Apply"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["fieldsV1"] == {
        "f:metadata": {"f:labels": {"f:x": {}}},
        "f:spec": {"f:replicas": {}, "f:worker": {"f:type": {}}},
    }


async def test_defaults_are_owned_by_nobody(as_manager: As) -> None:
    made = await as_manager("one").apply(pool("a"))
    assert set(managers(made)) == {"one"}
    assert "f:reset" not in managers(made)["one"]["fieldsV1"]["f:spec"]


async def test_an_apply_changes_what_it_declares_and_leaves_the_rest(as_manager: As) -> None:
    await as_manager("user").create(pool("a", {"reset": "Keep"}, annotations={"note": "mine"}))
    changed = await as_manager("one").apply(declared({"replicas": 2}))
    assert changed["spec"]["replicas"] == 2
    assert (changed["spec"]["reset"], changed["metadata"]["annotations"]) == ("Keep", {"note": "mine"})


async def test_the_same_apply_again_keeps_the_version(client: Client) -> None:
    made = await client.apply(pool("a", {"replicas": 2}))
    assert await client.apply(pool("a", {"replicas": 2})) == made


async def test_an_apply_of_another_spec_gives_a_new_generation(client: Client) -> None:
    await client.apply(pool("a", {"replicas": 2}))
    changed = await client.apply(pool("a", {"replicas": 3}))
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (3, 2)


async def test_what_is_declared_no_longer_is_removed(client: Client) -> None:
    await client.apply(pool("a", {"replicas": 2}, labels={"x": "1", "y": "2"}))
    changed = await client.apply(pool("a", labels={"y": "2"}))
    assert "replicas" not in changed["spec"]
    assert changed["metadata"]["labels"] == {"y": "2"}


async def test_what_is_declared_no_longer_falls_back_to_its_default(client: Client) -> None:
    await client.apply(pool("a", {"reset": "Keep"}))
    assert (await client.apply(pool("a")))["spec"]["reset"] == "Clean"


async def test_what_another_manager_declares_too_is_not_removed(as_manager: As) -> None:
    await as_manager("one").apply(pool("a", {"replicas": 2}))
    shared = await as_manager("two").apply(declared({"replicas": 2}))
    assert "f:replicas" in managers(shared)["one"]["fieldsV1"]["f:spec"]
    assert "f:replicas" in managers(shared)["two"]["fieldsV1"]["f:spec"]
    left = await as_manager("one").apply(pool("a"))
    assert left["spec"]["replicas"] == 2
    assert "f:replicas" not in managers(left)["one"]["fieldsV1"]["f:spec"]
    assert "replicas" not in (await as_manager("two").apply(declared({})))["spec"]


async def test_a_manager_that_declares_nothing_any_more_is_forgotten(as_manager: As) -> None:
    await as_manager("one").apply(pool("a"))
    await as_manager("two").apply(declared({"replicas": 2}))
    left = await as_manager("two").apply({k: v for k, v in declared({}).items() if k != "spec"})
    assert set(managers(left)) == {"one"}


# Conflicts.


async def test_another_value_for_an_owned_field_is_a_conflict(as_manager: As) -> None:
    made = await as_manager("one").apply(pool("a", {"replicas": 2}))
    with refused(409, "Conflict") as refusal:
        await as_manager("two").apply(declared({"replicas": 3}))
    assert refusal.value.message == 'Apply failed with 1 conflict: conflict with "one": .spec.replicas'
    assert refusal.value.causes == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.replicas"}
    ]
    assert await as_manager("one").get(POOLS, "a") == made


async def test_a_conflict_with_an_update_names_the_version_it_used(as_manager: As) -> None:
    await as_manager("user").create(pool("a", {"replicas": 2}))
    with refused(409, "Conflict") as refusal:
        await as_manager("one").apply(declared({"replicas": 3}))
    assert refusal.value.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "user" using rota.dev/v1alpha1',
            "field": ".spec.replicas",
        }
    ]


async def test_a_conflict_with_a_subresource_names_it(as_manager: As) -> None:
    await as_manager("user").create(pool("a", {"replicas": 2}))
    await as_manager("scaler").set_scale(POOLS, "a", 5)
    with refused(409, "Conflict") as refusal:
        await as_manager("one").apply(declared({"replicas": 3}))
    [cause] = refusal.value.causes
    assert cause["message"] == 'conflict with "scaler" with subresource "scale" using rota.dev/v1alpha1'


async def test_all_conflicts_are_told_at_once(as_manager: As) -> None:
    await as_manager("one").apply(pool("a", {"replicas": 2}))
    await as_manager("two").apply(declared({"reset": "Keep"}))
    with refused(409, "Conflict") as refusal:
        await as_manager("three").apply(declared({"replicas": 3, "reset": "Recreate"}))
    assert refusal.value.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .spec.replicas\nconflicts with "two":\n- .spec.reset'
    )
    found = {(cause["field"], cause["message"]) for cause in refusal.value.causes}
    assert found == {(".spec.replicas", 'conflict with "one"'), (".spec.reset", 'conflict with "two"')}


async def test_the_same_value_is_no_conflict(as_manager: As) -> None:
    made = await as_manager("one").apply(pool("a", {"replicas": 2}))
    shared = await as_manager("two").apply(declared({"replicas": 2}))
    assert shared["metadata"]["generation"] == made["metadata"]["generation"]


async def test_force_takes_fields_over(as_manager: As) -> None:
    await as_manager("one").apply(pool("a", {"replicas": 2}))
    changed = await as_manager("two").apply(declared({"replicas": 3}), force=True)
    assert changed["spec"]["replicas"] == 3
    assert "f:replicas" not in managers(changed)["one"]["fieldsV1"]["f:spec"]
    assert "f:replicas" in managers(changed)["two"]["fieldsV1"]["f:spec"]


async def test_an_update_takes_what_it_changes(as_manager: As) -> None:
    await as_manager("one").apply(pool("a", {"replicas": 2}))
    changed = await as_manager("user").patch(POOLS, "a", {"spec": {"replicas": 3}})
    assert "f:replicas" not in managers(changed)["one"]["fieldsV1"]["f:spec"]
    with refused(409, "Conflict"):
        await as_manager("one").apply(pool("a", {"replicas": 2}))


async def test_an_update_takes_nothing_that_it_leaves_as_it_is(as_manager: As) -> None:
    made = await as_manager("one").apply(pool("a", {"replicas": 2}))
    changed = await as_manager("user").update({**made, "spec": {**made["spec"], "reset": "Keep"}})
    assert "f:replicas" in managers(changed)["one"]["fieldsV1"]["f:spec"]
    assert managers(changed)["user"]["fieldsV1"] == {"f:spec": {"f:reset": {}}}


async def test_apply_and_update_by_one_manager_are_told_apart(as_manager: As) -> None:
    await as_manager("one").apply(pool("a"))
    changed = await as_manager("one").patch(POOLS, "a", {"spec": {"replicas": 1}})
    assert sorted(e["operation"] for e in changed["metadata"]["managedFields"]) == ["Apply", "Update"]


# Structure.


async def test_managers_share_a_list_with_keys_by_its_items(as_manager: As) -> None:
    await as_manager("one").apply(workload("a", {"placements": [placement("east")]}))
    changed = await as_manager("two").apply(declared({"placements": [placement("west")]}, "Workload"))
    assert [p["name"] for p in changed["spec"]["placements"]] == ["east", "west"]
    owned = managers(changed)["two"]["fieldsV1"]["f:spec"]["f:placements"]
    assert set(owned) == {'k:{"name":"west"}'}
    assert set(owned['k:{"name":"west"}']) == {".", "f:name", "f:cityCodes"}


async def test_an_item_is_removed_by_the_manager_that_declared_it(as_manager: As) -> None:
    await as_manager("one").apply(workload("a", {"placements": [placement("east")]}))
    await as_manager("two").apply(declared({"placements": [placement("west"), placement("north")]}, "Workload"))
    changed = await as_manager("two").apply(declared({"placements": [placement("north")]}, "Workload"))
    assert [p["name"] for p in changed["spec"]["placements"]] == ["east", "north"]


async def test_managers_share_an_item_by_its_fields(as_manager: As) -> None:
    await as_manager("one").apply(workload("a", {"placements": [placement("east")]}))
    part = {"placements": [{"name": "east", "leaseSeconds": 30}]}
    changed = await as_manager("two").apply(declared(part, "Workload"))
    [east] = changed["spec"]["placements"]
    assert (east["cityCodes"], east["leaseSeconds"]) == (["ams"], 30)


async def test_an_item_s_field_in_conflict_is_named_by_its_key(as_manager: As) -> None:
    await as_manager("one").apply(workload("a", {"placements": [placement("east", leaseSeconds=30)]}))
    with refused(409, "Conflict") as refusal:
        await as_manager("two").apply(declared({"placements": [{"name": "east", "leaseSeconds": 40}]}, "Workload"))
    [cause] = refusal.value.causes
    assert cause["field"] == '.spec.placements[name="east"].leaseSeconds'


async def test_managers_share_a_set_by_its_values(as_manager: As) -> None:
    await as_manager("one").apply(schedule("a", {"regions": ["ams"]}))
    changed = await as_manager("two").apply(declared({"regions": ["fra"]}, "Schedule"))
    assert changed["spec"]["regions"] == ["ams", "fra"]
    changed = await as_manager("one").apply(schedule("a"))
    assert changed["spec"]["regions"] == ["fra"]


async def test_finalizers_are_a_set(as_manager: As) -> None:
    await as_manager("one").apply(pool("a", finalizers=["example.com/one"]))
    changed = await as_manager("two").apply(declared({}, finalizers=["example.com/two"]))
    assert sorted(changed["metadata"]["finalizers"]) == ["example.com/one", "example.com/two"]
    await as_manager("two").patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_an_atomic_map_is_owned_as_one(as_manager: As) -> None:
    made = await as_manager("one").apply(schedule("a", {"payload": {"x": 1}}))
    assert managers(made)["one"]["fieldsV1"]["f:spec"]["f:payload"] == {}
    with refused(409, "Conflict") as refusal:
        await as_manager("two").apply(declared({"payload": {"y": 2}}, "Schedule"))
    assert [cause["field"] for cause in refusal.value.causes] == [".spec.payload"]
    changed = await as_manager("two").apply(declared({"payload": {"y": 2}}, "Schedule"), force=True)
    assert changed["spec"]["payload"] == {"y": 2}


async def test_a_plain_map_is_owned_key_by_key(as_manager: As) -> None:
    await as_manager("one").apply(config_map("a", {"x": "1"}))
    changed = await as_manager("two").apply(config_map("a", {"y": "2"}))
    assert changed["data"] == {"x": "1", "y": "2"}
    with refused(409, "Conflict") as refusal:
        await as_manager("two").apply(config_map("a", {"x": "3"}))
    assert [cause["field"] for cause in refusal.value.causes] == [".data.x"]


async def test_a_list_without_keys_is_owned_as_one(as_manager: As) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "main", "args": ["x"]}]}}}
    await as_manager("one").apply(workload("a", spec))
    other = {"template": {"spec": {"containers": [{"name": "main", "args": ["x", "y"]}]}}}
    with refused(409, "Conflict") as refusal:
        await as_manager("two").apply(declared(other, "Workload"))
    [cause] = refusal.value.causes
    assert cause["field"] == '.spec.template.spec.containers[name="main"].args'


async def test_items_of_one_key_cannot_be_applied(client: Client) -> None:
    with pytest.raises(ApiError) as refusal:
        await client.apply(workload("a", {"placements": [placement("east"), placement("east")]}))
    assert refusal.value.code in (400, 422, 500)
    with refused(404, "NotFound"):
        await client.get(WORKLOADS, "a")


# The request.


async def test_an_apply_must_leave_a_valid_object(client: Client) -> None:
    made = await client.apply(pool("a", {"replicas": 2}))
    with refused(422, "Invalid"):
        await client.apply(pool("a", {"replicas": 5000}))
    assert await client.get(POOLS, "a") == made


async def test_an_apply_keeps_to_immutability(client: Client) -> None:
    await client.apply(claim("a"))
    with refused(422, "Invalid"):
        await client.apply(claim("a", {"poolRef": {"name": "other"}}))


async def test_managed_fields_are_not_declared_by_clients(client: Client) -> None:
    fields: dict[str, Any] = {"f:spec": {}}
    entry = {"manager": "x", "operation": "Apply", "apiVersion": "rota.dev/v1alpha1", "fieldsType": "FieldsV1"}
    with refused(400, "BadRequest") as refusal:
        await client.apply(pool("a", managedFields=[{**entry, "fieldsV1": fields}]))
    assert "metadata.managedFields must be nil" in refusal.value.message


async def test_managed_fields_are_forgotten_when_they_are_set_to_one_empty_entry(as_manager: As) -> None:
    await as_manager("one").apply(pool("a", {"replicas": 2}))
    bare = await as_manager("user").patch(POOLS, "a", {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in bare["metadata"]
    with refused(409, "Conflict") as refusal:
        await as_manager("two").apply(declared({"replicas": 3}))
    [cause] = refusal.value.causes
    assert cause["message"] == 'conflict with "before-first-apply" using rota.dev/v1alpha1'


@pytest.mark.parametrize("sent", [[], None])
async def test_managed_fields_that_are_left_out_stay_as_they_are(as_manager: As, sent: Any) -> None:
    made = await as_manager("one").apply(pool("a", {"replicas": 2}))
    assert await as_manager("user").patch(POOLS, "a", {"metadata": {"managedFields": sent}}) == made


async def test_what_a_client_applied_on_its_side_before_is_no_conflict(as_manager: As) -> None:
    applied = json.dumps(pool("a", {"replicas": 2}, namespace=as_manager("any").namespace))
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    await as_manager("kubectl-client-side-apply").create(pool("a", {"replicas": 2}, annotations=annotations))
    changed = await as_manager("kubectl").apply(pool("a", {"replicas": 3}))
    assert changed["spec"]["replicas"] == 3


async def test_an_unknown_field_cannot_be_applied(client: Client) -> None:
    with pytest.raises(ApiError) as refusal:
        await client.apply(pool("a", {"colour": "red"}))
    assert refusal.value.code in (400, 500)
    assert "colour" in refusal.value.message


async def test_an_apply_with_an_old_version_is_a_conflict(client: Client) -> None:
    made = await client.apply(pool("a"))
    await client.apply(pool("a", {"replicas": 1}))
    with refused(409, "Conflict") as refusal:
        await client.apply(pool("a", {"replicas": 2}, resourceVersion=version_of(made)))
    assert "the object has been modified" in refusal.value.message


async def test_an_apply_that_means_another_object_is_refused(client: Client) -> None:
    made = await client.apply(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.apply(pool("a", {"replicas": 2}, uid="00000000-0000-4000-8000-000000000000"))
    assert {cause["field"] for cause in refusal.value.causes} == {"metadata.uid"}
    assert await client.get(POOLS, "a") == made


async def test_an_apply_that_means_a_certain_object_makes_none(client: Client) -> None:
    with refused(409, "Conflict") as refusal:
        await client.apply(pool("a", uid="00000000-0000-4000-8000-000000000000"))
    assert "uid mismatch" in refusal.value.message
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")


async def test_a_generated_name_cannot_be_applied(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.apply(pool("", generateName="a-"))


async def test_an_apply_needs_a_namespace_that_exists(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.apply(pool("a"), namespace="no-such-namespace")
    assert refusal.value.message == 'namespaces "no-such-namespace" not found'


async def test_an_apply_ignores_the_status(client: Client) -> None:
    made = await client.apply({**pool("a"), "status": {"replicas": 3}})
    assert "status" not in made
    assert "f:status" not in managers(made)["tester"]["fieldsV1"]


# Status.


async def test_a_status_is_applied_through_its_subresource(as_manager: As) -> None:
    await as_manager("user").apply(pool("a"))
    status: Object = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "a"}}
    changed = await as_manager("controller").apply({**status, "status": {"replicas": 3}}, subresource="status")
    assert changed["status"]["replicas"] == 3
    entry = managers(changed)["controller"]
    assert (entry["operation"], entry["subresource"]) == ("Apply", "status")
    assert entry["fieldsV1"] == {"f:status": {"f:replicas": {}}}


async def test_conditions_are_applied_by_several_managers(as_manager: As) -> None:
    await as_manager("user").apply(pool("a"))

    def condition(type_: str) -> Object:
        entry = {"type": type_, "status": "True", "reason": "Fine", "message": ""}
        frame = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "a"}}
        return {**frame, "status": {"conditions": [entry]}}

    await as_manager("one").apply(condition("Ready"), subresource="status")
    changed = await as_manager("two").apply(condition("Scaled"), subresource="status")
    assert [c["type"] for c in changed["status"]["conditions"]] == ["Ready", "Scaled"]


async def test_an_apply_of_a_status_makes_no_object(client: Client) -> None:
    with refused(404, "NotFound"):
        await client.apply({**pool("a"), "status": {"replicas": 3}}, subresource="status")


async def test_an_object_made_by_update_can_be_applied_to(as_manager: As) -> None:
    await as_manager("user").create(schedule("a", {"enabled": False}))
    changed = await as_manager("one").apply(declared({"payload": {"x": 1}}, "Schedule"))
    assert (changed["spec"]["enabled"], changed["spec"]["payload"]) == (False, {"x": 1})
    assert set(managers(changed)) == {"user", "one"}
    assert (await as_manager("one").get(SCHEDULES, "a")) == changed


async def test_a_config_map_is_applied_like_any_other(client: Client) -> None:
    made = await client.apply(config_map("a", {"x": "1", "y": "2"}))
    assert (await client.apply(config_map("a", {"y": "2"})))["data"] == {"y": "2"}
    assert (await client.get(CONFIG_MAPS, "a"))["metadata"]["uid"] == made["metadata"]["uid"]
