"""Being run again after a while."""

from __future__ import annotations

from rota.api import Workspace
from rota.engine import DONE, Context, Done, Outcome, RequeueAfter
from tests.engine_loop.loops import Noting, World


async def test_requeue_after_runs_it_again_then_and_not_before(world: World) -> None:
    looking = Noting(Workspace, lambda context, obj: _after(RequeueAfter(30.0)))
    await world.workspace("w")
    await world.serve(looking)
    node = world.node("Workspace", "w")
    assert node is not None and node.state == "sleeping" and node.due == 30.0
    await world.pass_time(29.9)
    assert looking.runs == {"w": 1}
    await world.pass_time(0.1)
    assert looking.runs == {"w": 2}


async def test_news_comes_before_a_requeue(world: World) -> None:
    looking = Noting(Workspace, lambda context, obj: _after(RequeueAfter(30.0)))
    await world.workspace("w")
    await world.serve(looking)
    await world.pass_time(10)
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    await world.rest()
    assert looking.runs == {"w": 2}
    await world.pass_time(29)
    assert looking.runs == {"w": 2}, "the earlier pause is over with"
    await world.pass_time(1)
    assert looking.runs == {"w": 3}


async def test_done_with_another_look_runs_it_again_then(world: World) -> None:
    looking = Noting(Workspace, lambda context, obj: _after(Done(again_after=60.0)))
    await world.workspace("w")
    await world.serve(looking)
    node = world.node("Workspace", "w")
    assert node is not None and node.state == "done"
    await world.pass_time(59)
    assert looking.runs == {"w": 1}
    await world.pass_time(1)
    assert looking.runs == {"w": 2}


async def test_the_fixpoint_waits_for_a_requeue_but_not_for_another_look(planned: World) -> None:
    runs: list[str] = []

    async def body(context: Context, obj: Workspace) -> Outcome:
        runs.append(obj.metadata.name)
        if obj.metadata.name == "again":
            return Done(again_after=1e6)
        return RequeueAfter(3600.0) if runs.count("later") == 1 else DONE

    await planned.workspace("again")
    await planned.workspace("later")
    result = await planned.run(Noting(Workspace, body))
    assert sorted(runs) == ["again", "later", "later"] and planned.clock.now() == 3600.0
    assert result.level == 0 and result.error is None


async def _after(outcome: Outcome) -> Outcome:
    return outcome
