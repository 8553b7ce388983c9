"""Random worlds of nodes, what they come to when computed in the plainest way, and bodies that live in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st

from rota.engine import CASCADE, DONE, FORCE, Blocked, Done, Failed, Outcome, RequeueAfter, Result
from tests.engine.bodies import Bodies, said, soon

NODES = "abcdefg"
DATA = "xyz"
MISSING = "?"

Fate = Literal["ready", "fails", "heals", "raises", "skips", "tolerates"]


@dataclass(frozen=True)
class Part:
    """A node of a world."""

    needs: str = ""
    every: bool = False
    fate: Fate = "ready"
    """The outcome when all that it needs is ready. A tolerant node does not mind if some of it failed."""
    makes: str = ""
    """Nodes that it creates when it is done."""
    gives: str = ""
    """Data that it brings when it is done."""
    early: str = ""
    """Data that it brings whenever it runs, whatever comes of it."""
    naps: int = 0
    """The number of times that it asks for more time when it could be done."""
    copies: str = ""
    """Two data, of which it brings the second when it is done and the first is there. It waits for neither of them."""


@dataclass(frozen=True)
class Late:
    """Something comes from outside, so many turns of the loop after what came before."""

    turns: int
    id: str
    """Data, or a node: which then is created or, if it is there, changed."""


@dataclass(frozen=True)
class World:
    parts: dict[str, Part]
    seeds: str
    late: list[Late]


@dataclass(frozen=True)
class Pace:
    """The order and speed of a run of a world, on which its result must not depend."""

    concurrency: int = 64
    lane_limit: int = 8
    """Nodes are in two lanes."""
    turns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By node: turns of the loop before its body looks around, and before it answers. None: it does not await."""
    after: bool = False
    """If true, the needs of the seeds are known beforehand."""


def ids(alphabet: str, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(alphabet), max_size=most, unique=True).map("".join)


FATES: list[Fate] = ["ready", "ready", "ready", "tolerates", "fails", "heals", "raises", "skips"]
WAITERS = st.builds(
    Part,
    needs=ids(NODES + DATA + MISSING, 3),
    every=st.booleans(),
    fate=st.sampled_from(FATES),
    makes=ids(NODES, 2),
    gives=ids(DATA, 1),
    early=ids(DATA, 1),
    naps=st.sampled_from([0, 0, 0, 1, 2]),
)
SELECTORS = st.builds(
    Part,
    fate=st.sampled_from(FATES),
    makes=ids(NODES, 1),
    copies=st.permutations(DATA).map(lambda data: "".join(data[:2])),
    naps=st.sampled_from([0, 0, 0, 1]),
)
PARTS = WAITERS | WAITERS | SELECTORS
LATE = st.lists(st.builds(Late, turns=st.integers(0, 6), id=st.sampled_from(NODES + DATA)), max_size=4)
WORLDS = st.builds(
    World, parts=st.fixed_dictionaries(dict.fromkeys(NODES, PARTS)), seeds=ids(NODES, len(NODES)), late=LATE
)
PACES = st.builds(
    Pace,
    concurrency=st.integers(1, 4),
    lane_limit=st.integers(1, 3),
    turns=st.dictionaries(st.sampled_from(NODES), st.tuples(st.integers(0, 4), st.integers(0, 4))),
    after=st.booleans(),
)


