from __future__ import annotations

import msgspec
import pytest

from rota import Client
from rota.api import WorkerPool
from rota.api.pool import WorkerPoolStatus
from rota.registry import Operation, WriteOptions
from tests.conformance.conftest import As
from tests.conformance.expecting import Object, causes, refused
from tests.conformance.objects import POOLS, TASKS, name_of, pool, task, version_of

READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Fine",
    "message": "",
    "lastTransitionTime": "2030-01-01T00:00:00Z",
}


async def scale_of(client: Client, name: str) -> Object:
    scale: Object = msgspec.json.decode(
        (await client.backend.get(POOLS, client.namespace, name, subresource="scale")).value
    )
    return scale


# Status.


async def test_a_status_is_written_through_its_subresource(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.update_status({**made, "status": {"replicas": 3}})
    assert changed["status"]["replicas"] == 3
    assert await client.get(POOLS, "a") == changed


async def test_a_typed_status_is_written(client: Client) -> None:
    await client.create(pool("a"))
    read = await client.get(WorkerPool, "a")
    read.status = WorkerPoolStatus(replicas=2)
    assert (await client.update_status(read)).status == WorkerPoolStatus(replicas=2)


async def test_a_write_of_the_status_changes_nothing_else(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 1}, labels={"x": "1"}))
    sent = {
        **made,
        "metadata": {
            **made["metadata"],
            "labels": {"x": "9"},
            "annotations": {"new": "1"},
            "finalizers": ["example.com/f"],
        },
        "spec": {**made["spec"], "replicas": 9},
        "status": {"replicas": 3},
    }
    changed = await client.update_status(sent)
    assert changed["spec"] == made["spec"]
    meta = changed["metadata"]
    assert meta["labels"] == {"x": "1"} and "annotations" not in meta and "finalizers" not in meta


async def test_a_write_of_the_status_keeps_the_generation(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.update_status({**made, "status": {"replicas": 3}})
    assert changed["metadata"]["generation"] == 1
    assert int(version_of(changed)) > int(version_of(made))


async def test_a_status_that_says_the_same_keeps_the_version(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.update_status({**made, "status": {"replicas": 3}})
    assert await client.update_status(changed) == changed


async def test_a_status_of_an_old_version_is_a_conflict(client: Client) -> None:
    made = await client.create(pool("a"))
    await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    with refused(409, "Conflict"):
        await client.update_status({**made, "status": {"replicas": 3}})


async def test_a_patch_of_the_status_changes_nothing_else(client: Client) -> None:
    await client.create(pool("a", {"replicas": 1}))
    patch = {"spec": {"replicas": 9}, "status": {"replicas": 3}}
    changed = await client.patch(POOLS, "a", patch, subresource="status")
    assert (changed["spec"]["replicas"], changed["status"]["replicas"]) == (1, 3)


async def test_a_status_can_be_removed(client: Client) -> None:
    await client.create(pool("a"))
    await client.patch(POOLS, "a", {"status": {"replicas": 3}}, subresource="status")
    changed = await client.patch(POOLS, "a", {"status": None}, subresource="status")
    assert "status" not in changed


async def test_a_status_is_checked_against_its_schema(client: Client) -> None:
    await client.create(task("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(TASKS, "a", {"status": {"phase": "Dreaming"}}, subresource="status")
    assert ("status.phase", "FieldValueNotSupported") in causes(refusal)


async def test_a_status_has_its_defaults(client: Client) -> None:
    await client.create(pool("a"))
    changed = await client.patch(POOLS, "a", {"status": {"replicas": 3}}, subresource="status")
    assert changed["status"]["readyReplicas"] == 0


async def test_conditions_have_one_entry_a_type(client: Client) -> None:
    await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", {"status": {"conditions": [READY, READY]}}, subresource="status")
    assert ("status.conditions[1]", "FieldValueDuplicate") in causes(refusal)


async def test_who_wrote_the_status_owns_it_through_the_subresource(as_manager: As) -> None:
    await as_manager("user").create(pool("a"))
    changed = await as_manager("controller").patch(POOLS, "a", {"status": {"replicas": 3}}, subresource="status")
    entries = {e["manager"]: e for e in changed["metadata"]["managedFields"]}
    assert "subresource" not in entries["user"]
    assert entries["controller"]["subresource"] == "status"
    assert set(entries["controller"]["fieldsV1"]) == {"f:status"}


async def test_a_status_of_an_absent_object_is_not_found(client: Client) -> None:
    with refused(404, "NotFound"):
        await client.patch(POOLS, "absent", {"status": {}}, subresource="status")


# Scale.


async def test_a_scale_tells_the_replicas_asked_for_and_there(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 3}))
    status = {"replicas": 2, "selector": "pool=a"}
    made = await client.patch(POOLS, "a", {"status": status}, subresource="status")
    scale = await scale_of(client, "a")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, status)
    assert (name_of(scale), version_of(scale)) == ("a", version_of(made))
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]


async def test_the_client_reads_and_sets_a_scale(client: Client) -> None:
    await client.create(pool("a", {"replicas": 3}))
    assert await client.get_scale(WorkerPool, "a") == 3
    await client.set_scale(WorkerPool, "a", 5)
    assert (await client.get(POOLS, "a"))["spec"]["replicas"] == 5


async def test_a_new_scale_is_a_new_generation(client: Client) -> None:
    await client.create(pool("a", {"replicas": 3}))
    await client.set_scale(POOLS, "a", 5)
    assert (await client.get(POOLS, "a"))["metadata"]["generation"] == 2


