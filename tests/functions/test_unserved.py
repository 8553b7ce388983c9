"""Functions on a cluster, where nothing runs them: it is said, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import Function
from rota.control.table import controllers
from tests.control.conftest import world
from tests.engine_loop.loops import World
from tests.functions.town import API

__all__ = ["world"]


@pytest.mark.parametrize("source", [{"digest": "sha256:" + "0" * 64}, {"inline": ""}])
async def test_an_operator_says_that_it_runs_no_functions(world: World, source: dict[str, Any]) -> None:
    spec = {"entrypoint": "a:b", "source": source}
    await world.client.create({"apiVersion": API, "kind": "Function", "metadata": {"name": "f"}, "spec": spec})
    await world.serve(*controllers())
    found: Function = await world.get("Function", "f")
    ready = found.status.condition("Ready") if found.status is not None else None
    assert ready is not None and (ready.status, ready.reason) == ("False", "NotServed")
    assert "a server that `rota start` started" in ready.message
