"""The gate: what is said of an object that lacks something, and of one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import AgentConfig, Task, WorkerPool, Workspace
from rota.control.gate import NOTICE_SECONDS, READY, RESOLVED, Gate, ReadyGate
from rota.engine import StoreObjects
from tests.engine_loop.loops import World

NOT_THERE = "dependency not found: Secret/s (spec.secretRef)"


async def version(world: World, kind: str, name: str) -> str:
    found: str = (await world.get(kind, name)).metadata.resource_version
    return found


async def pool(world: World, **worker: Any) -> None:
    await world.create("WorkerPool", "p", {"worker": worker})


LACKING = {"workspaceRef": {"name": "w"}}


# The gate alone.


async def test_an_object_that_never_lacked_anything_gets_no_status(world: World) -> None:
    await world.workspace("w")
    await world.say_ready("Workspace", "w")
    await pool(world, **LACKING)
    before = await version(world, "WorkerPool", "p")
    await world.serve(Gate(WorkerPool))
    assert (await world.get("WorkerPool", "p")).status is None
    assert await version(world, "WorkerPool", "p") == before and not world.events.said


async def test_what_is_missing_is_said_in_a_condition_and_an_event_once(world: World) -> None:
    await pool(world, **LACKING)
    await world.serve(Gate(WorkerPool))
    coming = "not there yet: Workspace/w (spec.worker.workspaceRef)"
    assert await world.condition("WorkerPool", "p", RESOLVED) == ("False", "DependencyNotReady", coming)
    await world.pass_time(2 * NOTICE_SECONDS, step=1)
    message = "dependency not found: Workspace/w (spec.worker.workspaceRef)"
    assert await world.condition("WorkerPool", "p", RESOLVED) == ("False", "DependencyNotFound", message)
    assert await world.condition("WorkerPool", "p", READY) is None
    written = await version(world, "WorkerPool", "p")
    await world.pass_time(600, step=5)
    assert await version(world, "WorkerPool", "p") == written, "looking again writes nothing"
    assert world.events.said == [("WorkerPool/p", "Warning", "DependencyNotFound", message)]


async def test_the_condition_turns_true_when_everything_is_there(world: World) -> None:
    await pool(world, **LACKING)
    await world.serve(Gate(WorkerPool))
    since = (await world.get("WorkerPool", "p")).status.condition(RESOLVED).last_transition_time
    await world.pass_time(30, step=1)
    await world.workspace("w")
    await world.say_ready("Workspace", "w")
    await world.rest()
    condition = (await world.get("WorkerPool", "p")).status.condition(RESOLVED)
    assert (condition.status, condition.reason, condition.observed_generation) == ("True", "Resolved", 1)
    assert (condition.last_transition_time - since).total_seconds() == 30
    assert len(world.events.said) == 1


async def test_to_wait_for_what_is_on_its_way_is_nothing_to_notice(world: World) -> None:
    await world.workspace("w")
    await pool(world, **LACKING)
    await world.serve(Gate(WorkerPool))
    assert (await world.condition("WorkerPool", "p", RESOLVED) or ())[:2] == ("False", "DependencyNotReady")
    assert not world.events.said


async def test_another_reason_is_another_event_and_the_same_one_is_not(world: World) -> None:
    await world.create("Function", "f", {"entrypoint": "a:b", "source": {"inline": "x"}})
    await world.task("b", "a")
    await world.serve(Gate(Task))
    await world.pass_time(3 * NOTICE_SECONDS, step=1)
    await world.task("a")
    await world.set_status("Task", "a", phase="Failed")
    await world.pass_time(3 * NOTICE_SECONDS, step=1)
    assert world.events.reasons("Task/b") == ["DependencyNotFound", "DependencyFailed"]


async def test_a_chain_that_is_applied_in_one_go_is_never_said_to_lack_anything(world: World) -> None:
    """The last comes first, and the objects come one after the other, each within the time of an apply."""
    said: set[str] = set()

    def hear(kind: Any, update: Any) -> None:
        status = getattr(update.new, "status", None)
        said.update(one.reason for one in (status.conditions if status is not None else ()))

    end = StoreObjects(world.registry).listen((Task.api, WorkerPool.api), hear)
    await world.serve(Gate(Task), Gate(WorkerPool), ReadyGate(Workspace))
    for name, after in (("c", "b"), ("b", "a")):
        await world.task(name, after)
        await world.pass_time(1, step=0.5)
    await world.task("a")
    await world.create("Function", "f", {"entrypoint": "a:b", "source": {"inline": "x"}})
    await pool(world, **LACKING)
    await world.pass_time(1, step=0.5)
    await world.workspace("w")
    await world.pass_time(60, step=1)
    end()
    assert said == {"DependencyNotReady", "Resolved"} and not world.events.said


async def test_what_comes_soon_is_nothing_to_notice(world: World) -> None:
    await pool(world, **LACKING)
    await world.serve(Gate(WorkerPool))
    await world.pass_time(NOTICE_SECONDS - 1, step=1)
    await world.workspace("w")
    await world.say_ready("Workspace", "w")
    await world.pass_time(60, step=5)
    assert not world.events.said


async def test_a_new_process_says_nothing_again(world: World) -> None:
    await pool(world, **LACKING)
    await world.serve(Gate(WorkerPool))
    await world.pass_time(3 * NOTICE_SECONDS, step=1)
    await world.stop()
    written = await version(world, "WorkerPool", "p")
    await world.serve(Gate(WorkerPool))
    await world.pass_time(3 * NOTICE_SECONDS, step=1)
    assert await version(world, "WorkerPool", "p") == written and len(world.events.said) == 1


@pytest.mark.parametrize("gate", [Gate, ReadyGate])
async def test_an_object_that_is_being_deleted_is_left_alone(world: World, gate: Any) -> None:
    await world.workspace("w", secret="s", finalizers=["example.com/hold"])
    await world.delete("Workspace", "w")
    before = await version(world, "Workspace", "w")
    await world.serve(gate(Workspace))
    await world.pass_time(60, step=1)
    assert await version(world, "Workspace", "w") == before
    assert not world.events.said and world.node("Workspace", "w") is None


async def test_an_object_that_waits_and_begins_to_be_deleted_waits_no_more(world: World) -> None:
    await world.workspace("w", secret="s", finalizers=["example.com/hold"])
    await world.serve(ReadyGate(Workspace))
    assert world.node("Workspace", "w") is not None
    await world.delete("Workspace", "w")
    await world.rest()
    assert world.node("Workspace", "w") is None


async def test_what_others_say_in_the_status_stays(world: World) -> None:
    await pool(world, **LACKING)
    mine = {"type": "Mine", "status": "True", "reason": "Me"}
    await world.set_status("WorkerPool", "p", phase="Ready", conditions=[mine])
    await world.serve(Gate(WorkerPool))
    status = (await world.get("WorkerPool", "p")).status
    assert status.phase == "Ready" and {one.type for one in status.conditions} == {"Mine", RESOLVED}


async def test_a_task_that_is_over_is_not_said_to_lack_anything(world: World) -> None:
    await world.create("Function", "f", {"entrypoint": "a:b", "source": {"inline": "x"}})
    await world.task("t")
    await world.set_status("Task", "t", phase="Succeeded")
    await world.serve(Gate(Task))
    await world.delete("Function", "f")
    await world.rest()
    assert await world.condition("Task", "t", RESOLVED) is None and not world.events.said


# One that settles.


async def test_one_that_needs_nothing_else_is_ready(world: World) -> None:
    await world.serve(ReadyGate(Workspace))
    await world.workspace("w")
    await world.rest()
    found = await world.get("Workspace", "w")
    assert await world.condition("Workspace", "w", READY) == ("True", "Ready", "")
    assert found.readiness().state == "Ready" and found.status.condition(RESOLVED) is None


async def test_one_that_lacks_something_is_not_ready_and_says_why(world: World) -> None:
    await world.workspace("w", secret="s")
    await world.serve(ReadyGate(Workspace))
    await world.pass_time(2 * NOTICE_SECONDS, step=1)
    for type_ in (READY, RESOLVED):
        assert await world.condition("Workspace", "w", type_) == ("False", "DependencyNotFound", NOT_THERE)
    await world.create("Secret", "s")
    await world.rest()
    assert await world.condition("Workspace", "w", READY) == ("True", "Ready", "")
    assert await world.condition("Workspace", "w", RESOLVED) == ("True", "Resolved", "")
    await world.delete("Secret", "s")
    await world.rest()
    coming = "not there yet: Secret/s (spec.secretRef)"
    assert await world.condition("Workspace", "w", READY) == ("False", "DependencyNotReady", coming)
    await world.pass_time(2 * NOTICE_SECONDS, step=1)
    assert await world.condition("Workspace", "w", READY) == ("False", "DependencyNotFound", NOT_THERE)


async def test_one_that_is_changed_is_ready_for_what_it_is_now(world: World) -> None:
    await world.serve(ReadyGate(Workspace))
    await world.workspace("w")
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    await world.rest()
    found = await world.get("Workspace", "w")
    assert found.status.condition(READY).observed_generation == found.metadata.generation == 2
    assert found.readiness().state == "Ready"


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"conditions": []},
        {"conditions": [{"type": "Ready", "status": "False", "reason": "Mischief"}]},
        {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": 99}]},
        {"conditions": [{"type": "ResolvedRefs", "status": "Unknown"}]},
        {"observedGeneration": 99},
    ],
    ids=str,
)
async def test_a_status_that_a_person_damaged_is_repaired(world: World, damage: dict[str, Any]) -> None:
    await world.serve(ReadyGate(Workspace))
    await world.workspace("w")
    await world.rest()
    found = await world.client.get(Workspace.api, "w")
    await world.client.update_status({**found, "status": damage})
    await world.rest()
    found_again = await world.get("Workspace", "w")
    ready = found_again.status.condition(READY)
    assert (ready.status, ready.reason, ready.observed_generation) == ("True", "Ready", 1)
    assert ready.last_transition_time is not None
    resolved = found_again.status.condition(RESOLVED)
    assert resolved is None or resolved.status == "True"


async def test_a_chain_settles_from_its_end(world: World) -> None:
    await pool(world, **LACKING)
    await world.workspace("w", secret="s")
    await world.serve(Gate(WorkerPool), ReadyGate(Workspace))
    assert (await world.condition("WorkerPool", "p", RESOLVED) or ())[:2] == ("False", "DependencyNotReady")
    await world.create("Secret", "s")
    await world.rest()
    assert (await world.condition("WorkerPool", "p", RESOLVED) or ())[:2] == ("True", "Resolved")
    assert len(world.loop.view) == 0


async def test_very_many_missing_ones_fit_into_the_message(world: World) -> None:
    name = "a" * 240
    servers = [
        {"name": f"n{i}", "type": "stdio", "command": ["x"], "secretRef": {"name": f"{name}-{i}"}} for i in range(32)
    ]
    await world.create("AgentConfig", "a", {"mcpServers": servers[:16]})
    await world.serve(ReadyGate(AgentConfig))
    status, _, message = await world.condition("AgentConfig", "a", READY) or ("", "", "")
    assert status == "False" and message.endswith(" and 6 more")