class Inhabitants(Bodies):
    """The bodies of a world. They say so if one of them runs twice at once."""

    def __init__(self, world: World, pace: Pace) -> None:
        super().__init__({id_: " ".join(part.needs) for id_, part in world.parts.items()})
        self.world = world
        self.pace = pace
        self.there = set(world.seeds)
        self.contents = dict.fromkeys(world.parts, 0)
        self.under_way: set[str] = set()
        self.naps: dict[str, int] = {}
        self.on(
            concurrency=pace.concurrency,
            lane_of=lambda id_: id_ in NODES[::2],
            lane_limit=lambda _: pace.lane_limit,
            rerun_at_drain=lambda id_: bool(world.parts[id_].copies),
        )
        self.scheduler.seed(world.seeds, self.known_needs if pace.after else None)

    def known_needs(self, id_: str) -> tuple[str, ...]:
        # One that others get something from though it is blocked must not be kept from running.
        return () if self.world.parts[id_].early else self.graph[id_]

    def __call__(self, id_: str, level: int) -> Outcome | Awaitable[Outcome]:
        assert id_ not in self.under_way, f"{id_} runs twice at once"
        self.ran.append((id_, level))
        turns = self.pace.turns.get(id_)
        return self.live(id_, level) if turns is None else self.live_slowly(id_, level, *turns)

    async def live_slowly(self, id_: str, level: int, before: int, after: int) -> Outcome:
        assert id_ not in self.under_way, f"{id_} runs twice at once"
        self.under_way.add(id_)
        try:
            for _ in range(before):
                await asyncio.sleep(0)
            outcome = self.live(id_, level)
            for _ in range(after):
                await asyncio.sleep(0)
            return outcome
        finally:
            self.under_way.remove(id_)

    def live(self, id_: str, level: int) -> Outcome:
        part = self.world.parts[id_]
        for given in part.early:
            self.give(given)
        outcome = self.decide(id_, level)
        if isinstance(outcome, Blocked):
            return Blocked(outcome.on, message=outcome.message, every=part.every)
        if isinstance(outcome, Failed) and not (part.fate == "tolerates" and self.is_bearable(outcome, level)):
            return outcome
        self.naps[id_] = self.naps.get(id_, 0) + 1
        if self.naps[id_] <= part.naps:
            return RequeueAfter(1.0)
        if part.fate == "raises":
            raise ValueError(f"{id_} is broken")
        if part.fate == "fails" or (part.fate == "heals" and not self.contents[id_]):
            return Failed(message=f"{id_} has failed")
        for given in part.gives:
            self.give(given)
        if part.copies and part.copies[0] in self.data:
            self.give(part.copies[1])
        for made in part.makes:
            self.make(made)
        return Done("Skipped") if part.fate == "skips" else DONE

    def is_bearable(self, outcome: Failed, level: int) -> bool:
        # One that is forced has to fail: whether the others of its circle failed before it is a matter of luck.
        return level < FORCE and all(self.failed(id_) or self.skipped(id_) for id_ in outcome.because)

    def give(self, id_: str) -> None:
        self.put(id_, "the same")

    def make(self, id_: str) -> None:
        if id_ not in self.there:
            self.there.add(id_)
            self.scheduler.arrive(id_, self.contents[id_])

    def happen(self, late: Late) -> None:
        """Apply an event from outside."""
        if late.id in DATA:
            self.give(late.id)
        else:
            self.contents[late.id] += 1
            self.there.add(late.id)
            self.scheduler.arrive(late.id, self.contents[late.id])

    async def run(self) -> Result:
        """To the fixpoint, with all that comes from outside."""
        with self.scheduler.hold():
            running = asyncio.create_task(self.scheduler.run())
            for late in self.world.late:
                for _ in range(late.turns):
                    await asyncio.sleep(0)
                self.happen(late)
        return await soon(running)


