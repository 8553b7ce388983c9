from __future__ import annotations

import base64
import json

import pytest

from rota import Client
from rota.api import WorkerPool
from rota.client import ALL_NAMESPACES, ObjectList
from tests.conformance.expecting import Object, refused
from tests.conformance.objects import POOLS, config_map, name_of, namespace, pool, version_of
from tests.conformance.planes import Plane


def names(listed: ObjectList[Object]) -> list[str]:
    return [name_of(item) for item in listed.items]


async def make(client: Client, *called: str) -> None:
    for name in called:
        await client.create(pool(name))


async def test_a_list_has_the_objects_of_one_kind_and_namespace(client: Client) -> None:
    other = f"{client.namespace}0"
    await client.create(namespace(other))
    await client.create(config_map("a"))
    await make(client, "b")
    await client.create(pool("c"), namespace=other)
    assert names(await client.list(POOLS)) == ["b"]


async def test_a_list_of_an_absent_namespace_is_empty(client: Client) -> None:
    listed = await client.list(POOLS, namespace="no-such-namespace")
    assert listed.items == [] and int(listed.resource_version) > 0


async def test_a_list_is_in_the_order_of_names(client: Client) -> None:
    await make(client, "b", "a", "c-1", "c.1", "c")
    assert names(await client.list(POOLS)) == ["a", "b", "c", "c-1", "c.1"]


async def test_listed_objects_are_the_ones_that_are_read(client: Client) -> None:
    made = await client.create(pool("a"))
    assert (await client.list(POOLS)).items == [made]


async def test_a_typed_list_has_typed_items(client: Client) -> None:
    await make(client, "a")
    [item] = (await client.list(WorkerPool)).items
    assert isinstance(item, WorkerPool) and item.metadata.name == "a"


async def test_a_list_of_all_namespaces_goes_namespace_by_namespace(client: Client) -> None:
    other = f"{client.namespace}0"
    await client.create(namespace(other))
    await client.create(pool("a", labels={"of": client.namespace}), namespace=other)
    await client.create(pool("b", labels={"of": client.namespace}))
    listed = await client.list(POOLS, namespace=ALL_NAMESPACES, labels=f"of={client.namespace}")
    found = [(item["metadata"]["namespace"], name_of(item)) for item in listed.items]
    assert found == [(client.namespace, "b"), (other, "a")]


# Pages.


async def test_pages_together_are_the_whole_list(client: Client) -> None:
    await make(client, "a", "b", "c", "d", "e")
    first = await client.list(POOLS, limit=2)
    second = await client.list(POOLS, limit=2, continue_=first.continue_)
    third = await client.list(POOLS, limit=2, continue_=second.continue_)
    assert [names(first), names(second), names(third)] == [["a", "b"], ["c", "d"], ["e"]]
    assert first.continue_ and second.continue_ and not third.continue_


async def test_a_page_tells_how_many_follow(client: Client) -> None:
    await make(client, "a", "b", "c")
    first = await client.list(POOLS, limit=1)
    assert first.remaining == 2
    assert (await client.list(POOLS, limit=2, continue_=first.continue_)).remaining is None


async def test_how_many_of_a_selection_follow_is_not_told(client: Client) -> None:
    for name in "abc":
        await client.create(pool(name, labels={"x": "1"}))
    first = await client.list(POOLS, labels="x=1", limit=1)
    assert first.continue_ and first.remaining is None


async def test_a_full_last_page_has_no_successor(client: Client) -> None:
    await make(client, "a", "b")
    assert (await client.list(POOLS, limit=2)).continue_ == ""


async def test_pages_are_of_one_snapshot_whatever_is_written_meanwhile(client: Client) -> None:
    await make(client, "a", "b", "c", "d")
    first = await client.list(POOLS, limit=2)
    await client.delete(POOLS, "c")
    await client.create(pool("bb"))
    await client.patch(POOLS, "d", {"spec": {"replicas": 5}})
    rest = await client.list(POOLS, limit=10, continue_=first.continue_)
    assert names(rest) == ["c", "d"]
    assert "replicas" not in rest.items[1]["spec"]
    assert rest.resource_version == first.resource_version


async def test_pages_may_be_of_different_sizes(client: Client) -> None:
    await make(client, "a", "b", "c", "d")
    first = await client.list(POOLS, limit=1)
    second = await client.list(POOLS, limit=2, continue_=first.continue_)
    rest = await client.list(POOLS, continue_=second.continue_)
    assert [names(first), names(second), names(rest)] == [["a"], ["b", "c"], ["d"]]


async def test_pages_of_a_selection_have_its_objects_only(client: Client) -> None:
    for i in range(6):
        await client.create(pool(f"p{i}", labels={"odd": str(i % 2)}))
    first = await client.list(POOLS, labels="odd=1", limit=2)
    rest = await client.list(POOLS, labels="odd=1", limit=2, continue_=first.continue_)
    assert [names(first), names(rest)] == [["p1", "p3"], ["p5"]]


