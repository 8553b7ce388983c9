"""The examples of the how-to are accepted as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rota.api import TaskSpawner
from rota.api.templates.checks import ISSUE_FIELDS as FIELDS
from rota.control.spawners.hooks import TaskCreated
from rota.control.spawners.items import DELIVERIES_MAX
from rota.control.spawners.statuses import template_problem
from rota.server.edge import CODES, DEFAULT_EDGE_PORT, HOOK_REQUESTS_PER_SECOND
from tests.engine_loop.loops import World
from tests.spawners.spawning import Scene

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "spawners.md").read_text()
SHOWN: dict[str, Any] = {
    one["metadata"]["name"]: one
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    for one in yaml.safe_load_all(block)
    if one["kind"] == "TaskSpawner"
}


@pytest.mark.parametrize("name", SHOWN)
async def test_a_manifest_of_the_page_is_accepted_and_its_template_fits(world: World, name: str) -> None:
    made = await world.client.create(SHOWN[name])
    assert template_problem(msgspec.convert(made, TaskSpawner)) is None


async def test_the_delivery_of_the_page_becomes_the_task_that_it_shows(world: World) -> None:
    scene = Scene(world)
    await scene.secret("deploy-hook", secret="s")
    await world.create("WorkerPool", "deployers", {"worker": {}, "replicas": 0})
    await world.client.create(SHOWN["deploys"])
    await scene.serve()
    (body,) = re.findall(r"^body='(.*)'$", PAGE, re.MULTILINE)
    answer = await scene.deliver(body.encode(), "deploys", key=b"s", **{"x-rota-event": "push"})
    assert isinstance(answer, TaskCreated)
    assert [task.spec.command for task in await scene.tasks()] == [["./deploy", "1f3c"]]


def test_every_answer_field_and_bound_is_on_the_page() -> None:
    for code in {*CODES.values(), 200, 202}:
        assert f"\n| {code}" in PAGE, code
    for field in FIELDS:
        assert f"`{field}`" in PAGE, field
    assert f"port {DEFAULT_EDGE_PORT}" in PAGE and f"{HOOK_REQUESTS_PER_SECOND:.0f} times a second" in PAGE
    assert f"{DELIVERIES_MAX} deliveries" in " ".join(PAGE.split())