@dataclass
class Oracle:
    """Everything is there from the start, and everything is looked at again and again until nothing changes."""

    world: World
    said: dict[str, str] = field(default_factory=dict)
    """The outcome of every node."""
    level: int = 0

    def __post_init__(self) -> None:
        self.data = {late.id for late in self.world.late if late.id in DATA}
        self.changed = {late.id for late in self.world.late if late.id in NODES}
        self.there = set(self.world.seeds) | self.changed
        self.levels = dict.fromkeys(NODES, 0)
        self.because: dict[str, dict[str, bool]] = {}  # and whether it was there
        self.circles: dict[str, str] = {}
        while self.settle() or self.escalate():
            pass

    def ready(self, id_: str) -> bool:
        return id_ in self.data or self.said.get(id_) == "Ready"

    def failed(self, id_: str) -> bool:
        return self.said.get(id_, "").startswith("Failed")

    def skipped(self, id_: str) -> bool:
        return self.said.get(id_) == "Skipped"

    def pending(self, id_: str) -> bool:
        return id_ in self.there and id_ not in self.said

    def open(self, id_: str) -> list[str]:
        return [need for need in self.world.parts[id_].needs if not self.ready(need) and need not in self.ended()]

    def ended(self) -> list[str]:
        return [id_ for id_ in self.said if self.failed(id_) or self.skipped(id_)]

    def settle(self) -> bool:
        before = (dict(self.said), set(self.there), set(self.data))
        for id_ in sorted(self.there):
            self.data |= set(self.world.parts[id_].early)
            if id_ not in self.said or self.may_recover(id_):
                self.said.pop(id_, None)
                self.look(id_, self.levels[id_])
            self.copy(id_)
        return before != (self.said, self.there, self.data)

    def copy(self, id_: str) -> None:
        copies = self.world.parts[id_].copies
        if copies and copies[0] in self.data and self.said.get(id_) in ("Ready", "Skipped"):
            self.data.add(copies[1])

    def may_recover(self, id_: str) -> bool:
        """Return whether a node failed because of a node that is ready now, or that was absent and is there now."""
        return any(self.ready(other) or there != (other in self.there) for other, there in self.because[id_].items())

    def look(self, id_: str, level: int) -> None:
        part = self.world.parts[id_]
        failed = [need for need in part.needs if self.failed(need)]
        skipped = [need for need in part.needs if self.skipped(need)]
        absent = self.open(id_)
        if level < FORCE and any(level < CASCADE or self.pending(need) for need in absent):
            return
        if absent or ((failed or skipped) and (part.fate != "tolerates" or level == FORCE)):
            if level == FORCE:
                message = f"dependency cycle detected: {self.circles[id_]}"
            elif absent:
                message = f"dependency not found: {', '.join(absent)}"
            elif failed:
                message = f"dependencies failed: {', '.join(failed)}"
            else:
                message = f"dependencies skipped: {', '.join(skipped)}"
            self.end(id_, f"Failed: {message}", [*failed, *skipped, *absent])
        elif part.fate == "raises":
            self.end(id_, f"Failed: {id_} is broken")
        elif part.fate == "fails" or (part.fate == "heals" and id_ not in self.changed):
            self.end(id_, f"Failed: {id_} has failed")
        else:
            self.end(id_, "Skipped" if part.fate == "skips" else "Ready")
            self.data |= set(part.gives)
            self.there |= set(part.makes)

    def end(self, id_: str, text: str, because: Iterable[str] = ()) -> None:
        self.said[id_] = text
        self.because[id_] = {other: other in self.there for other in because}
        self.levels[id_] = 0

    def escalate(self) -> bool:
        waiting = sorted(filter(self.pending, self.there))
        leaves = [id_ for id_ in waiting if not any(map(self.pending, self.open(id_)))]
        raised = leaves or [id_ for id_ in waiting if self.is_in_a_circle_without_a_way_out(id_)]
        for id_ in raised:
            self.levels[id_] = CASCADE if leaves else FORCE
            self.level = max(self.level, self.levels[id_])
            if not leaves:
                self.circles[id_] = " → ".join(self.shortest_circle(id_))
        return bool(raised)

    def reach(self, id_: str) -> set[str]:
        found: set[str] = set()
        edge = {id_}
        while edge:
            edge = {need for at in edge for need in self.open(at) if self.pending(need)} - found
            found |= edge
        return found

    def is_in_a_circle_without_a_way_out(self, id_: str) -> bool:
        return id_ in self.reach(id_) and all(id_ in self.reach(other) for other in self.reach(id_))

    def shortest_circle(self, id_: str) -> tuple[str, ...]:
        def ways(way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
            for need in filter(self.pending, self.open(way[-1])):
                if need == id_:
                    yield (*way, need)
                elif need not in way:
                    yield from ways((*way, need))

        return min(ways((id_,)), key=lambda way: (len(way), way))


def outcome_of(world: World, pace: Pace) -> tuple[Inhabitants, Result, dict[str, str]]:
    """Run a world. Returns its result."""

    async def run() -> tuple[Inhabitants, Result]:
        inhabitants = Inhabitants(world, pace)
        return inhabitants, await inhabitants.run()

    inhabitants, result = asyncio.run(run())
    return inhabitants, result, said(inhabitants.scheduler)
