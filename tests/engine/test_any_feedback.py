"""Bodies that emit whatever they like whenever they run, against the promise that every run ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from rota.engine import (
    CASCADE,
    DONE,
    FORCE,
    Blocked,
    Done,
    Failed,
    Outcome,
    RequeueAfter,
    Scheduler,
    Status,
    VirtualClock,
)
from tests.amount import amount
from tests.engine.bodies import assert_nothing_left

pytestmark = pytest.mark.timeout(120)

NODES = "abcde"
DATA = "xyz"
RUNS_MAX = 20_000
"""More than budgets allow: a run that comes to it has no end."""

Content = Literal["same", "new", "none"]


@dataclass(frozen=True)
class Act:
    """The effects of one run of a body."""

    end: Literal["done", "skipped", "pending", "blocked", "every", "failed", "later"]
    on: str
    emits: str
    content: Content
    status: Status | None


@dataclass(frozen=True)
class Play:
    """By node, what its body does in its runs, over and over."""

    acts: dict[str, list[Act]]
    selectors: frozenset[str]
    seeds: frozenset[str]
    slow: bool


ACTS = st.builds(
    Act,
    end=st.sampled_from(["done", "done", "skipped", "pending", "blocked", "blocked", "every", "failed", "later"]),
    on=st.text(NODES + DATA, min_size=1, max_size=3),
    emits=st.text(NODES + DATA, max_size=2),
    content=st.sampled_from(["same", "new", "none"]),
    status=st.sampled_from([None, None, "Ready", "Failed", "Skipped"]),
)
PLAYS = st.builds(
    Play,
    acts=st.fixed_dictionaries(dict.fromkeys(NODES, st.lists(ACTS, min_size=1, max_size=3))),
    selectors=st.frozensets(st.sampled_from(NODES)),
    seeds=st.frozensets(st.sampled_from(NODES), min_size=1),
    slow=st.booleans(),
)


class Actors:
    """The bodies of a play."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.runs = Counter[str]()
        self.scheduler = Scheduler(
            self.slowly if play.slow else self.at_once,
            clock=VirtualClock(),
            rerun_at_drain=lambda id_: id_ in play.selectors,
        )
        self.scheduler.seed(play.seeds)

    async def slowly(self, id_: str, level: int) -> Outcome:
        for _ in range(ord(id_) % 3):
            await asyncio.sleep(0)
        return self.at_once(id_, level)

    def at_once(self, id_: str, level: int) -> Outcome:
        acts = self.play.acts[id_]
        act = acts[self.runs[id_] % len(acts)]
        self.runs[id_] += 1
        if self.runs.total() > RUNS_MAX:
            asyncio.ensure_future(self.scheduler.cancel())  # noqa: RUF006
            return DONE
        for emitted in act.emits:
            content = {"same": "1", "new": str(self.runs.total()), "none": None}[act.content]
            self.scheduler.arrive(emitted, content, runnable=emitted in NODES)
        if act.status is not None:
            self.scheduler.status(act.on[0], act.status)
        return self.end(act, level)

    def end(self, act: Act, level: int) -> Outcome:
        on = tuple(act.on)
        if level >= FORCE or act.end == "failed":
            return Failed(on)
        if act.end in ("blocked", "every"):
            waits = tuple(filter(self.scheduler.view.pending, on)) if level >= CASCADE else on
            return Blocked(waits, every=act.end == "every") if waits else Failed(on)
        if act.end == "later":
            return RequeueAfter(1.0)
        statuses: dict[str, Status] = {"done": "Ready", "skipped": "Skipped", "pending": "Pending"}
        return Done(statuses[act.end])


@given(PLAYS)
@settings(max_examples=amount(120, 5_000), deadline=None)
def test_every_run_ends_whatever_bodies_emit(play: Play) -> None:
    note(str(play))

    async def run() -> Actors:
        actors = Actors(play)
        await actors.scheduler.run()
        return actors

    actors = asyncio.run(run())
    assert actors.runs.total() <= RUNS_MAX
    assert_nothing_left(actors.scheduler)
