"""The node of a deleted object: the reconciler cleans up, and the node is forgotten."""

from __future__ import annotations

from typing import Any

from rota.api import Object, Workspace
from rota.client import Key
from rota.engine import DONE, Context, Outcome, Promise
from rota.engine.pacing import BACKOFF_SECONDS_FIRST
from rota.server.tables import Tables
from tests.engine_loop.loops import REPO, Noting, World

MANY = 50


class Tidying(Noting[Workspace]):
    """Notes after whom it has tidied up, and fails as often as it is told."""

    def __init__(self, at_once: bool) -> None:
        super().__init__(Workspace)
        self.is_at_once = at_once
        self.failures = 0
        self.tidied: list[str] = []
        self.when: list[float] = []
        self.on_gone: Any = None

    def gone(self, context: Context, key: Key) -> Promise:
        return self._tidy(context, key) if self.is_at_once else self._tidy_later(context, key)

    async def _tidy_later(self, context: Context, key: Key) -> Outcome:
        if self.on_gone is not None:
            await self.on_gone()
        return self._tidy(context, key)

    def _tidy(self, context: Context, key: Key) -> Outcome:
        self.when.append(context.clock.now())
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        self.tidied.append(key.name)
        return DONE


def sizes(world: World) -> dict[str, int]:
    found = Tables()
    found.add(world.loop)
    return {name: size for name, size in found.sizes().items() if size and name.startswith("engine.")}


async def test_nothing_is_kept_of_objects_that_are_gone(world: World) -> None:
    for at_once in (True, False):
        looking = Tidying(at_once)
        await world.workspace("first")
        await world.serve(looking)
        await world.delete("Workspace", "first")
        await world.rest()
        before = sizes(world)
        for number in range(MANY):
            await world.workspace(f"w-{number}")
        await world.rest()
        for number in range(MANY):
            await world.delete("Workspace", f"w-{number}")
        await world.rest()
        assert sorted(looking.tidied) == ["first", *sorted(f"w-{number}" for number in range(MANY))]
        assert sizes(world) == before
        await world.stop()


async def test_tidying_up_that_fails_is_tried_again_less_and_less_often_and_then_forgotten(world: World) -> None:
    for at_once in (True, False):
        looking = Tidying(at_once)
        await world.workspace("w")
        await world.serve(looking)
        looking.failures = 4
        await world.delete("Workspace", "w")
        await world.pass_time(120, step=0.05)
        assert looking.tidied == ["w"]
        pauses = [after - before for before, after in zip(looking.when, looking.when[1:], strict=False)]
        assert len(pauses) == 4 and pauses[-1] > 2 * pauses[0] and pauses[0] <= 2 * BACKOFF_SECONDS_FIRST
        assert world.node("Workspace", "w") is None
        assert "engine.pacing.Backoff.failures" not in sizes(world)
        await world.stop()


async def test_an_object_that_comes_back_while_it_is_tidied_up_after_is_looked_at(world: World) -> None:
    looking = Tidying(at_once=False)
    await world.workspace("w")
    await world.serve(looking)
    looked = looking.runs["w"]

    async def comes_back() -> None:
        looking.on_gone = None
        await world.workspace("w")

    looking.on_gone = comes_back
    await world.delete("Workspace", "w")
    await world.rest()
    assert looking.tidied == ["w"] and looking.runs["w"] == looked + 1


class Sparing(Tidying):
    """Has nothing to do about new objects that say so."""

    def wants(self, old: Object | None, new: Object | None) -> bool:
        return new is not None and "settled" not in new.metadata.labels


async def test_a_new_object_that_needs_nothing_is_run_for_when_it_changes_and_tidied_up_after(world: World) -> None:
    looking = Sparing(at_once=True)
    await world.serve(looking)
    await world.workspace("plain")
    await world.create("Workspace", "quiet", REPO, labels={"settled": "yes"})
    await world.rest()
    assert looking.runs == {"plain": 1}
    await world.patch("Workspace", "quiet", {"metadata": {"labels": {"other": "x"}}})
    await world.rest()
    assert looking.runs == {"plain": 1, "quiet": 1}
    await world.create("Workspace", "gone", REPO, labels={"settled": "yes"})
    await world.delete("Workspace", "gone")
    await world.rest()
    assert "gone" in looking.tidied and "gone" not in looking.runs
