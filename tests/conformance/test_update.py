from __future__ import annotations

import asyncio

import pytest

from rota import Client
from rota.api import WorkerPool
from rota.registry import Operation
from tests.conformance.expecting import causes, refused
from tests.conformance.objects import CONFIG_MAPS, LEASES, POOLS, config_map, lease, pool, version_of


async def test_an_update_replaces_the_object(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 1}, labels={"x": "1"}))
    changed = await client.update({**pool("a", {"worker": {"type": "python"}}, resourceVersion=version_of(made))})
    assert changed["spec"]["worker"] == {"type": "python"}
    assert "replicas" not in changed["spec"] and "labels" not in changed["metadata"]
    assert await client.get(POOLS, "a") == changed


async def test_a_typed_object_is_changed_and_sent_back(client: Client) -> None:
    await client.create(pool("a"))
    read = await client.get(WorkerPool, "a")
    read.spec.replicas = 4
    assert (await client.update(read)).spec.replicas == 4


async def test_every_change_gives_a_greater_version(client: Client) -> None:
    obj = await client.create(pool("a"))
    for replicas in range(1, 4):
        changed = await client.update({**obj, "spec": {**obj["spec"], "replicas": replicas}})
        assert int(version_of(changed)) > int(version_of(obj))
        obj = changed


async def test_an_update_of_an_old_version_is_a_conflict(client: Client) -> None:
    old = await client.create(pool("a"))
    await client.patch(POOLS, "a", {"spec": {"replicas": 2}})
    with refused(409, "Conflict") as refusal:
        await client.update({**old, "spec": {**old["spec"], "replicas": 3}})
    assert refusal.value.message == (
        'Operation cannot be fulfilled on workerpools.rota.dev "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert refusal.value.details == {"name": "a", "group": "rota.dev", "kind": "workerpools"}
    assert (await client.get(POOLS, "a"))["spec"]["replicas"] == 2


async def test_of_many_updates_of_one_version_one_succeeds(client: Client) -> None:
    made = await client.create(pool("a"))
    updates = [client.update({**made, "spec": {**made["spec"], "replicas": n}}) for n in range(1, 9)]
    results = await asyncio.gather(*updates, return_exceptions=True)
    winners = [r for r in results if isinstance(r, dict)]
    assert len(winners) == 1
    assert {getattr(r, "code", 409) for r in results} == {409}
    assert await client.get(POOLS, "a") == winners[0]


async def test_a_custom_kind_is_not_updated_without_a_version(client: Client) -> None:
    await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.update(pool("a", {"replicas": 2}))
    assert causes(refusal) == [("metadata.resourceVersion", "FieldValueInvalid")]
    assert "must be specified for an update" in refusal.value.message


async def test_a_lease_is_not_updated_without_a_version(client: Client) -> None:
    await client.create(lease("a"))
    with refused(422, "Invalid") as refusal:
        await client.update(lease("a", holderIdentity="me"))
    assert causes(refusal) == [("metadata.resourceVersion", "FieldValueInvalid")]


async def test_a_config_map_may_be_updated_without_a_version(client: Client) -> None:
    await client.create(config_map("a"))
    changed = await client.update(config_map("a", {"new": "data"}))
    assert changed["data"] == {"new": "data"}


async def test_an_update_of_an_absent_object_is_not_found(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.update(pool("absent", resourceVersion="1"))
    assert refusal.value.message == 'workerpools.rota.dev "absent" not found'


async def test_an_update_of_an_absent_lease_makes_it(client: Client) -> None:
    made = await client.update(lease("new", holderIdentity="me"))
    assert made["metadata"]["uid"]
    assert (await client.get(LEASES, "new"))["spec"]["holderIdentity"] == "me"


async def test_an_update_without_a_change_keeps_the_version(client: Client) -> None:
    made = await client.create(pool("a"))
    assert version_of(await client.update(made)) == version_of(made)
    same = pool("a", resourceVersion=version_of(made))
    assert version_of(await client.update(same)) == version_of(made)


async def test_a_change_of_the_spec_gives_a_new_generation(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.update({**made, "spec": {**made["spec"], "replicas": 2}})
    assert changed["metadata"]["generation"] == 2


async def test_a_change_of_metadata_keeps_the_generation(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.update({**made, "metadata": {**made["metadata"], "labels": {"x": "1"}}})
    assert changed["metadata"]["generation"] == 1
    assert int(version_of(changed)) > int(version_of(made))


async def test_what_a_default_says_already_is_no_change(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.update(pool("a", {"reset": "Clean"}, resourceVersion=version_of(made)))
    assert changed["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("creationTimestamp", "2001-01-01T00:00:00Z"), ("generation", 99), ("deletionGracePeriodSeconds", None)],
)
async def test_what_the_server_sets_stays_as_it_is(client: Client, field: str, value: object) -> None:
    made = await client.create(pool("a"))
    await client.update({**made, "metadata": {**made["metadata"], field: value, "labels": {"x": "1"}}})
    assert (await client.get(POOLS, "a"))["metadata"].get(field) == made["metadata"].get(field)


async def test_an_update_cannot_mark_an_object_as_deleted(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.update({**made, "metadata": {**made["metadata"], "deletionTimestamp": "2031-01-01T00:00:00Z"}})
    assert set(causes(refusal)) == {("metadata.deletionTimestamp", "FieldValueInvalid")}


async def test_the_uid_is_a_precondition(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(409, "Conflict") as refusal:
        await client.update({**made, "metadata": {**made["metadata"], "uid": "another"}})
    expected = f"Precondition failed: UID in precondition: another, UID in object meta: {made['metadata']['uid']}"
    assert expected in refusal.value.message


async def test_a_namesake_is_not_updated_by_mistake(client: Client) -> None:
    first = await client.create(config_map("a"))
    await client.delete(CONFIG_MAPS, "a")
    await client.create(config_map("a"))
    with refused(409, "Conflict"):
        await client.update(config_map("a", {"meant": "for the first"}, uid=first["metadata"]["uid"]))


async def test_an_object_does_not_change_its_name(client: Client) -> None:
    made = await client.create(pool("a"))
    renamed = {**made, "metadata": {**made["metadata"], "name": "b"}}
    with refused(400, "BadRequest") as refusal:
        await client.backend.write([Operation("update", POOLS, client.namespace, "a", renamed)])
    assert refusal.value.message == "the name of the object (b) does not match the name on the URL (a)"


async def test_an_object_does_not_change_its_namespace(client: Client) -> None:
    made = await client.create(pool("a"))
    moved = {**made, "metadata": {**made["metadata"], "namespace": "default"}}
    with refused(400, "BadRequest"):
        await client.backend.write([Operation("update", POOLS, client.namespace, "a", moved)])


async def test_an_update_of_the_object_leaves_its_status(client: Client) -> None:
    await client.create(pool("a"))
    made = await client.patch(POOLS, "a", {"status": {"replicas": 3}}, subresource="status")
    changed = await client.update({**made, "status": {"replicas": 9}, "spec": {**made["spec"], "replicas": 1}})
    assert changed["status"]["replicas"] == 3
