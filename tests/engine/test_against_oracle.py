"""Any graph, with any failures and arrivals, at any pace, against the plainest way to compute the same."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from tests.amount import amount
from tests.engine.bodies import assert_nothing_left, said, settle, soon
from tests.engine.oracle import DATA, NODES, PACES, WORLDS, Inhabitants, Oracle, Pace, World, outcome_of

pytestmark = pytest.mark.timeout(60)

EXAMPLES = amount(80, 1_000)
RUNS_PER_NEED_MAX = 3
"""It comes, it fails, it recovers."""
OTHER_RUNS_MAX = 3
"""The first one, and one a level."""
SWEEPS_MAX = len(NODES) + len(DATA)
"""Reruns at the fixpoint, beside those for what comes from outside: one for each thing that may arrive."""


def foretold(world: World) -> Oracle:
    return Oracle(world)


@given(WORLDS, PACES)
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_node_ends_as_the_oracle_says_at_any_pace(world: World, pace: Pace) -> None:
    oracle = foretold(world)
    for each in (Pace(), pace):
        note(f"{world}\n{each}")
        inhabitants, result, ended = outcome_of(world, each)
        assert in_short(ended) == in_short(oracle.said)
        # A lost wake-up would be made good by a drain, at a level that was not called for.
        assert result.level == oracle.level
        assert not result.cancelled
        assert_nothing_left(inhabitants.scheduler)


def in_short(ended: dict[str, str]) -> dict[str, str]:
    return {id_: text.partition(":")[0] for id_, text in ended.items()}


@given(WORLDS, PACES)
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_node_says_the_same_at_any_pace(world: World, pace: Pace) -> None:
    note(f"{world}\n{pace}")
    assert outcome_of(world, pace)[2] == foretold(world).said


@given(WORLDS, PACES)
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_node_runs_oftener_than_what_happens_to_it(world: World, pace: Pace) -> None:
    note(f"{world}\n{pace}")
    inhabitants, _, _ = outcome_of(world, pace)
    for id_, part in world.parts.items():
        changes = sum(late.id == id_ for late in world.late)
        most = OTHER_RUNS_MAX + RUNS_PER_NEED_MAX * len(part.needs) + part.naps + changes
        if part.copies:
            most += SWEEPS_MAX + len(world.late)
        assert inhabitants.runs(id_) <= most, id_


@given(WORLDS, PACES)
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_the_same_world_at_the_same_pace_is_run_in_the_same_order(world: World, pace: Pace) -> None:
    note(f"{world}\n{pace}")
    first, again = outcome_of(world, pace), outcome_of(world, pace)
    assert first[0].ran == again[0].ran
    assert (first[1].level, first[2]) == (again[1].level, again[2])


@given(WORLDS, PACES, st.integers(0, 40))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_cancel_at_any_instant_is_clean(world: World, pace: Pace, turns: int) -> None:
    note(f"{world}\n{pace}")

    async def cancel() -> None:
        inhabitants = Inhabitants(world, pace)
        running = asyncio.create_task(inhabitants.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        await soon(inhabitants.scheduler.cancel())
        if not (await soon(running)).cancelled:
            assert_nothing_left(inhabitants.scheduler)
        ran = len(inhabitants.ran)
        await settle()
        assert len(inhabitants.ran) == ran
        assert inhabitants.under_way == set()
        view, core = inhabitants.scheduler.view, inhabitants.scheduler._core
        assert view.running() == []
        assert (core.running, core.queued, core.parked, core.sleeping) == (
            0,
            len(view.runnable()),
            len(view.parked()),
            len(view.sleeping()),
        )
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for parked in view.parked():
            assert not any(map(inhabitants.ready, parked.on)), parked

    asyncio.run(cancel())


@given(WORLDS, PACES)
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_comes_after_the_end_leads_to_the_same_end_as_if_it_had_been_there(world: World, pace: Pace) -> None:
    # What was failed for is ready at last: those that failed for it recover.
    assume(all(part.fate != "tolerates" for part in world.parts.values()))
    note(f"{world}\n{pace}")

    async def run() -> dict[str, str]:
        inhabitants = Inhabitants(World(world.parts, world.seeds, []), pace)
        await inhabitants.run()
        for late in world.late:
            inhabitants.happen(late)
            await soon(inhabitants.scheduler.run())
        assert_nothing_left(inhabitants.scheduler)
        return said(inhabitants.scheduler)

    assert in_short(asyncio.run(run())) == in_short(Oracle(world).said)
