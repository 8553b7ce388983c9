"""References between objects, in a loop: which object waits for which, and the news that wakes it."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import AgentConfig, Claim, Secret, Task, WorkerPool, Workspace
from rota.engine import DONE, Blocked, Context, Failed, Outcome
from tests.engine_loop.loops import Noting, World, says_ready


async def gate(context: Context, obj: Any) -> Outcome:
    return context.held_up(obj) or DONE


def gates(*kinds: Any) -> list[Noting[Any]]:
    return [Noting(kind, gate) for kind in kinds]


def waits(world: World, kind: str, name: str, namespace: str = "default") -> tuple[tuple[str, ...], str]:
    node = world.node(kind, name, namespace)
    assert node is not None and node.state == "parked", node
    assert isinstance(node.outcome, Blocked)
    return node.on, node.outcome.message


def failed(world: World, kind: str, name: str) -> tuple[tuple[str, ...], str, str]:
    node = world.node(kind, name)
    assert node is not None and isinstance(node.outcome, Failed), node
    return node.on, node.outcome.reason, node.outcome.message


async def pool(world: World, name: str = "p", workspace: str = "w", **more: Any) -> None:
    await world.create("WorkerPool", name, {"worker": {"workspaceRef": {"name": workspace}}}, **more)


async def function(world: World) -> None:
    await world.create("Function", "f", {"entrypoint": "a:b", "source": {"inline": "x"}})


# What is missing, arrives, becomes ready, and regresses.


async def test_one_waits_for_exactly_what_is_missing(world: World) -> None:
    await world.create("Secret", "there")
    await world.create(
        "AgentConfig",
        "a",
        {
            "mcpServers": [
                {"name": name, "type": "stdio", "command": ["x"], "secretRef": {"name": name}}
                for name in ("there", "gone", "lost")
            ]
        },
    )
    await world.serve(*gates(AgentConfig))
    assert waits(world, "AgentConfig", "a") == (
        ("secrets/default/gone", "secrets/default/lost"),
        "dependency not found: Secret/gone (spec.mcpServers[1].secretRef), Secret/lost (spec.mcpServers[2].secretRef)",
    )
    await world.create("Secret", "gone")
    await world.rest()
    assert waits(world, "AgentConfig", "a")[0] == ("secrets/default/lost",)
    await world.create("Secret", "lost")
    await world.rest()
    assert world.node("AgentConfig", "a") is None


async def test_a_dependency_that_arrives_is_then_waited_for_until_it_is_ready(world: World) -> None:
    await pool(world)
    looking = Noting(WorkerPool, gate)
    await world.serve(looking)
    target = Workspace.api.key("default", "w")
    assert waits(world, "WorkerPool", "p") == (
        (target,),
        "dependency not found: Workspace/w (spec.worker.workspaceRef)",
    )
    await world.workspace("w")
    await world.rest()
    assert waits(world, "WorkerPool", "p") == ((target,), "not ready: Workspace/w (NotObserved)")
    await world.say_ready("Workspace", "w")
    await world.rest()
    assert world.node("WorkerPool", "p") is None and looking.runs == {"p": 3}


async def test_a_dependency_that_regresses_holds_up_again(world: World) -> None:
    await world.workspace("w")
    await world.say_ready("Workspace", "w")
    await pool(world)
    await world.serve(*gates(WorkerPool))
    assert world.node("WorkerPool", "p") is None
    await world.say_ready("Workspace", "w", "False", "Broken")
    await world.rest()
    assert waits(world, "WorkerPool", "p")[1] == "not ready: Workspace/w (Broken)"
    await world.say_ready("Workspace", "w")
    await world.rest()
    assert world.node("WorkerPool", "p") is None


async def test_a_dependency_that_is_changed_holds_up_until_that_is_observed(world: World) -> None:
    await world.workspace("w")
    await world.say_ready("Workspace", "w")
    await pool(world)
    await world.serve(*gates(WorkerPool))
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    await world.rest()
    assert waits(world, "WorkerPool", "p")[1] == "not ready: Workspace/w (OutOfDate)"


async def test_a_dependency_that_is_deleted_holds_up_again(world: World) -> None:
    await world.create("Secret", "s")
    await world.workspace("w", secret="s")
    await world.serve(*gates(Workspace))
    assert world.node("Workspace", "w") is None
    await world.delete("Secret", "s")
    await world.rest()
    assert waits(world, "Workspace", "w") == (
        ("secrets/default/s",),
        "dependency not found: Secret/s (spec.secretRef)",
    )


async def test_a_dependency_that_begins_to_be_deleted_holds_up(world: World) -> None:
    await world.workspace("w", finalizers=["example.com/hold"])
    await world.say_ready("Workspace", "w")
    await pool(world)
    await world.serve(*gates(WorkerPool))
    assert world.node("WorkerPool", "p") is None
    await world.delete("Workspace", "w")
    await world.rest()
    assert waits(world, "WorkerPool", "p")[1] == "not ready: Workspace/w (Deleting)"


async def test_plain_data_that_begins_to_be_deleted_holds_up(world: World) -> None:
    await world.create("Secret", "s", finalizers=["example.com/hold"])
    await world.workspace("w", secret="s")
    await world.serve(*gates(Workspace))
    assert world.node("Workspace", "w") is None
    await world.delete("Secret", "s")
    await world.rest()
    assert waits(world, "Workspace", "w")[1] == "not ready: Secret/s (Deleting)"


async def test_a_dependency_that_only_has_to_exist_may_be_in_any_state(world: World) -> None:
    await world.create("Claim", "c", {"poolRef": {"name": "p"}})
    looking = Noting(Claim, gate)
    await world.serve(looking)
    assert waits(world, "Claim", "c")[0] == (WorkerPool.api.key("default", "p"),)
    await world.create("WorkerPool", "p", {"worker": {}})
    await world.rest()
    assert world.node("Claim", "c") is None
    runs = looking.runs["c"]
    await world.say_ready("WorkerPool", "p")
    await world.say_ready("WorkerPool", "p", "False")
    await world.rest()
    assert looking.runs["c"] == runs, "how it is, is nothing to those that only need it to exist"
    await world.delete("WorkerPool", "p")
    await world.rest()
    assert waits(world, "Claim", "c")[0] == (WorkerPool.api.key("default", "p"),)


async def test_what_nobody_refers_to_wakes_nobody(world: World) -> None:
    looking = Noting(Workspace, gate)
    await world.create("Secret", "s")
    await world.workspace("w", secret="s")
    await world.serve(looking)
    for i in range(10):
        await world.create("Secret", f"other-{i}")
    await world.rest()
    assert looking.runs == {"w": 1} and len(world.loop.view) == 0


async def test_a_reference_that_is_taken_out_is_no_longer_waited_for(world: World) -> None:
    looking = Noting(Workspace, gate)
    await world.workspace("w", secret="s")
    await world.serve(looking)
    await world.patch("Workspace", "w", {"spec": {"secretRef": None}})
    await world.rest()
    assert world.node("Workspace", "w") is None
    runs = looking.runs["w"]
    await world.create("Secret", "s")
    await world.rest()
    assert looking.runs["w"] == runs


async def test_a_reference_to_another_object_is_waited_for_instead(world: World) -> None:
    await world.workspace("w", secret="s")
    await world.serve(*gates(Workspace))
    await world.patch("Workspace", "w", {"spec": {"secretRef": {"name": "other"}}})
    await world.rest()
    assert waits(world, "Workspace", "w")[0] == (Secret.api.key("default", "other"),)
    assert world.loop.view.waiting_for("secrets/default/s") == []


# Where it is.


async def test_a_name_never_means_an_object_of_another_namespace(world: World) -> None:
    await world.create("Namespace", "other")
    await world.workspace("w", secret="s")
    await world.workspace("w", secret="s", namespace="other")
    await world.serve(*gates(Workspace))
    await world.create("Secret", "s", namespace="other")
    await world.rest()
    assert waits(world, "Workspace", "w")[0] == ("secrets/default/s",)
    assert world.node("Workspace", "w", "other") is None


async def test_a_message_says_the_namespace_unless_it_is_the_usual_one(world: World) -> None:
    await world.create("Namespace", "other")
    await world.workspace("w", secret="s", namespace="other")
    await world.serve(*gates(Workspace))
    assert waits(world, "Workspace", "w", "other")[1] == "dependency not found: Secret/other/s (spec.secretRef)"


async def test_what_has_no_namespace_is_found_from_any(world: World) -> None:
    template = {"template": {"containers": [{"name": "main"}], "instanceType": "big"}}
    await world.create("Namespace", "other")
    await world.create("WorkerPool", "p", template)
    await world.create("WorkerPool", "p", template, namespace="other")
    await world.serve(*gates(WorkerPool))
    assert waits(world, "WorkerPool", "p")[0] == ("instancetypes.rota.dev//big",)
    await world.create("InstanceType", "big", {"cpu": 1, "memory": "1Gi"})
    await world.rest()
    assert world.node("WorkerPool", "p") is None and world.node("WorkerPool", "p", "other") is None


# Failures and circles.


async def test_what_depends_on_something_that_failed_fails_and_recovers_with_it(world: World) -> None:
    await function(world)
    for name, after in (("a", []), ("b", ["a"]), ("c", ["b"])):
        await world.task(name, *after)
    await world.serve(*gates(Task))
    await world.set_status("Task", "a", phase="Failed")
    await world.rest()
    a, b = (Task.api.key("default", name) for name in "ab")
    assert failed(world, "Task", "b") == ((a,), "DependencyFailed", "dependencies failed: Task/a")
    assert failed(world, "Task", "c") == ((b,), "DependencyFailed", "dependencies failed: Task/b")
    await world.delete("Task", "a")
    await world.task("a")
    await world.set_status("Task", "a", phase="Succeeded")
    await world.rest()
    assert world.node("Task", "b") is None
    await world.set_status("Task", "b", phase="Succeeded")
    await world.rest()
    assert world.node("Task", "c") is None


async def test_what_failed_because_of_another_waits_again_as_soon_as_that_one_does(world: World) -> None:
    await function(world)
    for name, after in (("a", []), ("b", ["a"]), ("c", ["b"])):
        await world.task(name, *after)
    await world.serve(*gates(Task))
    await world.set_status("Task", "a", phase="Failed")
    await world.rest()
    assert failed(world, "Task", "c")[1] == "DependencyFailed"
    await world.delete("Task", "a")
    await world.task("a")
    await world.rest()
    assert waits(world, "Task", "b")[1] == "not ready: Task/a (NotObserved)"
    assert waits(world, "Task", "c")[1] == "not ready: Task/b (NotObserved)"


async def test_what_waits_in_a_circle_says_so_with_the_path(world: World) -> None:
    await function(world)
    await world.task("a", "b")
    await world.task("b", "a")
    await world.task("c", "a")
    await world.serve(*gates(Task))
    circle = "dependency cycle detected: Task/{0} → Task/{1} → Task/{0}"
    assert waits(world, "Task", "a")[1] == circle.format("a", "b")
    assert waits(world, "Task", "b")[1] == circle.format("b", "a")
    assert waits(world, "Task", "c")[1].startswith("not ready: Task/a")


async def test_a_circle_that_is_broken_goes_on(world: World) -> None:
    await function(world)
    await world.task("a", "b")
    await world.task("b", "a")
    await world.serve(*gates(Task))
    await world.delete("Task", "b")
    await world.rest()
    assert waits(world, "Task", "a")[1] == "dependency not found: Task/b (spec.dependsOn[0])"
    await world.task("b")
    await world.rest()
    assert waits(world, "Task", "a")[1].startswith("not ready: Task/b")


async def test_a_circle_through_what_is_ready_holds_nobody_up(world: World) -> None:
    await function(world)
    await world.task("a", "b", "x")
    await world.task("b", "a")
    await world.set_status("Task", "b", phase="Succeeded")
    await world.serve(*gates(Task))
    assert waits(world, "Task", "a") == (
        (Task.api.key("default", "x"),),
        "dependency not found: Task/x (spec.dependsOn[1])",
    )


# To the fixpoint.


async def test_to_the_fixpoint_what_can_never_come_fails_from_the_bottom_up(planned: World) -> None:
    await function(planned)
    for name, after in (("a", ["b"]), ("b", ["c"]), ("c", ["nowhere"])):
        await planned.task(name, *after)
    result = await planned.run(*gates(Task))
    assert result.level == 1
    assert failed(planned, "Task", "c")[1:] == (
        "DependencyNotFound",
        "dependency not found: Task/nowhere (spec.dependsOn[0])",
    )
    assert failed(planned, "Task", "b")[1:] == ("DependencyFailed", "dependencies failed: Task/c")
    assert failed(planned, "Task", "a")[1:] == ("DependencyFailed", "dependencies failed: Task/b")


async def test_to_the_fixpoint_a_circle_fails_last(planned: World) -> None:
    await function(planned)
    for name, after in (("a", ["b"]), ("b", ["a"]), ("c", ["a"])):
        await planned.task(name, *after)
    result = await planned.run(*gates(Task))
    assert result.level == 2
    assert failed(planned, "Task", "a")[2] == "dependency cycle detected: Task/a → Task/b → Task/a"
    assert failed(planned, "Task", "b")[2] == "dependency cycle detected: Task/b → Task/a → Task/b"
    assert failed(planned, "Task", "c")[2] == "dependencies failed: Task/a"


@pytest.mark.parametrize("order", [["p", "w", "s"], ["s", "w", "p"], ["w", "s", "p"]])
async def test_however_they_come_a_chain_ends_the_same(world: World, order: list[str]) -> None:
    async def settles(context: Context, obj: Any) -> Outcome:
        return context.held_up(obj) or await says_ready(context, obj)

    await world.serve(Noting(Workspace, settles), Noting(WorkerPool, gate))
    for one in order:
        if one == "p":
            await pool(world)
        elif one == "w":
            await world.workspace("w", secret="s")
        else:
            await world.create("Secret", "s")
        await world.rest()
    assert len(world.loop.view) == 0
    assert (await world.get("Workspace", "w")).readiness().state == "Ready"
