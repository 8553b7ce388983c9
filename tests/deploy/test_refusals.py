"""All obstacles are reported before anything is written, and then nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota import ApiError, Client
from rota.api import KINDS
from rota.client import LocalBackend
from rota.client.backend import Written
from rota.manifest.deploy import DeployRefused, in_dependency_order, make_step
from rota.manifest.load import Manifest
from rota.manifest.project import Project
from rota.registry import Operation, Registry
from rota.store import MemoryStore
from tests.deploy.world import World

PROJECT = """\
name: shop
agents: [{name: g}]
functions:
  - name: f
    entrypoint: a:b
    source: {inline: x}
    schedules: [{name: s, cron: '@daily'}]
"""
CHANGED = PROJECT.replace("a:b", "a:c").replace("@daily", "@hourly").replace("name: g}", "name: g, instructions: x}")
MENTIONED = "name: shop\nfunctions:\n  - name: f\n    schedules: [{name: s, cron: '@daily'}]\n"


class Forbidding(LocalBackend):
    """Somebody who may not write schedules."""

    forbidden = ""

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        for o in operations:
            if o.kind.name == self.forbidden:
                raise ApiError(403, "Forbidden", f"{o.kind.plural} are not yours")
        return await super().write(operations, atomic=atomic)


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    registry = Registry(MemoryStore())
    await registry.start()
    yield registry
    await registry.stop()


@pytest.mark.parametrize(("before", "text", "place"), [("", PROJECT, "rota.yaml:7"), (PROJECT, CHANGED, "rota.yaml:7")])
async def test_who_may_not_write_one_kind_writes_nothing(
    registry: Registry, tmp_path: Path, before: str, text: str, place: str
) -> None:
    backend = Forbidding(registry)
    world = await World.open(Client(backend, manager="person"), tmp_path)
    if before:
        await world.deploy(before)
    revision, backend.forbidden = registry.store.revision, "Schedule"
    with pytest.raises(DeployRefused, match=f"{place}: schedules are not yours"):
        await world.deploy(text)
    assert registry.store.revision == revision


async def test_who_may_not_delete_one_kind_prunes_nothing_and_changes_nothing(
    registry: Registry, tmp_path: Path
) -> None:
    backend = Forbidding(registry)
    world = await World.open(Client(backend, manager="person"), tmp_path)
    await world.deploy(PROJECT)
    revision, backend.forbidden = registry.store.revision, "Function"
    with pytest.raises(DeployRefused, match="functions are not yours"):
        await world.deploy("name: shop\nagents: [{name: g, instructions: x}]\n", prune=True)
    assert registry.store.revision == revision


async def test_that_there_is_no_such_namespace_is_told_once_with_what_to_do(registry: Registry, tmp_path: Path) -> None:
    world = await World.open(Client(LocalBackend(registry), manager="person", namespace="elsewhere"), tmp_path)
    with pytest.raises(DeployRefused) as refused:
        await world.deploy(PROJECT)
    (reason,) = refused.value.reasons
    assert 'rota.yaml: there is no namespace "elsewhere"; choose another with -n (default), or make it' in reason


def _newer(project: Project, **fields: Any) -> Project:
    """A project with a field that the server's version does not know."""
    newer = [_with(one, fields) if one.kind.name == "Function" else one for one in project.manifests]
    return replace(project, manifests=newer)


def _with(manifest: Manifest, fields: dict[str, Any]) -> Manifest:
    return replace(manifest, object={**manifest.object, "spec": {**manifest.object["spec"], **fields}})


async def test_a_field_that_the_server_does_not_know_is_refused_and_not_dropped(world: World) -> None:
    newer = _newer(world.project(PROJECT), colour="red")
    with pytest.raises(DeployRefused, match=r"rota.yaml:4: .*colour"):
        await world.deployer.plan(newer)
    assert await world.versions() == {}
    await world.deploy(PROJECT)
    with pytest.raises(DeployRefused, match=r"rota.yaml:4: .*colour"):
        await world.deployer.plan(newer)


def test_an_object_with_values_that_are_unknown_here_stays_where_the_file_has_it() -> None:
    def planned(name: str, runtime: str) -> Any:
        spec = {"runtime": runtime, "entrypoint": "a:b", "source": {"inline": "x"}}
        meta = {"name": name, "namespace": "n"}
        one = {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": meta, "spec": spec}
        return make_step(Manifest(KINDS["Function"], one, "", 0), None), one

    steps = in_dependency_order([planned("b", "python"), planned("a", "quantum"), planned("c", "python")])
    assert [step.name for step in steps] == ["b", "a", "c"]


@pytest.mark.parametrize("text", [PROJECT, MENTIONED])
async def test_what_is_being_deleted_is_waited_for(world: World, text: str) -> None:
    await world.deploy(PROJECT)
    await world.client.patch(KINDS["Function"], "f", {"metadata": {"finalizers": ["a.b/c"]}})
    await world.client.delete(KINDS["Function"], "f")
    before = await world.versions()
    with pytest.raises(DeployRefused, match='Function "f" is being deleted'):
        await world.deploy(text)
    assert await world.versions() == before
    await world.client.patch(KINDS["Function"], "f", {"metadata": {"finalizers": None}})


async def test_every_objection_is_told_at_once(world: World) -> None:
    await world.deploy(PROJECT)
    other = PROJECT.replace("shop", "market") + "  - {name: missing, public: true}\n"
    with pytest.raises(DeployRefused) as refused:
        await world.deploy(other)
    assert [why.split(" ", 1)[0] for why in refused.value.reasons] == [f"rota.yaml:{line}:" for line in (2, 4, 8, 7)]


async def test_a_project_that_was_renamed_takes_its_things_along_when_it_is_said(world: World) -> None:
    await world.deploy(PROJECT)
    renamed = PROJECT.replace("shop", "market")
    done = await world.deploy(renamed, take_over=True, prune=True)
    assert {step.outcome for step in done.steps} == {"updated"} and done.removals == []
    assert (await world.deploy(renamed)).writes == 0
    assert (await world.deploy("name: shop\n", prune=True)).removals == [], "the old name has nothing left"
