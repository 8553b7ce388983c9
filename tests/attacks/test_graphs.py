"""To keep everybody waiting by many tasks that wait for each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.engine.pacing import LOOKS_AT_ONCE_MAX, LOOKS_PER_SECOND, Looks
from rota.engine.reconciler import Context
from tests.attacks.conftest import API, TENANT, deployer
from tests.server.conftest import served
from tests.until import until_so

TASKS, WAITED_FOR = 200, 32
SECONDS, SECONDS_MAX = 3, 20


def task(name: str, *others: str) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name},
        "spec": {"command": ["true"], "workerPoolRef": {"name": "none"}, "dependsOn": list(others)},
    }


def web() -> list[dict[str, Any]]:
    """Tasks each of which waits for many others, the first for one that is not there."""
    names = [f"t-{number}" for number in range(TASKS)]
    return [task(name, *(names[max(0, at - WAITED_FOR) : at] or ["none"])) for at, name in enumerate(names)]


async def test_to_have_everything_looked_at_again_for_each_task_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0
    is_ready = Context._is_ready

    def counted(self: Context, id_: str) -> bool:
        nonlocal looked_at
        looked_at += f"/{TENANT}/" in id_
        return is_ready(self, id_)

    monkeypatch.setattr(Context, "_is_ready", counted)
    async with served(tmp_path / "home") as server:
        attacker, other = await deployer(server), await deployer(server, "other")
        began = asyncio.get_running_loop().time()
        made = [{"verb": "create", "kind": "Task", "apiVersion": "rota.dev/v1alpha1"} for _ in range(TASKS)]
        operations = [{**one, "namespace": TENANT, "body": body} for one, body in zip(made, web(), strict=True)]
        assert (await attacker.ask("POST", "/v1/batch", {"operations": operations})).status == 200
        await asyncio.sleep(SECONDS)
        for name, waited_for in (("a", "b"), ("b", "a")):
            assert (await other.ask("POST", f"{API}/other/tasks", task(name, waited_for))).status == 201
        found = "a message of a cycle"
        await until_so(lambda: _message(other, "a"), lambda said: "cycle" in said, found, seconds=SECONDS_MAX)
        seconds = asyncio.get_running_loop().time() - began
        # A search that has begun goes on to its end.
        assert looked_at < LOOKS_AT_ONCE_MAX + LOOKS_PER_SECOND * seconds + TASKS


async def _message(who: Any, name: str) -> str:
    found = (await who.ask("GET", f"{API}/other/tasks/{name}")).json
    return str(found.get("status", {}).get("message", ""))


def test_what_one_namespace_used_up_is_not_another_ones_and_comes_back() -> None:
    looks = Looks()
    looks.take("a", LOOKS_AT_ONCE_MAX + LOOKS_PER_SECOND, now=0.0)
    assert not looks.are_left("a", 0.5) and looks.are_left("b", 0.5)
    assert looks.are_left("a", 1.5)
    looks.take("b", 1, now=100.0)
    assert looks.are_left("a", 100.0) and set(looks._used) == {"b"}
