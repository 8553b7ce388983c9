"""What becomes of the node of an object that is gone: it is tidied up after, and then forgotten."""

from __future__ import annotations

from typing import Any

from rota.api import Workspace
from rota.client import Key
from rota.engine import Context
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

    def gone_at_once(self, context: Context, key: Key) -> bool:
        if self.is_at_once:
            self._tidy(context, key)
        return self.is_at_once

    async def gone(self, context: Context, key: Key) -> None:
        if self.on_gone is not None:
            await self.on_gone()
        self._tidy(context, key)

    def _tidy(self, context: Context, key: Key) -> None:
        self.when.append(context.clock.now())
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        self.tidied.append(key.name)


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

    def is_settled(self, obj: Workspace) -> bool:
        return "settled" in obj.metadata.labels


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
