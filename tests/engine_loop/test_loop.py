"""The reconcilers that each kind of news makes run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rota.api import Condition, ConfigMap, Instance, InstanceType, Secret, Task, WorkerPool, Workspace
from rota.api.meta import empty_status
from rota.client import Key
from rota.engine import DONE, Context, Outcome, Watch, kinds_of
from tests.engine_loop.loops import PATIENCE_SECONDS, REPO, Noting, NotingKeys, World, says_ready


def owner(obj: dict[str, Any], controller: bool | None = True) -> dict[str, Any]:
    metadata = obj["metadata"]
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return reference if controller is None else {**reference, "controller": controller}


# An object's own news.


async def test_what_is_there_when_it_begins_is_looked_at(world: World) -> None:
    await world.workspace("a")
    await world.workspace("b")
    looking = Noting(Workspace)
    await world.serve(looking)
    assert looking.runs == {"a": 1, "b": 1}


async def test_an_object_that_is_made_changed_and_deleted_is_looked_at_each_time(world: World) -> None:
    looking = Noting(Workspace)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    assert looking.runs == {"w": 1}
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    await world.rest()
    assert [obj.spec.ref for obj in looking.seen][1:] == ["main"]
    await world.delete("Workspace", "w")
    await world.rest()
    assert looking.runs == {"w": 2} and world.node("Workspace", "w") is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"finalizers": ["example.com/hold"]},
        {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "u"}]},
    ],
    ids=str,
)
async def test_a_change_of_metadata_that_means_something_is_news(world: World, metadata: dict[str, Any]) -> None:
    looking = Noting(Workspace)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    await world.patch("Workspace", "w", {"metadata": metadata})
    await world.rest()
    assert looking.runs == {"w": 2}


async def test_an_object_that_begins_to_be_deleted_is_looked_at(world: World) -> None:
    looking = Noting(Workspace)
    await world.workspace("w", finalizers=["example.com/hold"])
    await world.serve(looking)
    await world.delete("Workspace", "w")
    await world.rest()
    assert [obj.metadata.deletion_timestamp is not None for obj in looking.seen] == [False, True]


async def test_its_own_status_write_does_not_make_it_run_again(world: World) -> None:
    looking = Noting(Workspace, says_ready)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    assert (await world.condition("Workspace", "w", "Ready")) == ("True", "Ready", "")
    assert looking.runs == {"w": 1}


async def test_a_status_write_of_somebody_else_makes_it_run(world: World) -> None:
    looking = Noting(Workspace, says_ready)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    await world.say_ready("Workspace", "w", "False", "Damaged")
    await world.rest()
    assert (await world.condition("Workspace", "w", "Ready")) == ("True", "Ready", "")
    assert looking.runs == {"w": 2}


async def test_somebody_elses_status_is_news_even_if_it_is_what_the_controller_wrote_before(world: World) -> None:
    """Only the echo of a write is not news, and an echo comes once."""
    looking = Noting(Workspace, says_ready)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    written = (await world.client.get(Workspace.api, "w"))["status"]
    looking.do = lambda context, obj: _done()
    await world.say_ready("Workspace", "w", "False", "Damaged")
    await world.rest()
    await world.set_status("Workspace", "w", **written)
    await world.rest()
    assert looking.runs == {"w": 3}


async def _done() -> Outcome:
    return DONE


async def test_a_status_write_that_was_refused_is_not_waited_for(world: World) -> None:
    """The same status, written by another client, is news."""
    wanted: list[Any] = []

    async def stale(context: Context, obj: Workspace) -> Outcome:
        if not wanted:
            status = context.condition(obj, empty_status(Workspace), Condition(type="Ready", status="True", reason="R"))
            wanted.append(status)
            old = msgspec.structs.replace(obj.metadata, resource_version="1")
            await context.write_status(msgspec.structs.replace(obj, metadata=old), status)
        return DONE

    looking = Noting(Workspace, stale)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    runs = looking.runs["w"]
    await world.set_status("Workspace", "w", **msgspec.to_builtins(wanted[0]))
    await world.rest()
    assert looking.runs["w"] == runs + 1


async def test_a_change_of_managed_fields_alone_is_no_news(world: World) -> None:
    looking = Noting(Workspace)
    await world.serve(looking)
    made = await world.workspace("w")
    await world.rest()
    body: dict[str, Any] = {
        "apiVersion": Workspace.api.api_version,
        "kind": "Workspace",
        "metadata": {"name": "w"},
        "spec": REPO,
    }
    applied = await world.client.apply(body)
    assert applied["metadata"]["managedFields"] != made["metadata"]["managedFields"]
    assert applied["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    await world.rest()
    assert looking.runs == {"w": 1}


async def test_a_change_of_an_object_without_a_status_is_news(world: World) -> None:
    looking = Noting(ConfigMap)
    await world.serve(looking)
    await world.create("ConfigMap", "c")
    await world.rest()
    await world.patch("ConfigMap", "c", {"data": {"key": "value"}})
    await world.rest()
    assert looking.runs == {"c": 2}


async def test_an_object_made_anew_under_the_same_name_is_looked_at(world: World) -> None:
    looking = Noting(Workspace)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    await world.delete("Workspace", "w")
    await world.workspace("w")
    await world.rest()
    first, last = looking.seen[0], looking.seen[-1]
    assert first.metadata.uid != last.metadata.uid


async def test_an_object_that_changes_while_it_is_looked_at_is_looked_at_once_more(world: World) -> None:
    go_on = asyncio.Event()

    async def waits(context: Context, obj: Workspace) -> Outcome:
        await go_on.wait()
        return DONE

    looking = Noting(Workspace, waits)
    await world.prepare(looking)
    world.serving = asyncio.create_task(world.loop.serve())
    await world.workspace("w")
    await world.until(lambda: looking.seen)
    for ref in ("a", "b", "c"):
        await world.patch("Workspace", "w", {"spec": {"ref": ref}})
    await world.until(lambda: world.objects.find(Workspace.api, "default", "w").spec.ref == "c")  # type: ignore[union-attr]
    go_on.set()
    await world.rest()
    assert [obj.spec.ref for obj in looking.seen][1:] == ["c"]


async def test_what_came_to_rest_is_not_kept(world: World) -> None:
    await world.serve(Noting(Workspace))
    for i in range(20):
        await world.workspace(f"w{i}")
    await world.rest()
    assert len(world.loop.view) == 0


# News of others.


async def test_news_of_what_an_object_owns_makes_the_owner_run(world: World) -> None:
    pools = Noting(WorkerPool, owns=(Instance,))
    await world.serve(pools)
    pool = await world.create("WorkerPool", "p", {"worker": {}})
    await world.rest()
    spec = {"containers": [{"name": "main"}], "templateHash": "a", "ordinal": 0}
    await world.create("Instance", "p-0", spec, ownerReferences=[owner(pool)])
    await world.rest()
    assert pools.runs == {"p": 2}
    await world.set_status("Instance", "p-0", phase="Running")
    await world.rest()
    assert pools.runs == {"p": 3}
    await world.delete("Instance", "p-0")
    await world.rest()
    assert pools.runs == {"p": 4}


async def test_an_owner_of_no_namespace_is_found_from_one(world: World) -> None:
    sizes = Noting(InstanceType, owns=(ConfigMap,))
    await world.serve(sizes)
    size = await world.create("InstanceType", "big", {"cpu": 1, "memory": "1Gi"})
    await world.rest()
    await world.create("ConfigMap", "c", ownerReferences=[owner(size)])
    await world.rest()
    assert sizes.runs == {"big": 2}


UNKNOWN = {"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "p", "uid": "u"}}
NAMESAKE = {"apiVersion": "example.com/v1", "kind": "WorkerPool", "metadata": {"name": "p", "uid": "u"}}


@pytest.mark.parametrize(
    "of",
    [
        lambda pool, task: [],
        lambda pool, task: [owner(pool, controller=None)],
        lambda pool, task: [owner(pool, controller=False)],
        lambda pool, task: [owner(task)],
        lambda pool, task: [owner(UNKNOWN)],
        lambda pool, task: [owner(NAMESAKE)],
    ],
    ids=["none", "unsaid", "not the controller", "undeclared kind", "unknown kind", "same kind of another group"],
)
async def test_what_nobody_here_owns_wakes_nobody(world: World, of: Any) -> None:
    pools, tasks = Noting(WorkerPool, owns=(ConfigMap,)), Noting(Task)
    await world.serve(pools, tasks)
    pool = await world.create("WorkerPool", "p", {"worker": {}})
    references = of(pool, await world.task("p"))
    await world.rest()
    await world.create("ConfigMap", "c", ownerReferences=references)
    await world.rest()
    assert pools.runs == {"p": 1} and tasks.runs == {"p": 1}


async def test_an_owner_in_another_namespace_is_somebody_else(world: World) -> None:
    pools = Noting(WorkerPool, owns=(ConfigMap,))
    await world.serve(pools)
    await world.create("Namespace", "other")
    await world.create("WorkerPool", "p", {"worker": {}})
    pool = await world.create("WorkerPool", "p", {"worker": {}}, namespace="other")
    await world.rest()
    await world.create("ConfigMap", "c", namespace="other", ownerReferences=[owner(pool)])
    await world.rest()
    assert [obj.metadata.namespace for obj in pools.seen[2:]] == ["other"]


async def test_what_changes_hands_wakes_both_owners(world: World) -> None:
    pools = Noting(WorkerPool, owns=(ConfigMap,))
    one = await world.create("WorkerPool", "p", {"worker": {}})
    other = await world.create("WorkerPool", "q", {"worker": {}})
    await world.create("ConfigMap", "c", ownerReferences=[owner(one)])
    await world.serve(pools)
    pools.seen.clear()
    await world.patch("ConfigMap", "c", {"metadata": {"ownerReferences": [owner(other)]}})
    await world.rest()
    assert pools.runs == {"p": 1, "q": 1}


def to_its_label(obj: ConfigMap) -> list[Key]:
    return [Key(obj.metadata.namespace, obj.metadata.labels["for"])] if "for" in obj.metadata.labels else []


async def test_a_declared_mapping_routes_news_by_name(world: World) -> None:
    tasks = Noting(Task, watches=(Watch(ConfigMap, to_its_label),))
    await world.serve(tasks)
    for name in ("a", "b"):
        await world.task(name)
    await world.rest()
    tasks.seen.clear()
    await world.create("ConfigMap", "c", labels={"for": "a"})
    await world.create("ConfigMap", "unlabelled")
    await world.rest()
    assert tasks.runs == {"a": 1}
    await world.patch("ConfigMap", "c", {"metadata": {"labels": {"for": "b"}}})
    await world.rest()
    assert tasks.runs == {"a": 2, "b": 1}


async def test_news_that_maps_to_others_is_news_of_its_own_object_too(world: World) -> None:
    maps = Noting(ConfigMap)
    tasks = Noting(Task, watches=(Watch(ConfigMap, to_its_label),))
    keys = NotingKeys("keys", watches=(Watch(ConfigMap, to_its_label),))
    await world.serve(maps, tasks, keys)
    await world.task("a")
    await world.rest()
    tasks.seen.clear()
    await world.create("ConfigMap", "c", labels={"for": "a"})
    await world.rest()
    assert (maps.runs, tasks.runs, keys.seen) == ({"c": 1}, {"a": 1}, [Key("default", "a")])


async def test_a_mapping_to_what_is_not_there_runs_nothing(world: World) -> None:
    tasks = Noting(Task, watches=(Watch(ConfigMap, to_its_label),))
    await world.serve(tasks)
    await world.create("ConfigMap", "c", labels={"for": "nobody"})
    await world.rest()
    assert not tasks.seen and len(world.loop.view) == 0


async def test_a_mapping_that_raises_spoils_neither_the_write_nor_other_news(world: World) -> None:
    def raises(obj: ConfigMap) -> list[Key]:
        raise ValueError("no such label")

    maps = Noting(ConfigMap)
    tasks = Noting(Task, watches=(Watch(ConfigMap, raises), Watch(ConfigMap, to_its_label)))
    await world.serve(maps, tasks)
    await world.task("a")
    await world.rest()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await world.create("ConfigMap", "c", labels={"for": "a"})
    await world.rest()
    assert (maps.runs, tasks.runs) == ({"c": 1}, {"a": 2})


async def test_seeds_run_without_any_news(world: World) -> None:
    keys = NotingKeys("keys", seeds=(Key("", "all"),))
    await world.serve(keys)
    assert keys.seen == [Key("", "all")]


def test_the_kinds_that_matter_are_those_of_controllers_and_all_that_these_refer_to_own_or_watch() -> None:
    pools = Noting(WorkerPool, owns=(Instance,), watches=(Watch(Task, to_its_label),))
    kinds = {kind.name for kind in kinds_of([pools])}
    assert kinds == {
        "WorkerPool",
        "Instance",
        "Task",
        "AgentConfig",
        "ConfigMap",
        "Event",
        "InstanceType",
        "Secret",
        "Workspace",
    }
    # Without objects of its own it tells nothing of them.
    assert kinds_of([NotingKeys("keys", watches=(Watch(Secret, to_its_label),))]) == [Secret.api]
