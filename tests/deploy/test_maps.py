"""Code where there is no blob store: in ConfigMaps of the namespace, in memory and on a real cluster."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rota import Client
from rota.api import ConfigMap, Function
from rota.cli.init import contents
from rota.client.backend import Written
from rota.manifest import code_stores
from rota.manifest.code_stores import CODE_LABEL, short_digest
from rota.manifest.deploy import Deployer, DeployRefused, Removal, Step
from rota.manifest.deploy_lookup import list_all
from rota.manifest.project import load_project
from rota.manifest.project_format import PROJECT_LABEL
from rota.registry import ApiError, Operation
from rota.runtime.blobs import digest_of
from tests.conformance.conftest import opening
from tests.conformance.objects import namespace as a_namespace
from tests.conformance.planes import KUBERNETES, memory
from tests.deploy.world import World

TEXT = "name: shop\nfunctions:\n  - {name: report, path: report, entrypoint: 'main:handler'}\n"


async def opened(client: Client, folder: Path) -> World:
    await client.create(a_namespace(client.namespace))
    world = World(client, folder, None)
    (folder / "report").mkdir()
    write(world, 1)
    return world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A server without a blob store, in memory."""
    async with memory(tmp_path) as plane:
        yield await opened(Client(plane.backend, manager="person", namespace="deploy"), tmp_path)


@pytest.fixture(params=["memory", KUBERNETES])
async def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with opening(request, tmp_path) as plane:
        yield await opened(Client(plane.backend, manager="person", namespace=f"maps-{secrets.token_hex(4)}"), tmp_path)


def write(world: World, number: int, more: str = "") -> None:
    (world.folder / "report" / "main.py").write_text(f"def handler(event, context): return {number}\n{more}")


def function(name: str, digest: str) -> dict[str, Any]:
    spec = {"entrypoint": "main:handler", "source": {"digest": digest}}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": name}, "spec": spec}


async def maps(world: World) -> dict[str, dict[str, Any]]:
    """Return the ConfigMaps with code, by name."""
    return {obj["metadata"]["name"]: obj for obj in await list_all(world.client, ConfigMap.api, CODE_LABEL)}


def digest_in(held: dict[str, dict[str, Any]]) -> str:
    """The digest of what pieces hold together."""
    ordered = sorted(held.values(), key=lambda obj: int(obj["metadata"]["name"].rsplit("-", 1)[1]))
    return digest_of(b"".join(base64.b64decode(obj["binaryData"]["piece"]) for obj in ordered))


async def test_the_project_of_init_is_deployed_and_then_there_is_nothing_to_do(everywhere: World) -> None:
    for name, text in contents("demo").items():
        path = everywhere.folder / "demo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project = load_project(str(everywhere.folder / "demo"), {})
    first = await everywhere.deployer.plan(project)
    await everywhere.deployer.apply(first, lambda one: None)
    held = await maps(everywhere)
    assert len(first.missing) == len(held) == 1 and digest_in(held) == first.missing[0]
    second = await everywhere.deployer.plan(project, prune=True)
    assert (second.missing, second.writes) == ([], 0)
    await everywhere.deployer.apply(second, lambda one: None)
    assert await maps(everywhere) == held


async def test_changed_code_is_sent_and_what_was_before_is_pruned(
    everywhere: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_stores, "PIECE_BYTES", 4096)
    first = await everywhere.deploy(TEXT)
    before = await maps(everywhere)
    assert len(before) > 1 and digest_in(before) == first.missing[0]
    write(everywhere, 2)
    second = await everywhere.deploy(TEXT, prune=True)
    after = await maps(everywhere)
    assert digest_in(after) == second.missing[0]
    assert {one.name for one in second.removals} == set(before), "shown before it goes"
    third = await everywhere.deploy(TEXT, prune=True)
    assert (third.missing, third.writes) == ([], 0)
    gone = await everywhere.deploy("name: shop\n", prune=True)
    assert await maps(everywhere) == {}
    assert [one.kind.name for one in gone.removals] == ["Function", *["ConfigMap"] * len(after)]


async def test_a_piece_says_what_it_is_of_and_cannot_be_changed(everywhere: World) -> None:
    digest = (await everywhere.deploy(TEXT)).missing[0]
    (name, piece), *_ = (await maps(everywhere)).items()
    assert name == f"rota-code-{short_digest(digest)}-0"
    assert piece["metadata"]["labels"] == {PROJECT_LABEL: "shop", CODE_LABEL: short_digest(digest)}
    assert piece["data"] == {"digest": digest, "pieces": "1"}
    with pytest.raises(ApiError, match="immutable"):
        await everywhere.client.patch(ConfigMap.api, name, {"data": {"pieces": "2"}})


