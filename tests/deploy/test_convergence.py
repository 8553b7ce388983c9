"""Any two project files, deployed in turn, with people at work in between: the third deploy writes nothing."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import ApiError, Client
from rota.api import KINDS
from rota.manifest import dumps
from rota.manifest.deploy import DeployRefused
from rota.manifest.deploy_diff import diff
from tests.amount import LONG, amount
from tests.conformance.cluster import Cluster
from tests.conformance.objects import namespace as a_namespace
from tests.conformance.planes import kubernetes
from tests.deploy.world import World, in_memory

EXAMPLES = amount(30, 3_000)
PATIENCE_SECONDS = 1_800
pytestmark = [pytest.mark.timeout(PATIENCE_SECONDS)] if LONG else []
CLUSTER_EXAMPLES = EXAMPLES // 10

NAMES = st.sampled_from(["a", "b"])
NUMBERS = st.sampled_from([0, 1, 1.0, 1.5, True, False, 2**53 + 1])
PAYLOADS = st.dictionaries(NAMES, NUMBERS | st.just("x") | st.lists(NUMBERS, max_size=2) | st.none(), max_size=2)
ENV = st.lists(
    st.one_of(
        st.builds(lambda name, value: {"name": name, "value": value}, NAMES, st.sampled_from(["x", ""])),
        st.builds(lambda name: {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, NAMES),
    ),
    max_size=2,
    unique_by=lambda one: one["name"],
)
CITIES = st.lists(st.sampled_from(["ber", "par"]), unique=True, max_size=2)
TIMES = {
    "cron": st.sampled_from(["@daily", "* * * * *", "0 3 * * *"]),
}
TIMING = {
    "timeZone": st.sampled_from(["UTC", "Europe/Berlin"]),
    "enabled": st.booleans(),
    "payload": PAYLOADS,
    "regions": CITIES,
    "overlap": st.sampled_from(["Allow", "Skip"]),
    "history": st.fixed_dictionaries({}, optional={"succeeded": st.integers(1, 3), "failed": st.integers(1, 3)}),
}
SCALES = st.fixed_dictionaries({}, optional={"max": st.integers(4, 6), "min": st.integers(0, 4)})
FUNCTION_FIELDS = {
    "public": st.booleans(),
    "timeoutSeconds": st.integers(1, 3),
    "env": ENV,
    "scale": SCALES,
    "requirements": st.lists(st.sampled_from(["x", "y"]), max_size=2),
}
CODE = st.one_of(
    st.just({}),
    *[
        st.builds(lambda source, handler=handler: {**handler, "source": source}, st.sampled_from(sources))
        for handler in ({"entrypoint": "a:b"}, {"command": ["run"]})
        for sources in [({"inline": "x"}, {"workspaceRef": {"name": "a"}}, {"digest": "sha256:" + "0" * 64})]
    ],
)
WORKERS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"type": st.just("custom"), "entrypoint": st.just(["run"])}, optional={"model": NAMES}),
    st.fixed_dictionaries({"type": st.sampled_from(["shell", "python"])}, optional={"env": ENV}),
    st.just({"type": "codex", "credentials": {"type": "none"}}),
    st.just({"type": "codex", "credentials": {"type": "api-key", "secretRef": {"name": "s"}}}),
)
KINDS_OF_POOL = st.one_of(
    WORKERS.map(lambda worker: {"worker": worker}),
    st.lists(NAMES, min_size=1, unique=True).map(
        lambda names: {"template": {"containers": [{"name": name, "command": ["x"]} for name in names]}}
    ),
)
SIZES = st.one_of(
    st.just({}),
    st.integers(0, 3).map(lambda n: {"replicas": n}),
    st.builds(lambda low, high: {"scale": {"min": low, "max": high}}, st.integers(0, 2), st.integers(2, 4)),
)
WHERE = st.sampled_from([{"worker": {}}, {"workerPoolRef": {"name": "a"}}])
PROMPTED = st.sampled_from([{"worker": {"type": "codex"}}, {"workerPoolRef": {"name": "a"}}])
RETRIES = st.sampled_from([{}, {"retry": {"limit": 1, "reasons": ["Failed"]}}])
TASKS = st.one_of(
    st.just({"function": {"name": "a"}}),
    st.builds(lambda where, more: {"command": ["x"], **where, **more}, WHERE, st.sampled_from([{}, {"stdin": "i"}])),
    st.builds(lambda where, more: {"prompt": "p", **where, **more}, PROMPTED, RETRIES),
)


def _merged(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _entries(entry: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(entry, max_size=2, unique_by=lambda one: one["name"])


NESTED = _entries(st.fixed_dictionaries({"name": NAMES, **TIMES}, optional=TIMING))
FUNCTIONS = _entries(
    st.builds(
        _merged,
        st.fixed_dictionaries({"name": NAMES}),
        CODE,
        st.fixed_dictionaries({}, optional=FUNCTION_FIELDS),
        st.fixed_dictionaries({}, optional={"schedules": NESTED}),
    ).filter(lambda one: len(one) > 1 and one != {"name": one["name"], "schedules": []})
)
POOLS = _entries(st.builds(_merged, st.fixed_dictionaries({"name": NAMES}), KINDS_OF_POOL, SIZES))


def _fitting(schedule: dict[str, Any]) -> dict[str, Any]:
    """Without a payload, unless there is a function to give it to."""
    is_called = "function" in schedule["taskTemplate"]
    return {name: value for name, value in schedule.items() if name != "payload" or is_called}


SCHEDULES = _entries(
    st.fixed_dictionaries({"name": NAMES, **TIMES, "taskTemplate": TASKS}, optional=TIMING).map(_fitting)
)
PROJECTS = st.fixed_dictionaries(
    {"name": st.sampled_from(["shop", "shop", "other"])},
    optional={"functions": FUNCTIONS, "pools": POOLS, "schedules": SCHEDULES},
)
EDITS = st.lists(
    st.one_of(
        st.tuples(
            st.just("Schedule"), st.sampled_from(["a.a", "a.b", "a"]), st.fixed_dictionaries({}, optional=TIMING)
        ),
        st.tuples(st.just("Function"), NAMES, st.fixed_dictionaries({}, optional=FUNCTION_FIELDS)),
        st.tuples(st.just("WorkerPool"), NAMES, SIZES),
        st.tuples(st.sampled_from(["Schedule", "Function", "WorkerPool"]), NAMES, st.none()),
    ),
    max_size=4,
)


async def _edit(world: World, edits: list[tuple[str, str, dict[str, Any] | None]]) -> None:
    """People change and delete things. What the server refuses they leave alone."""
    for kind, name, spec in edits:
        try:
            if spec is None:
                await world.client.delete(KINDS[kind], name)
            else:
                await world.edit(kind, name, **spec)
        except ApiError as error:
            if error.code not in (404, 422):
                raise


async def _deployed(world: World, text: str) -> bool:
    """Deploy a file; whether it could be: a function may be missing."""
    before = await world.versions()
    try:
        await world.deploy(text, take_over=True)
    except DeployRefused as refused:
        if any("neither on the server" not in why and "too little is said" not in why for why in refused.reasons):
            raise
        assert await world.versions() == before, "one that is refused has changed nothing"
        return False
    return True


async def _converges(world: World, first: Any, second: Any, edits: Any, later: Any) -> None:
    await _deployed(world, dumps(first))
    text = dumps(second)
    for edited in (edits, later):
        await _edit(world, edited)
        if not await _deployed(world, text):
            return
        before = await world.versions()
        assert (await world.deploy(text)).writes == 0
        assert await world.versions() == before
    for manifest in world.project(text).manifests:
        live = await world.get(manifest.kind.name, manifest.name)
        assert diff(manifest.kind, manifest.object, live) == []


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROJECTS, PROJECTS, EDITS, EDITS)
def test_any_two_project_files_deployed_in_turn_converge(first: Any, second: Any, edits: Any, later: Any) -> None:
    async def deploying() -> None:
        async with in_memory() as (world, registry):
            await _converges(world, first, second, edits, later)
            if await _deployed(world, dumps(second)):
                before = registry.store.revision
                await world.deploy(dumps(second))
                assert registry.store.revision == before

    asyncio.run(deploying())


@settings(max_examples=CLUSTER_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROJECTS, PROJECTS, EDITS, EDITS)
def test_they_do_so_on_a_real_kubernetes_api_server(
    shared_cluster: Cluster, first: Any, second: Any, edits: Any, later: Any
) -> None:
    async def deploying() -> None:
        async with kubernetes(shared_cluster) as plane:
            client = Client(plane.backend, manager="person", namespace=f"deploy-{secrets.token_hex(4)}")
            await client.create(a_namespace(client.namespace))
            await _converges(await World.open(client, Path()), first, second, edits, later)

    asyncio.run(deploying())


async def _spares(world: World, first: Any, edits: Any, second: Any) -> None:
    await _deployed(world, dumps(first))
    await _edit(world, edits)
    project = world.project(dumps(second))
    schedules = [one for one in project.manifests if one.kind.name == "Schedule"]
    before = {one.name: await _spec(world, one.name) for one in schedules}
    if not await _deployed(world, dumps(second)):
        return
    for manifest in schedules:
        now, declared = await _spec(world, manifest.name), manifest.object["spec"]
        kept = {name: value for name, value in before[manifest.name].items() if name not in declared}
        if not _calls_a_function(declared["target"]):
            kept.pop("payload", None)  # It contradicts what is declared.
        assert {name: now[name] for name in kept} == kept


def _calls_a_function(target: dict[str, Any]) -> bool:
    return "functionRef" in target or "function" in target.get("taskTemplate", {})


async def _spec(world: World, name: str) -> dict[str, Any]:
    try:
        spec: dict[str, Any] = (await world.get("Schedule", name))["spec"]
    except ApiError:
        return {}
    return spec


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROJECTS, EDITS, PROJECTS)
def test_no_field_of_a_schedule_changes_that_the_file_leaves_out(first: Any, edits: Any, second: Any) -> None:
    async def deploying() -> None:
        async with in_memory() as (world, _):
            await _spares(world, first, edits, second)

    asyncio.run(deploying())