async def test_a_scale_can_be_replaced(client: Client) -> None:
    await client.create(pool("a", {"replicas": 3}))
    scale = await scale_of(client, "a")
    scale["spec"]["replicas"] = 4
    await client.backend.write([Operation("update", POOLS, client.namespace, "a", scale, subresource="scale")])
    assert (await client.get(POOLS, "a"))["spec"]["replicas"] == 4


async def test_a_scale_of_an_old_version_is_a_conflict(client: Client) -> None:
    await client.create(pool("a", {"replicas": 3}))
    scale = await scale_of(client, "a")
    await client.set_scale(POOLS, "a", 5)
    with refused(409, "Conflict"):
        await client.backend.write([Operation("update", POOLS, client.namespace, "a", scale, subresource="scale")])


async def test_a_scale_below_zero_is_refused(client: Client) -> None:
    await client.create(pool("a", {"replicas": 3}))
    with refused(422, "Invalid"):
        await client.set_scale(POOLS, "a", -1)


async def test_the_object_s_own_bounds_hold_for_its_scale(client: Client) -> None:
    await client.create(pool("a", {"replicas": 3}))
    with refused(422, "Invalid"):
        await client.set_scale(POOLS, "a", 1_000_000)


async def test_who_scaled_owns_the_replicas_through_the_subresource(as_manager: As) -> None:
    await as_manager("user").create(pool("a", {"replicas": 3}))
    await as_manager("scaler").set_scale(POOLS, "a", 5)
    obj = await as_manager("user").get(POOLS, "a")
    [entry] = [e for e in obj["metadata"]["managedFields"] if e["manager"] == "scaler"]
    assert entry["subresource"] == "scale"
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}


async def test_an_absent_object_has_no_scale(client: Client) -> None:
    with refused(404, "NotFound"):
        await client.get_scale(POOLS, "absent")


async def test_a_kind_without_a_scale_has_no_such_subresource(client: Client) -> None:
    await client.create(task("a"))
    with refused(404, "NotFound"):
        await client.get_scale(TASKS, "a")


# Server-side apply of a scale.


def replicas(count: int | None, **metadata: str) -> Object:
    spec = {} if count is None else {"replicas": count}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", **metadata}, "spec": spec}


async def apply_scale(client: Client, manager: str, config: Object, *, force: bool = False) -> Object:
    options = WriteOptions(manager, force=force)
    await client.backend.write([Operation("apply", POOLS, client.namespace, "a", config, options, subresource="scale")])
    return await client.get(POOLS, "a")


def owners(obj: Object, field: str) -> list[tuple[str, str, str]]:
    """Return the owners of a field of the spec: manager, operation and subresource."""
    return [
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in obj["metadata"]["managedFields"]
        if f"f:{field}" in entry["fieldsV1"].get("f:spec", {})
    ]


@pytest.mark.needs("apply of a custom scale")
async def test_a_scale_is_applied(client: Client) -> None:
    await client.create(pool("a"))
    changed = await apply_scale(client, "autoscaler", replicas(3))
    assert changed["spec"]["replicas"] == 3
    assert owners(changed, "replicas") == [("autoscaler", "Apply", "scale")]
    (entry,) = [each for each in changed["metadata"]["managedFields"] if each["manager"] == "autoscaler"]
    assert (entry["apiVersion"], entry["fieldsV1"]) == ("rota.dev/v1alpha1", {"f:spec": {"f:replicas": {}}})
    assert (await scale_of(client, "a"))["spec"]["replicas"] == 3


@pytest.mark.needs("apply of a custom scale")
async def test_an_applied_scale_meets_who_owns_the_replicas(client: Client, as_manager: As) -> None:
    await as_manager("owner").apply(pool("a", {"replicas": 1}))
    with refused(409, "Conflict") as refusal:
        await apply_scale(client, "autoscaler", replicas(3))
    assert [(each["reason"], each["field"]) for each in refusal.value.causes] == [
        ("FieldManagerConflict", ".spec.replicas")
    ]
    forced = await apply_scale(client, "autoscaler", replicas(3), force=True)
    assert forced["spec"]["replicas"] == 3
    assert owners(forced, "replicas") == [("autoscaler", "Apply", "scale")]
    with refused(409, "Conflict"):
        await as_manager("owner").apply(pool("a", {"replicas": 1}))
    kept = await as_manager("owner").apply(pool("a"))
    assert kept["spec"]["replicas"] == 3


async def test_the_same_replicas_applied_to_a_scale_are_owned_by_both(client: Client, as_manager: As) -> None:
    await as_manager("owner").apply(pool("a", {"replicas": 1}))
    shared = await apply_scale(client, "autoscaler", replicas(1))
    assert sorted(owners(shared, "replicas")) == [("autoscaler", "Apply", "scale"), ("owner", "Apply", "")]


@pytest.mark.needs("apply of a custom scale")
@pytest.mark.parametrize(
    ("config", "code", "reason"),
    [
        ({**replicas(1), "kind": "WorkerPool"}, 400, "BadRequest"),
        (replicas(-1), 422, "Invalid"),
        (replicas(1, name="b"), 400, "BadRequest"),
    ],
    ids=["kind", "replicas", "name"],
)
async def test_what_is_no_scale_is_not_applied_as_one(client: Client, config: Object, code: int, reason: str) -> None:
    await client.create(pool("a", {"replicas": 1}))
    with refused(code, reason):
        await apply_scale(client, "autoscaler", config, force=True)
    assert (await client.get(POOLS, "a"))["spec"]["replicas"] == 1


async def test_a_scale_of_nothing_is_not_applied(client: Client) -> None:
    with refused(404, "NotFound"):
        await apply_scale(client, "autoscaler", replicas(1))
