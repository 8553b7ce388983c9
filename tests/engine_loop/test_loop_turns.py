"""The number of runs at once, the order of nodes, and the end of the loop."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.api import ConfigMap, Task, Workspace
from rota.api.meta import empty_status
from rota.engine import DONE, Context, Outcome
from tests.engine_loop.loops import Noting, World


class Held:
    """A body that waits until it is let go, and knows how many do at once."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.now = 0
        self.most = 0
        self.ended: list[str] = []

    async def __call__(self, context: Context, obj: Any) -> Outcome:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go_on.wait()
        finally:
            self.now -= 1
            self.ended.append(obj.metadata.name)
        return DONE


async def begin(world: World, *which: Any) -> None:
    await world.prepare(*which)
    world.serving = asyncio.create_task(world.loop.serve())


async def test_no_more_of_a_kind_run_at_once_than_its_controller_says(world: World) -> None:
    held = Held()
    looking = Noting(Workspace, held, concurrency=3)
    for i in range(10):
        await world.workspace(f"w{i}")
    await begin(world, looking)
    await world.until(lambda: held.now == 3)
    assert len(world.loop.view.running()) == 3
    assert world.loop.view.queued() == {Workspace.api.bucket: 7}
    held.go_on.set()
    await world.rest()
    assert held.most == 3 and len(looking.runs) == 10


async def test_an_object_is_never_looked_at_twice_at_once(world: World) -> None:
    held = Held()
    looking = Noting(Workspace, held)
    await world.workspace("w")
    await begin(world, looking)
    await world.until(lambda: held.now)
    for i in range(10):
        await world.patch("Workspace", "w", {"spec": {"ref": f"r{i}"}})
    held.go_on.set()
    await world.rest()
    assert held.most == 1 and looking.seen[-1].spec.ref == "r9"


async def test_a_kind_whose_controller_is_stuck_does_not_starve_another(world: World) -> None:
    held = Held()
    stuck, free = Noting(Workspace, held, concurrency=8), Noting(Task, concurrency=1)
    for i in range(50):
        await world.workspace(f"w{i}")
    await begin(world, stuck, free)
    await world.until(lambda: held.now == 8)
    for i in range(20):
        await world.task(f"t{i}")
    await world.until(lambda: len(free.runs) == 20)
    assert held.now == 8 and not held.ended


async def test_kinds_take_turns(world: World) -> None:
    order: list[str] = []

    async def note(context: Context, obj: Any) -> Outcome:
        order.append(obj.api.name)
        return DONE

    for i in range(30):
        await world.workspace(f"w{i}")
    for i in range(3):
        await world.create("ConfigMap", f"c{i}")
    await world.serve(Noting(Workspace, note, concurrency=1), Noting(ConfigMap, note, concurrency=1))
    assert max(i for i, kind in enumerate(order) if kind == "ConfigMap") < 12, order


# The end.


async def test_a_loop_that_is_stopped_cancels_what_runs_and_leaves_no_task_behind(world: World) -> None:
    held = Held()
    for i in range(3):
        await world.workspace(f"w{i}")
    before = asyncio.all_tasks()
    await begin(world, Noting(Workspace, held))
    await world.until(lambda: held.now == 3)
    assert world.serving is not None
    world.serving.cancel()
    await asyncio.gather(world.serving, return_exceptions=True)
    assert sorted(held.ended) == ["w0", "w1", "w2"]
    await world.stop()
    assert asyncio.all_tasks() <= before
    assert not world.events.said, "to be stopped is no failure"


async def test_nothing_is_heard_or_written_after_the_end(world: World) -> None:
    async def writes(context: Context, obj: Workspace) -> Outcome:
        status = obj.status or empty_status(Workspace)
        generation = obj.metadata.generation
        if status.observed_generation != generation:
            status = empty_status(Workspace)
            status.observed_generation = generation
            await context.write_status(obj, status)
        return DONE

    looking = Noting(Workspace, writes)
    await world.serve(looking)
    await world.workspace("w")
    await world.rest()
    assert world.serving is not None
    world.serving.cancel()
    await asyncio.gather(world.serving, return_exceptions=True)
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    await world.workspace("other")
    await world.rest()
    world.clock.advance(10_000)
    await world.rest()
    assert looking.runs == {"w": 1}
    assert (await world.get("Workspace", "w")).status.observed_generation == 1
    assert (await world.get("Workspace", "other")).status is None


async def test_what_a_reconciler_does_when_cancelled_is_waited_for(world: World) -> None:
    tidied: list[str] = []

    async def tidies(context: Context, obj: Workspace) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            tidied.append(obj.metadata.name)
        return DONE

    looking = Noting(Workspace, tidies)
    await world.workspace("w")
    await begin(world, looking)
    await world.until(lambda: looking.seen)
    assert world.serving is not None
    world.serving.cancel()
    await asyncio.gather(world.serving, return_exceptions=True)
    assert tidied == ["w"] and not world.loop.view.running()


async def test_a_second_loop_takes_up_what_the_first_one_left(world: World) -> None:
    held = Held()
    await world.workspace("w")
    await begin(world, Noting(Workspace, held))
    await world.until(lambda: held.now)
    await world.stop()
    looking = Noting(Workspace)
    await world.serve(looking)
    assert looking.runs == {"w": 1}
