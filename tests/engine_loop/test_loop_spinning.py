"""A node that does not come to rest is slowed down, says so, and stops saying so when it has."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from rota.api import Condition, Kind, Object, Secret, Workspace
from rota.api.meta import empty_status
from rota.client import Client, Key, Operation
from rota.engine import DONE, Blocked, Context, Objects, Outcome, Promise, RequeueAfter
from rota.engine.loop import SPINNING
from rota.engine.pacing import SPIN_PAUSE_SECONDS_MAX, SPIN_RUNS_MAX
from rota.registry import ApiError
from tests.engine_loop.loops import Noting, NotingKeys, World

NUMBERS = count()
LONG_SECONDS = 4 * SPIN_PAUSE_SECONDS_MAX


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("rota.engine.loop").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("rota.engine.loop").setLevel(logging.NOTSET)


async def annotates(context: Context, obj: Workspace) -> Outcome:
    """Changes its own object in every run."""
    await context.client.patch(
        Workspace, obj.metadata.name, {"metadata": {"annotations": {"number": str(next(NUMBERS))}}}
    )
    return DONE


async def says(context: Context, obj: Workspace) -> Outcome:
    status = obj.status or empty_status(Workspace)
    await context.write_status(
        obj, context.condition(obj, status, Condition(type="Ready", status="True", reason="Ready"))
    )
    return DONE


async def says_and_annotates(context: Context, obj: Workspace) -> Outcome:
    await says(context, obj)
    return await annotates(context, obj)


async def rests(context: Context, obj: Workspace) -> Outcome:
    return DONE


async def spinning(world: World, looking: Noting[Workspace]) -> None:
    """An object that spins."""
    looking.do = says_and_annotates
    await world.workspace("w")
    await world.serve(looking)
    assert (await world.condition("Workspace", "w", SPINNING) or "")[0:1] == ("True",)


async def test_one_that_spins_is_slowed_down(world: World) -> None:
    looking = Noting(Workspace, annotates)
    await world.workspace("w")
    await world.serve(looking)
    assert looking.runs["w"] == SPIN_RUNS_MAX
    node = world.node("Workspace", "w")
    assert node is not None and node.state == "sleeping" and isinstance(node.outcome, RequeueAfter)
    assert node.outcome.reason == SPINNING
    await world.pass_time(600, step=0.5)
    least = 600 / SPIN_PAUSE_SECONDS_MAX
    assert least - 1 <= looking.runs["w"] - SPIN_RUNS_MAX <= 2 * least, "still looked at, but seldom"


async def test_news_does_not_let_it_go_faster(world: World) -> None:
    looking = Noting(Workspace, annotates)
    await world.workspace("w")
    await world.serve(looking)
    await world.pass_time(60, step=0.5)
    runs = looking.runs["w"]
    for i in range(20):
        await world.patch("Workspace", "w", {"spec": {"ref": f"r{i}"}})
        await world.rest()
    assert looking.runs["w"] <= runs + 1


async def test_others_of_its_kind_are_not_slowed_down(world: World) -> None:
    async def body(context: Context, obj: Workspace) -> Outcome:
        return await annotates(context, obj) if obj.metadata.name == "w" else DONE

    looking = Noting(Workspace, body, concurrency=1)
    await world.workspace("w")
    await world.serve(looking)
    await world.workspace("calm")
    await world.rest()
    assert looking.runs["calm"] == 1 and world.node("Workspace", "calm") is None


async def test_one_that_spins_says_so_in_a_condition_and_an_event_once(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace)
    await spinning(world, looking)
    await world.pass_time(120, step=0.5)
    status, reason, message = await world.condition("Workspace", "w", SPINNING) or ("", "", "")
    assert (status, reason) == ("True", "RateLimited") and "slowed down" in message
    assert world.events.reasons("Workspace/w") == [SPINNING]


async def test_one_without_a_status_says_so_too(world: World) -> None:
    looking = Noting(Workspace, annotates)
    await world.workspace("w")
    await world.serve(looking)
    assert world.events.reasons("Workspace/w") == [SPINNING]
    assert (await world.condition("Workspace", "w", SPINNING) or "")[0:1] == ("True",)


async def test_the_condition_goes_when_it_has_come_to_rest(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace)
    await spinning(world, looking)
    looking.do = says
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert await world.condition("Workspace", "w", SPINNING) is None
    assert await world.condition("Workspace", "w", "Ready") is not None
    assert world.node("Workspace", "w") is None
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    runs = looking.runs["w"]
    await world.rest()
    assert looking.runs["w"] == runs + 1, "it goes at once again"


async def test_the_condition_goes_even_if_it_comes_to_rest_by_waiting(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace)
    await spinning(world, looking)

    async def waits(context: Context, obj: Workspace) -> Outcome:
        return Blocked((Secret.api.key("default", "s"),), "DependencyNotFound", "not there")

    looking.do = waits
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert await world.condition("Workspace", "w", SPINNING) is None
    node = world.node("Workspace", "w")
    assert node is not None and node.state == "parked"


async def test_one_that_only_looks_now_and_then_is_no_longer_slowed_down(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace)
    await spinning(world, looking)

    async def now_and_then(context: Context, obj: Workspace) -> Outcome:
        return RequeueAfter(5.0)

    looking.do = now_and_then
    await world.pass_time(LONG_SECONDS, step=0.5)
    runs = looking.runs["w"]
    await world.pass_time(60, step=0.5)
    assert looking.runs["w"] - runs >= 11


class Behind:
    """Objects of which one is known as it was."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.list, self.listen = objects.list, objects.listen
        self.known: Workspace | None = None

    async def __aenter__(self) -> Behind:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the wrapped objects open: the test closes them."""

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self.known or self._objects.find(kind, namespace, name)


async def test_the_condition_goes_though_the_last_run_has_just_written(world: World) -> None:
    """For a moment, the cache then has an older object than the server."""
    looking: Noting[Workspace] = Noting(Workspace, says_and_annotates)
    await world.workspace("w")
    made: list[Behind] = []

    def behind(objects: Objects) -> Behind:
        made.append(Behind(objects))
        return made[0]

    await world.serve(looking, seen=behind)

    async def flips(context: Context, obj: Workspace) -> Outcome:
        current: Any = await context.client.get(Workspace, "w")
        ready = current.status.condition("Ready")
        other = Condition(type="Ready", status="False" if ready.status == "True" else "True", reason="Flipped")
        await context.write_status(current, context.condition(current, current.status, other))
        made[0].known = current
        return DONE

    looking.do = flips
    for _ in range(int(LONG_SECONDS)):
        await world.pass_time(1)
        made[0].known = None
    assert await world.condition("Workspace", "w", SPINNING) is None


class Refusing(Client):
    """A server that refuses some writes of a status."""

    def __init__(self, client: Client) -> None:
        super().__init__(client.backend, manager="controllers", namespace="default")
        self.refusals = 0

    async def update_status(self, obj: Any) -> Any:
        self._refuse()
        return await super().update_status(obj)

    async def batch(self, operations: Sequence[Operation], *, typed: bool = False) -> Sequence[Any]:
        self._refuse()
        return await super().batch(operations, typed=typed)

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ApiError(503, "ServiceUnavailable", "not now")


async def test_the_condition_goes_though_the_server_was_away_when_it_came_to_rest(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace, says_and_annotates)
    client = Refusing(world.client)
    await world.workspace("w")
    await world.serve(looking, client=client)
    looking.do = rests
    client.refusals = 1
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert client.refusals == 0
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert await world.condition("Workspace", "w", SPINNING) is None


async def test_the_condition_comes_though_the_server_was_away_when_it_began_to_spin(world: World) -> None:
    looking = Noting(Workspace, annotates)
    client = Refusing(world.client)
    await world.workspace("w")
    await world.say_ready("Workspace", "w")
    client.refusals = 1
    await world.serve(looking, client=client)
    assert client.refusals == 0
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert (await world.condition("Workspace", "w", SPINNING) or "")[0:1] == ("True",)


class Quick(Noting[Workspace]):
    """Once it is calm, its outcome is plain without waiting for anything."""

    calm = False

    def reconcile(self, context: Context, key: Key) -> Promise:
        return DONE if self.calm else super().reconcile(context, key)


async def test_the_condition_goes_even_if_what_it_comes_to_is_plain_at_once(world: World) -> None:
    looking = Quick(Workspace)
    await spinning(world, looking)
    looking.calm = True
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert await world.condition("Workspace", "w", SPINNING) is None


async def test_a_condition_that_an_earlier_process_left_goes(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace)
    await spinning(world, looking)
    await world.stop()
    after = Noting(Workspace, says)
    await world.serve(after)
    await world.pass_time(LONG_SECONDS, step=0.5)
    assert await world.condition("Workspace", "w", SPINNING) is None


async def test_one_that_is_deleted_while_it_spins_is_forgotten(world: World) -> None:
    looking: Noting[Workspace] = Noting(Workspace)
    await spinning(world, looking)
    await world.delete("Workspace", "w")
    await world.rest()
    assert len(world.loop.view) == 0
    looking.do = rests
    runs = looking.runs["w"]
    await world.workspace("w")
    await world.rest()
    assert looking.runs["w"] == runs + 1


async def test_a_reconciler_of_no_kind_that_spins_is_slowed_down_too(world: World) -> None:
    async def again(context: Context, key: Key) -> Outcome:
        return RequeueAfter(0.0)

    keys = NotingKeys("keys", seeds=(Key("", "all"),), do=again)
    await world.serve(keys)
    await world.until(lambda: (node := world.loop.view.get("keys//all")) is not None and node.state == "sleeping")
    assert len(keys.seen) <= SPIN_RUNS_MAX


async def test_two_that_wake_each_other_are_slowed_down(world: World) -> None:
    async def pokes(context: Context, obj: Workspace) -> Outcome:
        other = "b" if obj.metadata.name == "a" else "a"
        await context.client.patch(Workspace, other, {"metadata": {"annotations": {"number": str(next(NUMBERS))}}})
        return DONE

    looking = Noting(Workspace, pokes)
    await world.workspace("a")
    await world.workspace("b")
    await world.serve(looking)
    assert all(runs <= SPIN_RUNS_MAX for runs in looking.runs.values())
    assert {node.state for node in world.loop.view} == {"sleeping"}
