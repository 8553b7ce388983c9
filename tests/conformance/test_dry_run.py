from __future__ import annotations

import copy

from rota import Client
from tests.conformance.expecting import Object, refused, watching
from tests.conformance.objects import POOLS, config_map, pool, version_of


def lasting(obj: Object) -> Object:
    """An object without what differs from one write to the next."""
    out = copy.deepcopy(obj)
    for name in ("uid", "creationTimestamp", "resourceVersion"):
        out["metadata"].pop(name, None)
    for entry in out["metadata"]["managedFields"]:
        entry.pop("time", None)
    return out


async def test_a_dry_creation_makes_nothing_and_answers_as_the_real_one(client: Client) -> None:
    foretold = await client.create(pool("a", {"replicas": 2}), dry_run=True)
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")
    assert lasting(foretold) == lasting(await client.create(pool("a", {"replicas": 2})))


async def test_a_dry_creation_is_refused_as_the_real_one(client: Client) -> None:
    await client.create(pool("a"))
    with refused(409, "AlreadyExists"):
        await client.create(pool("a"), dry_run=True)
    with refused(422, "Invalid"):
        await client.create(pool("b", {"replicas": 5000}), dry_run=True)
    with refused(404, "NotFound"):
        await client.create(pool("b"), namespace="no-such-namespace", dry_run=True)


async def test_a_dry_creation_generates_a_name(client: Client) -> None:
    foretold = await client.create(pool("", generateName="a-"), dry_run=True)
    assert foretold["metadata"]["name"].startswith("a-")
    assert (await client.list(POOLS)).items == []


async def test_a_dry_update_changes_nothing_and_answers_as_the_real_one(client: Client) -> None:
    made = await client.create(pool("a"))
    sent = {**made, "spec": {**made["spec"], "replicas": 2}}
    foretold = await client.update(sent, dry_run=True)
    assert await client.get(POOLS, "a") == made
    assert foretold["metadata"]["generation"] == 2
    assert lasting(foretold) == lasting(await client.update(sent))


async def test_a_dry_update_is_refused_as_the_real_one(client: Client) -> None:
    made = await client.create(pool("a"))
    changed = await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    with refused(409, "Conflict"):
        await client.update({**made, "spec": {**made["spec"], "replicas": 2}}, dry_run=True)
    with refused(422, "Invalid"):
        await client.update({**changed, "spec": {**made["spec"], "replicas": 5000}}, dry_run=True)


async def test_a_dry_write_of_the_status_changes_nothing(client: Client) -> None:
    made = await client.create(pool("a"))
    foretold = await client.update({**made, "status": {"replicas": 2}}, subresource="status", dry_run=True)
    assert foretold["status"]["replicas"] == 2
    assert await client.get(POOLS, "a") == made


async def test_a_dry_patch_changes_nothing_and_answers_as_the_real_one(client: Client) -> None:
    made = await client.create(pool("a"))
    foretold = await client.patch(POOLS, "a", {"spec": {"replicas": 2}}, dry_run=True)
    assert await client.get(POOLS, "a") == made
    assert lasting(foretold) == lasting(await client.patch(POOLS, "a", {"spec": {"replicas": 2}}))


async def test_a_dry_apply_makes_nothing_and_answers_as_the_real_one(client: Client) -> None:
    foretold = await client.apply(pool("a", {"replicas": 2}), dry_run=True)
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")
    assert lasting(foretold) == lasting(await client.apply(pool("a", {"replicas": 2})))


async def test_a_dry_apply_changes_nothing_and_answers_as_the_real_one(client: Client) -> None:
    made = await client.apply(pool("a", {"replicas": 2}))
    foretold = await client.apply(pool("a", {"replicas": 3}), dry_run=True)
    assert await client.get(POOLS, "a") == made
    assert lasting(foretold) == lasting(await client.apply(pool("a", {"replicas": 3})))


async def test_a_dry_deletion_deletes_nothing(client: Client) -> None:
    made = await client.create(pool("a"))
    assert await client.delete(POOLS, "a", dry_run=True) is None
    assert await client.get(POOLS, "a") == made


async def test_a_dry_deletion_of_a_held_object_marks_nothing(client: Client) -> None:
    made = await client.create(pool("a", finalizers=["example.com/hold"]))
    foretold = await client.delete(POOLS, "a", dry_run=True)
    assert foretold is not None and foretold["metadata"]["deletionTimestamp"]
    assert await client.get(POOLS, "a") == made
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})


async def test_a_dry_deletion_is_refused_as_the_real_one(client: Client) -> None:
    await client.create(pool("a"))
    with refused(404, "NotFound"):
        await client.delete(POOLS, "absent", dry_run=True)
    with refused(409, "Conflict"):
        await client.delete(POOLS, "a", uid="another", dry_run=True)


async def test_dry_writes_are_no_events(client: Client) -> None:
    made = await client.create(pool("a"))
    before = await client.list(POOLS)
    await client.create(pool("b"), dry_run=True)
    await client.patch(POOLS, "a", {"spec": {"replicas": 2}}, dry_run=True)
    await client.delete(POOLS, "a", dry_run=True)
    marker = await client.create(pool("z"))
    async with watching(client, POOLS, resource_version=before.resource_version) as watch:
        first = await watch.next()
    assert (first.type, first.object) == ("ADDED", marker)
    assert version_of(made) == version_of(await client.get(POOLS, "a"))


async def test_a_core_kind_can_be_written_dryly_too(client: Client) -> None:
    foretold = await client.create(config_map("a"), dry_run=True)
    assert foretold["data"] == {"key": "value"}
    with refused(404, "NotFound"):
        await client.update(config_map("a"), dry_run=True)
