from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import ApiError, Client
from rota.api import Kind
from tests.conformance.expecting import PATIENCE_SECONDS, Object, becomes, gone, refused, watching
from tests.conformance.objects import (
    CONFIG_MAPS,
    LOCATIONS,
    POOLS,
    TASKS,
    config_map,
    location,
    name_of,
    owned_by,
    pool,
    task,
)

pytestmark = pytest.mark.needs("garbage collection")

HOLD = "example.com/hold"


async def child(client: Client, name: str, *owners: Object, **metadata: Any) -> Object:
    return await client.create(config_map(name, ownerReferences=list(owners), **metadata))


async def release(client: Client, kind: Kind, name: str) -> None:
    await client.patch(kind, name, {"metadata": {"finalizers": None}})


async def test_what_is_owned_goes_with_its_owner(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await child(client, "child", owned_by(owner))
    await client.delete(POOLS, "owner")
    await gone(client, CONFIG_MAPS, "child")


async def test_in_the_background_the_owner_goes_at_once(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await child(client, "child", owned_by(owner, blockOwnerDeletion=True), finalizers=[HOLD])
    assert await client.delete(POOLS, "owner", propagation="Background") is None
    with refused(404, "NotFound"):
        await client.get(POOLS, "owner")
    await becomes(client, CONFIG_MAPS, "child", lambda obj: "deletionTimestamp" in obj["metadata"])
    await release(client, CONFIG_MAPS, "child")
    await gone(client, CONFIG_MAPS, "child")


async def test_what_is_owned_goes_through_all_generations(client: Client) -> None:
    owner = await client.create(pool("owner"))
    middle = await client.create(task("middle", ownerReferences=[owned_by(owner)]))
    await child(client, "last", owned_by(middle))
    await client.delete(POOLS, "owner")
    await gone(client, TASKS, "middle")
    await gone(client, CONFIG_MAPS, "last")


async def test_what_has_another_owner_left_stays_and_forgets_the_first(client: Client) -> None:
    first, second = await client.create(pool("first")), await client.create(pool("second"))
    await child(client, "child", owned_by(first), owned_by(second))
    await client.delete(POOLS, "first", propagation="Foreground")
    await gone(client, POOLS, "first")
    left = await becomes(client, CONFIG_MAPS, "child", lambda obj: len(obj["metadata"]["ownerReferences"]) == 1)
    assert left["metadata"]["ownerReferences"] == [owned_by(second)]
    assert "deletionTimestamp" not in left["metadata"]


async def test_what_names_an_owner_that_never_was_goes(client: Client) -> None:
    reference = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "name": "never", "uid": "0000-1111"}
    await child(client, "child", reference)
    await gone(client, CONFIG_MAPS, "child")


async def test_a_namesake_of_the_owner_is_not_the_owner(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await client.delete(POOLS, "owner")
    await client.create(pool("owner"))
    await child(client, "child", owned_by(owner))
    await gone(client, CONFIG_MAPS, "child")


async def test_an_owner_may_be_of_the_cluster(client: Client) -> None:
    owner = await client.create(location(client.namespace))
    await child(client, "child", owned_by(owner))
    await client.delete(LOCATIONS, client.namespace)
    await gone(client, CONFIG_MAPS, "child")


# Foreground.


async def test_in_the_foreground_the_owner_waits_for_what_blocks_it(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await child(client, "child", owned_by(owner, blockOwnerDeletion=True), finalizers=[HOLD])
    held = await client.delete(POOLS, "owner", propagation="Foreground")
    assert held is not None
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert held["metadata"]["deletionTimestamp"]
    await becomes(client, CONFIG_MAPS, "child", lambda obj: "deletionTimestamp" in obj["metadata"])
    await client.get(POOLS, "owner")
    await release(client, CONFIG_MAPS, "child")
    await gone(client, CONFIG_MAPS, "child")
    await gone(client, POOLS, "owner")


async def test_in_the_foreground_the_owner_does_not_wait_for_what_does_not_block_it(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await child(client, "child", owned_by(owner), finalizers=[HOLD])
    await client.delete(POOLS, "owner", propagation="Foreground")
    await gone(client, POOLS, "owner")
    await client.get(CONFIG_MAPS, "child")
    await release(client, CONFIG_MAPS, "child")
    await gone(client, CONFIG_MAPS, "child")


async def test_in_the_foreground_an_owner_of_nothing_goes(client: Client) -> None:
    await client.create(pool("owner"))
    await client.delete(POOLS, "owner", propagation="Foreground")
    await gone(client, POOLS, "owner")


async def test_in_the_foreground_the_last_generation_goes_first(client: Client) -> None:
    owner = await client.create(pool("owner"))
    middle = await client.create(pool("middle", ownerReferences=[owned_by(owner, blockOwnerDeletion=True)]))
    await client.create(pool("last", ownerReferences=[owned_by(middle, blockOwnerDeletion=True)]))
    since = (await client.list(POOLS)).resource_version
    await client.delete(POOLS, "owner", propagation="Foreground")
    async with watching(client, POOLS, resource_version=since) as watch:
        seen = await watch.until("DELETED", "owner")
    order = [name_of(change.object) for change in seen if change.type == "DELETED" and change.object]
    assert order == ["last", "middle", "owner"]


async def test_the_owner_s_own_finalizer_still_holds_after_its_dependents_are_gone(client: Client) -> None:
    owner = await client.create(pool("owner", finalizers=[HOLD]))
    await child(client, "child", owned_by(owner, blockOwnerDeletion=True))
    await client.delete(POOLS, "owner", propagation="Foreground")
    await gone(client, CONFIG_MAPS, "child")
    await becomes(client, POOLS, "owner", lambda obj: obj["metadata"]["finalizers"] == [HOLD])
    await release(client, POOLS, "owner")
    await gone(client, POOLS, "owner")


# Orphan.


async def test_an_orphan_stays_and_forgets_its_owner(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await child(client, "child", owned_by(owner))
    await client.delete(POOLS, "owner", propagation="Orphan")
    await gone(client, POOLS, "owner")
    left = await client.get(CONFIG_MAPS, "child")
    assert "ownerReferences" not in left["metadata"] and "deletionTimestamp" not in left["metadata"]


async def test_an_orphan_keeps_its_other_owners(client: Client) -> None:
    first, second = await client.create(pool("first")), await client.create(pool("second"))
    await child(client, "child", owned_by(first), owned_by(second))
    await client.delete(POOLS, "first", propagation="Orphan")
    await gone(client, POOLS, "first")
    assert (await client.get(CONFIG_MAPS, "child"))["metadata"]["ownerReferences"] == [owned_by(second)]


async def test_a_later_wish_for_the_foreground_replaces_that_for_orphans(client: Client) -> None:
    owner = await client.create(pool("owner", finalizers=[HOLD]))
    await child(client, "child", owned_by(owner))
    await client.delete(POOLS, "owner", propagation="Orphan")
    held = await client.delete(POOLS, "owner", propagation="Background")
    assert held is not None and "orphan" not in held["metadata"].get("finalizers", [])
    await release(client, POOLS, "owner")
    await gone(client, POOLS, "owner")


# Rings.


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_ring_of_owners_goes_as_a_whole(client: Client, propagation: str) -> None:
    made = [await client.create(pool(name)) for name in "abc"]
    for obj, owner in zip(made, [made[2], made[0], made[1]], strict=True):
        patch = {"metadata": {"ownerReferences": [owned_by(owner, blockOwnerDeletion=True)]}}
        await client.patch(POOLS, name_of(obj), patch)
    await client.delete(POOLS, "a", propagation=propagation)  # type: ignore[arg-type]
    for name in "abc":
        await gone(client, POOLS, name)


async def test_many_go_with_their_owner(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await asyncio.gather(*(child(client, f"child-{i}", owned_by(owner)) for i in range(50)))
    listed = await client.list(CONFIG_MAPS, labels="!system")
    await client.delete(POOLS, "owner")
    left = {name_of(obj) for obj in listed.items if name_of(obj).startswith("child-")}
    assert len(left) == 50
    async with watching(client, CONFIG_MAPS, resource_version=listed.resource_version) as watch:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while left:
                change = await watch.next()
                if change.type == "DELETED" and change.object:
                    left.discard(name_of(change.object))


async def test_what_nobody_owns_stays(client: Client) -> None:
    owner = await client.create(pool("owner"))
    await child(client, "child", owned_by(owner))
    await client.create(config_map("bystander"))
    await client.delete(POOLS, "owner")
    await gone(client, CONFIG_MAPS, "child")
    try:
        await client.get(CONFIG_MAPS, "bystander")
    except ApiError as error:
        pytest.fail(f"it went too: {error}")
