"""Any two project files, whatever of the kinds they use, deployed in turn with people at work in between."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from rota import ApiError, Client
from rota.api import KINDS
from rota.manifest.deploy import DeployRefused
from rota.manifest.deploy_diff import canonical
from tests.amount import LONG, amount
from tests.conformance.cluster import Cluster
from tests.conformance.objects import namespace as a_namespace
from tests.conformance.planes import kubernetes
from tests.deploy.random_projects import Scene, carry_out, scenes, text
from tests.deploy.world import World, in_memory

Object = dict[str, Any]

EXAMPLES = amount(20, 3_000)
CLUSTER_EXAMPLES = amount(5, 200)
PATIENCE_SECONDS = 1_800
FREE_FORM = ("payload", "podOverrides")
"""Fields that are one value, whatever is in them."""
UNPROCESSABLE = 422
UNKNOWN = ("neither on the server", "too little is said")
CHECKED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

pytestmark = [pytest.mark.timeout(PATIENCE_SECONDS)] if LONG else []


async def _deployed(world: World, project: Object) -> bool:
    """Deploy a file; whether it could be: a function may be missing. One that is refused changes nothing."""
    before = await world.versions()
    try:
        await world.deploy(text(project), take_over=True)
    except DeployRefused as refused:
        if not all(any(word in why for word in UNKNOWN) for why in refused.reasons):
            raise
        assert await world.versions() == before
        return False
    return True


async def _converges(world: World, scene: Scene) -> None:
    await _deployed(world, scene.first)
    second = scene.second
    for edits in (scene.edits, scene.later):
        await carry_out(world, edits)
        before = await _specs(world)
        if not await _deployed(world, second):
            return
        await _is_declared(world, second)
        await _spares(world, second, before)
        versions = await world.versions()
        assert (await world.deploy(text(second))).writes == 0
        assert await world.versions() == versions


# An oracle that knows nothing of schemas, but for which fields are free-form.


async def _is_declared(world: World, project: Object) -> None:
    for manifest in world.project(text(project)).manifests:
        live = await world.get(manifest.kind.name, manifest.name)
        assert _has(live, {key: manifest.object[key] for key in ("metadata", "spec")}), (live, manifest.object)


def _has(live: Any, declared: Any, name: str = "") -> bool:
    """Return whether a value has everything that is declared, defaults of the server aside."""
    if name in FREE_FORM:
        return canonical(live) == canonical(declared)
    if isinstance(declared, dict):
        return isinstance(live, dict) and all(
            key in live and _has(live[key], inner, key) for key, inner in declared.items()
        )
    if isinstance(declared, list):
        return len(live) == len(declared) and all(any(_has(one, item) for one in live) for item in declared)
    return canonical(live) == canonical(declared)


async def _specs(world: World) -> dict[tuple[str, str], Object]:
    return {(kind, name): (await world.get(kind, name))["spec"] for kind, name in await world.versions()}


async def _spares(world: World, project: Object, before: dict[tuple[str, str], Object]) -> None:
    """Assert that all that is not declared is as it was, except for values whose restoration is refused."""
    declared = {(one.kind.name, one.name): one.object["spec"] for one in world.project(text(project)).manifests}
    for (kind, name), spec in before.items():
        after = (await world.get(kind, name))["spec"]
        for path, value in _undeclared(spec, declared.get((kind, name), {})):
            if canonical(_at(after, path)) == canonical(value):
                continue
            assert not await _is_accepted(world, kind, name, path, value), (kind, name, path, value, after)


def _undeclared(live: Object, declared: Object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in live.items():
        said = declared.get(key)
        if key not in declared:
            found.append(((*path, key), value))
        elif key not in FREE_FORM and isinstance(value, dict) and isinstance(said, dict):
            found += _undeclared(value, said, (*path, key))
    return found


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


async def _is_accepted(world: World, kind: str, name: str, path: tuple[str, ...], value: Any) -> bool:
    patch = value
    for step in reversed(("spec", *path)):
        patch = {step: patch}
    try:
        await world.client.patch(KINDS[kind], name, patch, dry_run=True)
    except ApiError as error:
        if error.code != UNPROCESSABLE:
            raise
        return False
    return True


@CHECKED
@given(scenes())
def test_any_two_projects_deployed_in_turn_converge(scene: Scene) -> None:
    async def deploying() -> None:
        async with in_memory() as (world, registry):
            await _converges(world, scene)
            revision = registry.store.revision
            with suppress(DeployRefused):
                await world.deployer.plan(world.project(text(scene.first)), prune=True, take_over=True)
            assert registry.store.revision == revision, "looking ahead writes nothing"

    asyncio.run(deploying())


@settings(CHECKED, max_examples=CLUSTER_EXAMPLES)
@given(scenes())
def test_they_do_so_on_a_real_kubernetes_api_server(shared_cluster: Cluster, scene: Scene) -> None:
    asyncio.run(_on(shared_cluster, lambda world: _converges(world, scene)))


async def _on(cluster: Cluster, act: Callable[[World], Awaitable[None]]) -> None:
    async with kubernetes(cluster) as plane:
        client = Client(plane.backend, manager="person", namespace=f"deploy-{secrets.token_hex(4)}")
        await client.create(a_namespace(client.namespace))
        await act(await World.open(client, Path()))
