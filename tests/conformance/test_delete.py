from __future__ import annotations

from rota import Client
from tests.conformance.expecting import causes, refused
from tests.conformance.objects import CONFIG_MAPS, POOLS, config_map, name_of, pool, version_of

HOLD = "example.com/hold"


async def test_a_deleted_object_is_gone(client: Client) -> None:
    await client.create(pool("a"))
    assert await client.delete(POOLS, "a") is None
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")
    assert (await client.list(POOLS)).items == []


async def test_a_deletion_of_an_absent_object_is_not_found(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.delete(POOLS, "absent")
    assert refusal.value.message == 'workerpools.rota.dev "absent" not found'


async def test_a_name_can_be_used_again(client: Client) -> None:
    first = await client.create(pool("a"))
    await client.delete(POOLS, "a")
    second = await client.create(pool("a"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert int(version_of(second)) > int(version_of(first))
    assert second["metadata"]["generation"] == 1


async def test_a_deletion_can_mean_one_object_by_uid(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(409, "Conflict") as refusal:
        await client.delete(POOLS, "a", uid="another")
    uid = made["metadata"]["uid"]
    assert refusal.value.message == (
        'Operation cannot be fulfilled on WorkerPool.rota.dev "a": the UID in the precondition (another) does not '
        f"match the UID in record ({uid}). The object might have been deleted and then recreated"
    )
    assert await client.delete(POOLS, "a", uid=made["metadata"]["uid"]) is None


async def test_a_deletion_can_mean_one_version(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    with refused(409, "Conflict") as refusal:
        await client.delete(POOLS, "a", resource_version=version_of(made))
    assert "The object might have been modified" in refusal.value.message
    assert await client.delete(POOLS, "a", resource_version=version_of(changed)) is None


# Finalizers.


async def test_a_finalizer_holds_a_deleted_object(client: Client) -> None:
    made = await client.create(pool("a", finalizers=[HOLD]))
    held = await client.delete(POOLS, "a")
    assert held is not None and held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    read = await client.get(POOLS, "a")
    assert read["metadata"]["deletionTimestamp"] == held["metadata"]["deletionTimestamp"]
    assert read["metadata"]["uid"] == made["metadata"]["uid"]
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_a_deleted_object_counts_a_generation(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(POOLS, "a")
    assert (await client.get(POOLS, "a"))["metadata"]["generation"] == 2
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_an_object_goes_with_its_last_finalizer(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD, "example.com/other"]))
    await client.delete(POOLS, "a")
    await client.patch(POOLS, "a", {"metadata": {"finalizers": [HOLD]}})
    await client.get(POOLS, "a")
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")


async def test_a_full_update_can_remove_the_last_finalizer(client: Client) -> None:
    await client.create(config_map("a", finalizers=[HOLD]))
    await client.delete(CONFIG_MAPS, "a")
    read = await client.get(CONFIG_MAPS, "a")
    await client.update({**read, "metadata": {**read["metadata"], "finalizers": []}})
    with refused(404, "NotFound"):
        await client.get(CONFIG_MAPS, "a")


async def test_a_finalizer_that_is_removed_first_holds_nothing(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})
    await client.get(POOLS, "a")
    assert await client.delete(POOLS, "a") is None


async def test_a_second_deletion_changes_nothing(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(POOLS, "a")
    first = await client.get(POOLS, "a")
    await client.delete(POOLS, "a")
    assert await client.get(POOLS, "a") == first
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_no_finalizer_is_added_to_a_deleted_object(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(POOLS, "a")
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", {"metadata": {"finalizers": [HOLD, "example.com/new"]}})
    assert set(causes(refusal)) == {("metadata.finalizers", "FieldValueForbidden")}
    assert "no new finalizers can be added if the object is being deleted" in refusal.value.message
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_a_deleted_object_can_still_be_changed(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(POOLS, "a")
    changed = await client.patch(POOLS, "a", {"spec": {"replicas": 4}, "metadata": {"labels": {"x": "1"}}})
    assert (changed["spec"]["replicas"], changed["metadata"]["labels"]) == (4, {"x": "1"})
    changed = await client.patch(POOLS, "a", {"status": {"replicas": 4}}, subresource="status")
    assert changed["status"]["replicas"] == 4
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_a_deletion_cannot_be_taken_back(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(POOLS, "a")
    await client.patch(POOLS, "a", {"metadata": {"deletionTimestamp": None, "labels": {"x": "1"}}})
    assert (await client.get(POOLS, "a"))["metadata"]["deletionTimestamp"]
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_the_name_of_a_held_object_is_taken(client: Client) -> None:
    await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(POOLS, "a")
    with refused(409, "AlreadyExists"):
        await client.create(pool("a"))
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_a_finalizer_has_the_form_of_a_label_key(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", finalizers=["not a name"]))
    assert causes(refusal) == [("metadata.finalizers", "FieldValueInvalid")]


# Collections.


async def test_a_collection_is_deleted_whole(client: Client) -> None:
    for name in "abc":
        await client.create(pool(name))
    await client.create(config_map("left"))
    await client.delete_collection(POOLS)
    assert (await client.list(POOLS)).items == []
    await client.get(CONFIG_MAPS, "left")


async def test_a_collection_is_deleted_by_labels(client: Client) -> None:
    for name, env in (("a", "test"), ("b", "prod"), ("c", "test")):
        await client.create(pool(name, labels={"env": env}))
    await client.delete_collection(POOLS, labels="env=test")
    assert [name_of(p) for p in (await client.list(POOLS)).items] == ["b"]


async def test_a_collection_is_deleted_by_fields(client: Client) -> None:
    for name in "abc":
        await client.create(pool(name))
    await client.delete_collection(POOLS, fields="metadata.name!=b")
    assert [name_of(p) for p in (await client.list(POOLS)).items] == ["b"]


async def test_a_collection_s_finalizers_hold(client: Client) -> None:
    await client.create(pool("a"))
    await client.create(pool("b", finalizers=[HOLD]))
    await client.delete_collection(POOLS)
    [left] = (await client.list(POOLS)).items
    assert name_of(left) == "b" and left["metadata"]["deletionTimestamp"]
    await client.patch(POOLS, "b", {"metadata": {"finalizers": None}})


async def test_a_collection_of_nothing_is_deleted_too(client: Client) -> None:
    await client.delete_collection(POOLS, labels="none=such")
