"""Tasks on workers in memory, on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rota.api import Instance, Task, WorkerPool
from rota.client import LocalBackend
from rota.engine import StoreObjects
from rota.engine.objects import get
from rota.runtime.archive import log_of
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Assign, ToRunner
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.engine_loop.loops import World
from tests.unchecked import stored


@pytest.fixture(params=["at once", "one by one"])
async def crew(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Crew:
    """On a server that writes several objects in one commit, and on one that does not."""
    monkeypatch.setattr(LocalBackend, "atomic", request.param == "at once")
    return Crew(world, FakeRuntime(world.clock))


async def up(world: World, crew: Crew, replicas: int = 1, **spec: Any) -> None:
    worker = spec.pop("worker", {"type": "shell"})
    await world.create("WorkerPool", "p", {"worker": worker, "replicas": replicas, **spec})
    await world.serve(*crew.controllers())


async def a_task(world: World, name: str, **spec: Any) -> None:
    what = {} if "prompt" in spec else {"command": ["run", name]}
    await world.create("Task", name, {**what, "workerPoolRef": {"name": "p"}, **spec})
    await world.rest()


async def status(world: World, name: str) -> Any:
    return (await world.get("Task", name)).status


async def phases(world: World) -> dict[str, str]:
    found = (await world.client.list(Task)).items
    return {one.metadata.name: (one.status.phase if one.status else None) or "" for one in found}


async def held(world: World) -> dict[str, str]:
    """The task that runs on each instance that tasks have, or the one that it was given for."""
    found = (await world.client.list(Instance)).items
    tasks = (await world.client.list(Task)).items
    on = {one.status.instance_name: one.metadata.name for one in tasks if one.status and one.status.phase == "Running"}
    given = [(one.metadata.name, one.spec.assignment) for one in found]
    return {name: on.get(name, assigned.name) for name, assigned in given if assigned is not None}


async def test_a_task_gets_a_worker_runs_and_is_over(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    assert crew.running() == {"p-0": "run a"} and await held(world) == {"p-0": "a"}
    found = await status(world, "a")
    assert (found.phase, found.instance_name) == ("Running", "p-0")
    crew.finish("p-0", exit_code=0, outputs={"k": "v"}, result="[1]")
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.exit_code, found.outputs, found.result) == ("Succeeded", 0, {"k": "v"}, [1])
    assert await held(world) == {} and crew.pending == {}
    assert [attempt.reason for attempt in found.attempts] == ["Succeeded"]


async def test_a_runner_is_sent_an_attempt_only_after_it_is_written_that_the_task_runs_there(
    world: World, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, published = crew.send, StoreObjects(world.registry)
    stored_when_sent: list[tuple[str, str | None, str | None]] = []

    def sends(subject: Subject, message: ToRunner) -> bool:
        if isinstance(message, Assign):
            name = message.job.argv[-1]
            task = get(published, Task, name, subject.namespace)
            assert task is not None and task.status is not None
            on = subject.name if task.status.instance_uid == subject.uid else None
            stored_when_sent.append((name, task.status.phase, on))
        return send(subject, message)

    monkeypatch.setattr(crew, "send", sends)
    await up(world, crew, replicas=2)
    for name in ("a", "b", "c"):
        await a_task(world, name)
    for _ in range(3):
        crew.finish(next(iter(crew.running())))
        await world.rest()
    assert await phases(world) == dict.fromkeys(("a", "b", "c"), "Succeeded")
    assert {name for name, *_ in stored_when_sent} == {"a", "b", "c"}
    assert all(phase == "Running" and on is not None for _, phase, on in stored_when_sent)


async def test_tasks_wait_their_turn_and_say_so(world: World, crew: Crew) -> None:
    await up(world, crew)
    for name in ("a", "b", "c"):
        await a_task(world, name)
    await world.pass_time(1, step=0.25)
    assert await phases(world) == {"a": "Running", "b": "Queued", "c": "Queued"}
    assert (await status(world, "b")).arrival <= (await status(world, "c")).arrival
    for expected in ("run a", "run b", "run c"):
        assert crew.running() == {"p-0": expected}
        crew.finish("p-0")
        await world.rest()
    assert set((await phases(world)).values()) == {"Succeeded"} and await held(world) == {}


async def test_priority_goes_first_and_holders_share(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "first", holder="x")
    await a_task(world, "x1", holder="x")
    await a_task(world, "x2", holder="x")
    await a_task(world, "y1", holder="y")
    await a_task(world, "urgent", priority=5, holder="x")
    order: list[str] = []
    for _ in range(5):
        order.append(crew.running()["p-0"].split()[1])
        crew.finish("p-0")
        await world.rest()
    assert order[:2] == ["first", "urgent"] and order.index("x1") < order.index("x2")


async def test_a_failure_is_told_and_tried_again_as_asked_for(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a", retry={"limit": 1, "backoffSeconds": 5, "reasons": ["Failed"]})
    crew.finish("p-0", "Failed", exit_code=3, message="out of paper")
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.reason, found.instance_name) == ("Waiting", "Retrying", None)
    assert crew.running() == {} and await held(world) == {}
    await world.pass_time(6, step=1)
    assert crew.running() == {"p-0": "run a"}
    crew.finish("p-0", "Failed", exit_code=3, message="out of paper")
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.reason, found.message, found.tries) == ("Failed", "Failed", "out of paper", 2)


async def test_a_lost_runner_is_found_out_and_the_task_runs_again(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    crew.runtime.die("p-0", container="worker")
    await world.rest()
    assert crew.running() == {"p-0": "run a"} and len(crew.begun) == 2
    found = await status(world, "a")
    assert (found.phase, found.losses) == ("Running", 1)
    crew.finish("p-0")
    await world.rest()
    assert [attempt.reason for attempt in (await status(world, "a")).attempts] == ["WorkerLost", "Succeeded"]


async def test_a_worker_that_is_made_anew_never_takes_over(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    await world.delete("Instance", "p-0")
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.losses) == ("Running", 1) and crew.begun == [f"{crew.begun[0][:-1]}{i}" for i in (0, 1)]
    crew.finish("p-0")
    await world.rest()
    assert (await status(world, "a")).phase == "Succeeded"


async def test_cancel_ends_what_runs_and_what_waits(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    await a_task(world, "b")
    for name in ("b", "a"):
        await world.client.patch(Task, name, {"spec": {"cancel": True}})
        await world.rest()
    assert await phases(world) == {"a": "Cancelled", "b": "Cancelled"}
    assert crew.jobs == {} and await held(world) == {} and len(crew.begun) == 1


async def test_a_cancel_that_its_runner_was_not_there_to_hear_is_told_when_it_is(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    crew.is_away = True
    await world.client.patch(Task, "a", {"spec": {"cancel": True}})
    await world.rest()
    assert await phases(world) == {"a": "Running"}
    crew.is_away = False
    crew.reconnect()
    await world.rest()
    assert await phases(world) == {"a": "Cancelled"} and crew.jobs == {}


async def test_a_task_that_is_deleted_gives_its_worker_back(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    await crew.runtime.archive.put(log_of("default", "a", (await world.get("Task", "a")).metadata.uid), b"said")
    await world.delete("Task", "a")
    await world.rest()
    assert crew.jobs == {} and await held(world) == {} and crew.runtime.archive.items == {}
    await a_task(world, "b")
    assert crew.running() == {"p-0": "run b"}


async def test_dependencies_come_first_and_their_outputs_are_there(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "b", dependsOn=["a"], command=["use", "{{ tasks.a.outputs.k }}"])
    found = await status(world, "b")
    assert (found.phase, found.reason) == ("Waiting", "DependencyNotReady")
    assert found.message == "not there yet: Task/a (spec.dependsOn[0])"
    await a_task(world, "a")
    crew.finish("p-0", outputs={"k": "v"})
    await world.rest()
    [begun] = crew.jobs.values()
    assert crew.running() == {"p-0": "use v"} and begun.env["ROTA_TASKS_A_K"] == "v"


async def test_a_dependency_stays_until_its_outcome_is_known(world: World, crew: Crew) -> None:
    await up(world, crew, 2)
    await a_task(world, "a", ttlSecondsAfterFinished=0)
    await a_task(world, "other")
    await a_task(world, "b", dependsOn=["a", "other"])
    crew.finish(next(name for name, command in crew.running().items() if command == "run a"), outputs={"k": "v"})
    await world.rest()
    assert "a" not in await phases(world), "it is gone, as it asked for"
    found = await status(world, "b")
    assert [(one.name, one.phase, one.outputs) for one in found.dependencies] == [("a", "Succeeded", {"k": "v"})]
    crew.finish(next(iter(crew.running())))
    await world.rest()
    assert "run b" in crew.running().values()


async def test_a_failed_dependency_fails_what_waits_for_it(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    await a_task(world, "b", dependsOn=["a"])
    await a_task(world, "c", dependsOn=["b"])
    crew.finish("p-0", "Failed")
    await world.rest()
    assert await phases(world) == {"a": "Failed", "b": "Failed", "c": "Failed"}
    assert (await status(world, "c")).reason == "DependencyFailed"


async def test_an_unknown_pool_is_said_at_once(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a", workerPoolRef={"name": "nothere"})
    found = await status(world, "a")
    assert found.phase == "Waiting" and "WorkerPool/nothere" in found.message


async def test_an_unknown_output_and_a_prompt_without_an_agent_fail_at_once(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    crew.finish("p-0")
    await a_task(world, "b", dependsOn=["a"], command=["{{ tasks.a.outputs.nothing }}"])
    await a_task(world, "c", prompt="do it")
    assert (await status(world, "b")).reason == "TemplateError" and "has no output" in (
        await status(world, "b")
    ).message
    assert (await status(world, "c")).reason == "NotAnAgent"


async def test_variables_of_a_worker_have_results_of_dependencies(world: World, crew: Crew) -> None:
    env = [{"name": "IMAGE", "value": "of {{ tasks.a.outputs.k }}"}, {"name": "PLAIN", "value": "x"}]
    await up(world, crew)
    await a_task(world, "a")
    await a_task(world, "b", dependsOn=["a"], workerPoolRef=None, worker={"type": "shell", "env": env})
    await a_task(world, "c", dependsOn=["a"], workerPoolRef=None, worker={"env": [{**env[0], "name": "A"}]})
    crew.finish("p-0", outputs={"k": "v"})
    await world.pass_time(2, step=0.5)
    assert {job.env.get("IMAGE") or job.env["A"] for job in crew.jobs.values()} == {"of v"}
    assert all("PLAIN" not in job.env for job in crew.jobs.values()), "that it has anyway"


@pytest.mark.parametrize("of_its_own", [True, False])
async def test_a_variable_that_names_what_is_not_there_fails_the_task(
    world: World, crew: Crew, of_its_own: bool
) -> None:
    worker = {"type": "shell", "env": [{"name": "IMAGE", "value": "{{ tasks.a.outputs.nothing }}"}]}
    await up(world, crew, worker={"type": "shell"} if of_its_own else worker)
    if of_its_own:
        # As a cluster's API server takes it, which does not see that.
        await stored(world.registry, "Task", "b", {"command": ["run", "b"], "worker": worker})
        await world.rest()
    else:
        await a_task(world, "b")
    found = await status(world, "b")
    assert (found.phase, found.reason) == ("Failed", "TemplateError")
    assert found.message == "env IMAGE: a is none of the tasks that it depends on, which are: none"


async def test_one_branch_is_one_tasks_at_a_time(world: World, crew: Crew) -> None:
    await up(world, crew, 3)
    for name in ("a", "b"):
        await a_task(world, name, branch="main")
    await a_task(world, "c", branch="dev")
    assert set(crew.running().values()) == {"run a", "run c"}
    assert (await status(world, "b")).reason == "BranchLocked"
    crew.finish(next(name for name, command in crew.running().items() if command == "run a"))
    await world.rest()
    assert "run b" in crew.running().values()


async def test_an_older_task_that_waits_for_a_newer_one_on_its_branch_is_no_deadlock(world: World, crew: Crew) -> None:
    await up(world, crew, 2)
    await a_task(world, "old", branch="main", dependsOn=["new"])
    await a_task(world, "new", branch="main")
    assert list(crew.running().values()) == ["run new"]
    crew.finish(next(iter(crew.running())))
    await world.rest()
    assert list(crew.running().values()) == ["run old"]


async def test_a_new_server_goes_on_where_the_last_one_was(world: World, crew: Crew) -> None:
    await up(world, crew)
    for name in ("a", "b", "c"):
        await a_task(world, name)
    await world.pass_time(1, step=0.25)
    await world.stop()
    crew.finish("p-0")
    await world.serve(*crew.controllers())
    crew.reconnect()
    await world.rest()
    assert crew.running() == {"p-0": "run b"} and (await status(world, "a")).phase == "Succeeded"
    crew.finish("p-0")
    await world.rest()
    assert crew.running() == {"p-0": "run c"}


async def test_tasks_that_came_while_nobody_led_run_in_the_order_in_which_they_came(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "first")
    await world.stop()
    names = ["t9", "t10", "t2", "t1"]
    for name in names:
        await world.create("Task", name, {"command": ["run", name], "workerPoolRef": {"name": "p"}})
    await world.serve(*crew.controllers())
    crew.reconnect()
    await world.rest()
    order: list[str] = []
    for _ in ("first", *names):
        order += crew.running().values()
        crew.finish("p-0")
        await world.rest()
    assert order == ["run first", *(f"run {name}" for name in names)]


async def test_a_task_that_comes_now_is_behind_one_that_came_by_a_clock_that_was_ahead(
    world: World, crew: Crew
) -> None:
    await up(world, crew)
    await a_task(world, "first")
    await a_task(world, "second")
    await world.pass_time(1, step=0.25)
    await world.stop()
    found = await world.get("Task", "second")
    ahead = found.status.arrival + timedelta(hours=1)
    await world.client.update_status(replace(found, status=replace(found.status, arrival=ahead)))
    await world.serve(*crew.controllers())
    crew.reconnect()
    await a_task(world, "third")
    crew.finish("p-0")
    await world.rest()
    assert crew.running() == {"p-0": "run second"}


async def test_a_worker_that_is_to_be_replaced_finishes_first_and_gets_no_other_task(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    await a_task(world, "b")
    worker = {"type": "shell", "env": [{"name": "A", "value": "b"}]}
    await world.client.patch(WorkerPool, "p", {"spec": {"worker": worker}})
    await world.rest()
    assert crew.running() == {"p-0": "run a"} and crew.runtime.stopped == []
    crew.finish("p-0")
    await world.rest()
    assert crew.runtime.stopped == ["p-0"] and crew.running() == {"p-0": "run b"}
    assert [one.reason for one in (await status(world, "b")).attempts] == [] and len(crew.begun) == 2


async def test_a_task_can_have_a_worker_of_its_own_which_is_gone_at_the_end(world: World, crew: Crew) -> None:
    await world.serve(*crew.controllers())
    await world.create("Task", "a", {"command": ["run", "a"], "worker": {"type": "shell"}})
    await world.rest()
    [instance] = crew.running()
    found = await status(world, "a")
    assert (found.phase, found.instance_name) == ("Running", instance) and crew.running()[instance] == "run a"
    crew.finish(instance)
    await world.rest()
    assert (await status(world, "a")).phase == "Succeeded" and (await world.client.list(Instance)).items == []


async def test_a_worker_of_its_own_that_dies_is_made_again(world: World, crew: Crew) -> None:
    await world.serve(*crew.controllers())
    await world.create("Task", "a", {"command": ["run", "a"], "worker": {"type": "shell"}})
    await world.rest()
    [instance] = crew.running()
    await world.delete("Instance", instance)
    await world.rest()
    assert list(crew.running().values()) == ["run a"] and (await status(world, "a")).losses == 1


async def test_a_task_takes_five_writes_and_four_when_a_worker_is_handed_on(world: World, crew: Crew) -> None:
    """Its creation, that it has a worker, that it runs, how it ended, and that the worker is free."""
    await up(world, crew, reset="Keep")
    store = world.registry.store
    before = store.revision
    await a_task(world, "alone")
    crew.finish("p-0")
    await world.rest()
    assert store.revision - before == 5
    before = store.revision
    names = [f"t{i}" for i in range(10)]
    for name in names:
        await a_task(world, name)
    for _ in names:
        crew.finish("p-0")
        await world.rest()
    assert await held(world) == {} and set((await phases(world)).values()) == {"Succeeded"}
    if LocalBackend.atomic:
        assert store.revision - before <= 4 * len(names) + 1
    else:
        assert store.revision - before <= 5 * len(names)


async def test_a_task_that_lost_its_worker_has_its_place_again(world: World, crew: Crew) -> None:
    await up(world, crew)
    for name in ("a", "b", "c"):
        await a_task(world, name)
    await world.delete("Instance", "p-0")
    await world.rest()
    assert crew.running() == {"p-0": "run a"} and (await status(world, "a")).losses == 1


async def test_a_worker_that_was_idle_for_long_takes_no_more_writes(world: World, crew: Crew) -> None:
    await up(world, crew, reset="Keep")
    await a_task(world, "first")
    crew.finish("p-0")
    await world.pass_time(30, step=1)
    before = world.registry.store.revision
    await a_task(world, "second")
    crew.finish("p-0")
    await world.rest()
    assert world.registry.store.revision - before == 5


async def test_a_hold_that_lasts_is_said_in_the_end(world: World, crew: Crew) -> None:
    await up(world, crew, reset="Keep")
    await world.pass_time(30, step=1)
    await a_task(world, "long")
    assert (await world.get("Instance", "p-0")).status.phase == "Idle"
    await world.pass_time(2, step=0.5)
    assert (await world.get("Instance", "p-0")).status.phase == "Running"
    crew.finish("p-0")
    await world.pass_time(2, step=0.5)
    assert (await world.get("Instance", "p-0")).status.phase == "Idle"