async def test_nothing_is_written_ahead(world: World) -> None:
    foreseen = await world.deployer.plan(world.project(TEXT))
    assert len(foreseen.missing) == 1 and await maps(world) == {}


async def test_code_stays_unless_pruning_is_asked_for(world: World) -> None:
    await world.deploy(TEXT)
    write(world, 2)
    await world.deploy(TEXT)
    assert len(await maps(world)) == 2


async def test_what_was_sent_in_part_is_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_stores, "PIECE_BYTES", 1024)
    await world.deploy(TEXT)
    whole = await maps(world)
    lost = list(whole)[1]
    await world.client.delete(ConfigMap.api, lost)
    assert (await world.deploy(TEXT)).missing
    again = await maps(world)
    assert digest_in(again) == digest_in(whole)
    assert {name for name in whole if again[name] != whole[name]} == {lost}, "only what was missing is written"


async def test_code_that_another_project_uses_too_is_kept_once_and_not_pruned(world: World) -> None:
    await world.deploy(TEXT)
    other = TEXT.replace("shop", "store").replace("report,", "copy,", 1)
    assert (await world.deploy(other)).missing == []
    await world.deploy("name: shop\n", prune=True)
    assert len(await maps(world)) == 1
    await world.client.delete(Function.api, "copy")
    assert (await world.deploy("name: store\n", prune=True)).removals == [], "it has another project's label"
    assert (await world.deploy("name: shop\n", prune=True)).removals and await maps(world) == {}


async def test_code_that_somebody_deploys_while_it_is_to_go_is_spared(world: World) -> None:
    digest = (await world.deploy(TEXT)).missing[0]
    foreseen = await world.deployer.plan(world.project("name: shop\n"), prune=True)
    await world.client.create(function("other", digest))
    told: list[Step | Removal] = []
    await world.deployer.apply(foreseen, told.append)
    assert [one.name for one in told] == ["report"] and len(await maps(world)) == 1


async def test_what_is_labelled_and_not_named_as_code_is_not_pruned(world: World) -> None:
    labels = {PROJECT_LABEL: "shop", CODE_LABEL: "mine"}
    await world.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "labels": labels}}
    )
    assert not (await world.deploy("name: shop\n", prune=True)).removals


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"binaryData": {"piece": "AAAA"}}, "holds something else"),
        ({"immutable": None}, "holds something else"),
        ({"metadata": {"labels": {}}}, "has not the label rota.dev/code="),
    ],
)
async def test_something_else_in_the_place_of_code_is_refused_with_what_to_do(
    world: World, change: dict[str, Any], why: str
) -> None:
    await world.deploy(TEXT)
    (name, piece), *_ = (await maps(world)).items()
    await world.client.delete(ConfigMap.api, name)
    fresh = {**piece, "metadata": {"name": name, "labels": piece["metadata"]["labels"]}, **change}
    fresh["metadata"] = {"name": name, **fresh["metadata"]}
    await world.client.create(fresh)
    with pytest.raises(DeployRefused, match=rf"report: ConfigMap .*{why}.*`rota delete configmap/{name} -n deploy`"):
        await world.deploy(TEXT)


async def test_code_that_is_too_large_is_refused_before_anything_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_stores, "CODE_BYTES_MAX", 10_000)
    write(world, 1, "#" * 10_000)
    with pytest.raises(DeployRefused, match=r"report: packed, it has \d+ bytes, and a cluster keeps at most 10000"):
        await world.deploy(TEXT)
    assert (await maps(world), await world.versions()) == ({}, {})


async def test_who_may_write_no_config_maps_is_told_so_before_anything_is_written(world: World) -> None:
    write = world.client.backend.write

    async def refusing(operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if any((o.verb, o.kind) == ("create", ConfigMap.api) for o in operations):
            raise ApiError(403, "Forbidden", "configmaps is forbidden")
        return await write(operations, atomic=atomic)

    world.client.backend.write = refusing  # type: ignore[method-assign]
    with pytest.raises(DeployRefused, match="its code cannot be kept there: configmaps is forbidden"):
        await Deployer(world.client, None).plan(world.project(TEXT))