async def test_a_place_to_continue_is_where_a_list_ended(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.list(POOLS, limit=1, continue_="nonsense!")


async def test_a_place_to_continue_is_in_the_list_itself(client: Client) -> None:
    token = {"v": "meta.k8s.io/v1", "rv": 1, "start": "../../secrets/"}
    with refused(400, "BadRequest"):
        await client.list(POOLS, limit=1, continue_=base64.urlsafe_b64encode(json.dumps(token).encode()).decode())


async def test_a_place_to_continue_excludes_a_version(client: Client) -> None:
    await make(client, "a", "b")
    first = await client.list(POOLS, limit=1)
    with refused(400, "BadRequest"):
        await client.list(POOLS, limit=1, continue_=first.continue_, resource_version=first.resource_version)


@pytest.mark.needs("compaction on demand")
async def test_a_place_to_continue_expires_with_its_snapshot(client: Client, plane: Plane) -> None:
    await make(client, "a", "b", "c")
    first = await client.list(POOLS, limit=1)
    await client.patch(POOLS, "c", {"spec": {"replicas": 2}})
    await plane.forget_history()
    with refused(410, "Expired"):
        await client.list(POOLS, limit=1, continue_=first.continue_)


# Versions.


async def test_a_list_is_as_new_as_the_last_write(client: Client) -> None:
    made = await client.create(pool("a"))
    listed = await client.list(POOLS)
    assert names(listed) == ["a"]
    assert int(listed.resource_version) >= int(version_of(made))


async def test_a_list_at_any_version_is_answered(client: Client) -> None:
    listed = await client.list(POOLS, resource_version="0")
    assert int(listed.resource_version) > 0


async def test_a_list_not_older_than_a_write_has_it(client: Client) -> None:
    made = await client.create(pool("a"))
    listed = await client.list(POOLS, resource_version=version_of(made), match="NotOlderThan")
    assert names(listed) == ["a"]
    assert int(listed.resource_version) >= int(version_of(made))


async def test_a_version_without_a_match_means_not_older(client: Client) -> None:
    made = await client.create(pool("a"))
    await client.create(pool("b"))
    listed = await client.list(POOLS, resource_version=version_of(made))
    assert names(listed)[0] == "a" and int(listed.resource_version) >= int(version_of(made))


async def test_a_list_at_an_exact_version_is_as_it_was_then(client: Client) -> None:
    await make(client, "a", "b")
    then = await client.list(POOLS)
    await client.delete(POOLS, "a")
    await client.create(pool("c"))
    await client.patch(POOLS, "b", {"spec": {"replicas": 5}})
    listed = await client.list(POOLS, resource_version=then.resource_version, match="Exact")
    assert listed.items == then.items
    assert listed.resource_version == then.resource_version


async def test_pages_can_be_of_an_exact_version(client: Client) -> None:
    await make(client, "a", "b")
    then = await client.list(POOLS)
    await client.delete(POOLS, "b")
    first = await client.list(POOLS, resource_version=then.resource_version, match="Exact", limit=1)
    rest = await client.list(POOLS, limit=1, continue_=first.continue_)
    assert names(first) + names(rest) == ["a", "b"]


@pytest.mark.needs("compaction on demand")
async def test_an_exact_version_expires_with_the_history(client: Client, plane: Plane) -> None:
    await make(client, "a")
    then = await client.list(POOLS)
    await client.patch(POOLS, "a", {"spec": {"replicas": 2}})
    await plane.forget_history()
    with refused(410, "Expired"):
        await client.list(POOLS, resource_version=then.resource_version, match="Exact")


async def test_a_version_that_is_not_reached_is_a_timeout_with_its_cause(client: Client) -> None:
    ahead = str(int((await client.list(POOLS)).resource_version) + 1_000_000)
    with refused(504, "Timeout") as refusal:
        await client.list(POOLS, resource_version=ahead, match="NotOlderThan")
    assert refusal.value.message.startswith(f"Timeout: Too large resource version: {ahead}, current: ")
    [cause] = refusal.value.causes
    assert (cause["reason"], cause["message"]) == ("ResourceVersionTooLarge", "Too large resource version")


async def test_a_version_is_a_number(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.list(POOLS, resource_version="abc")


async def test_a_match_needs_a_version(client: Client) -> None:
    with refused(422, "Invalid"):
        await client.list(POOLS, match="NotOlderThan")


async def test_a_match_excludes_a_place_to_continue(client: Client) -> None:
    await make(client, "a", "b")
    first = await client.list(POOLS, limit=1)
    with refused(422, "Invalid"):
        await client.list(POOLS, limit=1, continue_=first.continue_, match="Exact")


async def test_exactly_version_zero_makes_no_sense(client: Client) -> None:
    with refused(422, "Invalid"):
        await client.list(POOLS, resource_version="0", match="Exact")
