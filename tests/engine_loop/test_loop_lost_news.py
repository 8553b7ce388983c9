"""News that never came: what waits is looked at again all the same, and nothing is wedged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from rota.api import Kind, Object, Secret, Task, Workspace
from rota.client import Key, Update
from rota.engine import DONE, Context, Objects, Outcome
from rota.engine.objects import Listener
from rota.engine.pacing import JITTER, SLOWEST_SECONDS, TIERS, relook_seconds
from tests.engine_loop.loops import SLACK_SECONDS, Noting, World, says_ready

LONG_SECONDS = 2 * SLOWEST_SECONDS * (1 + JITTER)


class Lossy:
    """Objects of which some news is swallowed."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.loses: Callable[[Kind, Update[Any]], bool] = lambda kind, update: False
        self.lost = 0

    async def __aenter__(self) -> Lossy:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the wrapped objects open: the test closes them."""

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._objects.find(kind, namespace, name)

    def has(self, kind: Kind, namespace: str, name: str) -> bool:
        return self._objects.has(kind, namespace, name)

    def id_of(self, kind: Kind, key: Key) -> str:
        return self._objects.id_of(kind, key)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return self._objects.list(kind, namespace)

    def listen(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        return self._objects.listen(kinds, self._losing(listener))

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        return await self._objects.follow(kinds, self._losing(listener))

    def _losing(self, listener: Listener) -> Listener:
        def told(kind: Kind, update: Update[Any]) -> None:
            if self.loses(kind, update):
                self.lost += 1
            else:
                listener(kind, update)

        return told


async def gate(context: Context, obj: Any) -> Outcome:
    return context.held_up(obj) or DONE


async def lossy(world: World, *which: Any) -> Lossy:
    made: list[Lossy] = []

    def wrap(objects: Objects) -> Lossy:
        made.append(Lossy(objects))
        return made[0]

    await world.serve(*which, seen=wrap)
    return made[0]


def of(kind: type[Object]) -> Callable[[Kind, Update[Any]], bool]:
    return lambda about, update: about is kind.api


async def test_one_that_waits_for_what_came_unheard_goes_on_within_seconds(world: World) -> None:
    await world.workspace("w", secret="s")
    seen = await lossy(world, Noting(Workspace, gate))
    assert world.node("Workspace", "w") is not None
    seen.loses = of(Secret)
    await world.create("Secret", "s")
    await world.rest()
    assert seen.lost == 1 and world.node("Workspace", "w") is not None
    await world.pass_time(TIERS[0][1] * (1 + JITTER) + 0.1, step=0.1)
    assert world.node("Workspace", "w") is None


async def test_one_that_has_waited_for_long_goes_on_too(world: World) -> None:
    await world.workspace("w", secret="s")
    seen = await lossy(world, Noting(Workspace, gate))
    await world.pass_time(1200, step=1)
    seen.loses = of(Secret)
    await world.create("Secret", "s")
    await world.pass_time(SLOWEST_SECONDS * (1 + JITTER) + 10, step=10)
    assert world.node("Workspace", "w") is None


async def test_looking_again_grows_rarer(world: World) -> None:
    looking = Noting(Workspace, gate)
    await world.workspace("w", secret="s")
    await world.serve(looking)
    times = [0.0]
    while times[-1] < 3600:
        node = world.node("Workspace", "w")
        assert node is not None and node.due is not None
        await world.pass_time(node.due - world.clock.now() + SLACK_SECONDS)
        times.append(world.clock.now())
    assert looking.runs["w"] == len(times)
    for earlier, later in pairwise(times):
        pause = relook_seconds(earlier)
        assert pause * (1 - JITTER) <= later - earlier <= pause * (1 + JITTER) + 2 * SLACK_SECONDS


async def test_a_dependency_that_became_ready_unheard(world: World) -> None:
    await world.task("a")
    await world.task("b", "a")
    await world.create("Function", "f", {"entrypoint": "a:b", "source": {"inline": "x"}})
    seen = await lossy(world, Noting(Task, gate))
    node = world.node("Task", "b")
    assert node is not None and node.on == (Task.api.key("default", "a"),)
    seen.loses = of(Task)
    await world.set_status("Task", "a", phase="Succeeded")
    await world.pass_time(LONG_SECONDS, step=5)
    assert world.node("Task", "b") is None


async def test_one_that_failed_because_of_what_recovered_unheard(world: World) -> None:
    """Failed is not for ever while what was to blame may be made anew."""
    looking = Noting(Task, gate)
    await world.create("Function", "f", {"entrypoint": "a:b", "source": {"inline": "x"}})
    await world.task("a")
    await world.set_status("Task", "a", phase="Failed")
    await world.task("b", "a")
    seen = await lossy(world, looking)
    node = world.node("Task", "b")
    assert node is not None and node.state == "failed"
    seen.loses = of(Task)
    await world.delete("Task", "a")
    await world.task("a")
    await world.set_status("Task", "a", phase="Succeeded")
    await world.pass_time(LONG_SECONDS, step=5)
    assert world.node("Task", "b") is None


async def test_one_that_waits_and_was_deleted_unheard_is_forgotten(world: World) -> None:
    await world.workspace("w", secret="s")
    seen = await lossy(world, Noting(Workspace, gate))
    seen.loses = of(Workspace)
    await world.delete("Workspace", "w")
    await world.pass_time(LONG_SECONDS, step=5)
    assert len(world.loop.view) == 0


async def test_one_that_waits_and_was_changed_unheard_is_seen_as_it_is(world: World) -> None:
    looking = Noting(Workspace, gate)
    await world.workspace("w", secret="s")
    seen = await lossy(world, looking)
    seen.loses = of(Workspace)
    await world.patch("Workspace", "w", {"spec": {"secretRef": None}})
    await world.pass_time(LONG_SECONDS, step=5)
    assert world.node("Workspace", "w") is None and looking.seen[-1].spec.secret_ref is None


async def test_an_echo_that_was_lost_does_not_hide_what_comes_next(world: World) -> None:
    looking = Noting(Workspace, says_ready)
    seen = await lossy(world, looking)
    await world.workspace("w")
    seen.loses = lambda kind, update: update.new is not None and update.new.status is not None
    await world.rest()
    assert seen.lost <= 1
    await world.until(lambda: seen.lost)
    seen.loses = lambda kind, update: False
    await world.say_ready("Workspace", "w", "False", "Damaged")
    await world.rest()
    assert (await world.condition("Workspace", "w", "Ready")) == ("True", "Ready", "")
