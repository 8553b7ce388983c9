"""Reconcilers that fail: pauses, conflicts, hanging, and being cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from typing import Any

import msgspec
import pytest

from rota.api import Condition, Workspace
from rota.api.meta import empty_status
from rota.client import Client, Key, LocalBackend
from rota.engine import DONE, Context, Failed, Outcome, Promise, RequeueAfter
from rota.engine.pacing import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, CONFLICT_SECONDS_MAX
from rota.registry import ApiError
from tests.engine_loop.loops import SLACK_SECONDS, Noting, NotingKeys, World

CONFLICTS = 40
"""In a row: more than are likely, and than anybody would want to wait for."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("rota.engine.loop").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("rota.engine.loop").setLevel(logging.NOTSET)


def conflict() -> ApiError:
    return ApiError(409, "Conflict", "the object has been modified")


def failing(*errors: BaseException) -> Any:
    """A body that raises each of these, and then rests."""
    left = list(errors)

    async def body(context: Context, obj: object) -> Outcome:
        if left:
            raise left.pop(0)
        return DONE

    return body


def due_in(world: World) -> float:
    node = world.node("Workspace", "w")
    assert node is not None and node.state == "sleeping" and node.due is not None
    return node.due - world.clock.now()


# Pauses.


async def test_errors_back_off_exponentially_with_jitter_and_a_cap(world: World) -> None:
    looking = Noting(Workspace, failing(*[ValueError("boom")] * 20))
    await world.workspace("w")
    await world.serve(looking)
    pauses = []
    for _ in range(20):
        pauses.append(due_in(world))
        await world.pass_time(pauses[-1] + SLACK_SECONDS)
    for i, pause in enumerate(pauses):
        longest = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2**i)
        assert longest / 2 - SLACK_SECONDS <= pause <= longest + SLACK_SECONDS, (i, pauses)
    assert len({pause / min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2**i) for i, pause in enumerate(pauses)}) > 10
    assert looking.runs == {"w": 21} and world.node("Workspace", "w") is None


async def test_a_success_makes_the_next_pause_short_again(world: World) -> None:
    looking = Noting(Workspace, failing(*[ValueError("boom")] * 10))
    await world.workspace("w")
    await world.serve(looking)
    await world.pass_time(600, step=1)
    assert world.node("Workspace", "w") is None
    looking.do = failing(ValueError("again"))
    await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
    await world.rest()
    assert due_in(world) <= BACKOFF_SECONDS_FIRST


async def test_an_object_that_is_gone_takes_its_failures_with_it(world: World) -> None:
    looking = Noting(Workspace, failing(*[ValueError("boom")] * 10))
    await world.workspace("w")
    await world.serve(looking)
    await world.pass_time(60, step=1)
    await world.delete("Workspace", "w")
    await world.rest()
    looking.do = failing(ValueError("boom"))
    await world.workspace("w")
    await world.rest()
    assert due_in(world) <= BACKOFF_SECONDS_FIRST


async def test_an_error_is_told_in_the_view_and_as_an_event(world: World) -> None:
    await world.workspace("w")
    await world.serve(Noting(Workspace, failing(*[ValueError("boom")] * 2)))
    node = world.node("Workspace", "w")
    assert node is not None and isinstance(node.outcome, RequeueAfter)
    assert (node.outcome.reason, node.outcome.message) == ("ReconcileFailed", "boom")
    assert world.events.said[0] == ("Workspace/w", "Warning", "ReconcileFailed", "boom")


async def test_what_fails_does_not_hold_up_others(world: World) -> None:
    async def body(context: Context, obj: Workspace) -> Outcome:
        if obj.metadata.name == "bad":
            raise ValueError("boom")
        return DONE

    looking = Noting(Workspace, body, concurrency=1)
    await world.workspace("bad")
    await world.workspace("good")
    await world.serve(looking)
    assert looking.runs["good"] == 1


async def test_to_the_fixpoint_an_error_is_the_end_of_a_node(planned: World) -> None:
    looking = Noting(Workspace, failing(ValueError("boom")))
    await planned.workspace("w")
    result = await planned.run(looking)
    node = planned.node("Workspace", "w")
    assert node is not None and isinstance(node.outcome, Failed)
    assert (node.state, node.outcome.reason, node.outcome.message) == ("failed", "ReconcileFailed", "boom")
    assert looking.runs == {"w": 1} and result.level == 0


# Conflicts.


async def test_a_conflict_is_tried_again_at_once_with_what_is_on_the_server(world: World) -> None:
    looking = Noting(Workspace)

    async def body(context: Context, obj: Workspace) -> Outcome:
        if len(looking.seen) == 1:
            await world.patch("Workspace", "w", {"spec": {"ref": "main"}})
        status = context.condition(obj, empty_status(Workspace), Condition(type="Ready", status="True", reason="R"))
        await context.write_status(obj, status)
        return DONE

    looking.do = body
    await world.workspace("w")
    await world.serve(looking)
    assert [obj.spec.ref for obj in looking.seen[:2]] == [None, "main"]
    written = await world.get("Workspace", "w")
    assert written.status.condition("Ready").observed_generation == written.metadata.generation == 2
    assert world.clock.now() == 0 and not world.events.said


@pytest.mark.parametrize("count", [1, 5, 6, CONFLICTS])
async def test_conflicts_never_back_off(world: World, count: int) -> None:
    looking = Noting(Workspace, failing(*[conflict() for _ in range(count)]))
    await world.workspace("w")
    await world.serve(looking)
    assert looking.runs == {"w": count + 1} and world.node("Workspace", "w") is None
    assert not world.events.said, "a conflict is nothing that a person should notice"


async def test_a_conflict_of_a_reconciler_of_no_kind_never_backs_off(world: World) -> None:
    keys = NotingKeys("keys", seeds=(Key("", "all"),), do=failing(*[conflict() for _ in range(3)]))
    await world.serve(keys)
    assert len(keys.seen) == 4 and world.loop.view.get("keys//all") is None


async def test_a_conflict_after_errors_is_still_tried_at_once(world: World) -> None:
    errors = [ValueError("boom"), ValueError("boom"), ValueError("boom"), *[conflict() for _ in range(3)]]
    looking = Noting(Workspace, failing(*errors))
    await world.workspace("w")
    await world.serve(looking)
    for _ in range(3):
        await world.pass_time(due_in(world) + SLACK_SECONDS)
    assert looking.runs == {"w": 7} and world.node("Workspace", "w") is None


class Elsewhere(LocalBackend):
    """A registry as that of another process."""

    registry = None


async def test_where_the_server_is_elsewhere_conflicts_in_a_row_wait_for_news_or_a_moment(world: World) -> None:
    """The cache may be behind the server: until it is not, every read would be followed by a refused write."""
    keys = NotingKeys("keys", seeds=(Key("", "all"),), do=failing(*[conflict() for _ in range(CONFLICTS)]))
    await world.serve(keys, client=Client(Elsewhere(world.registry)))
    assert len(keys.seen) == 2, "once more at once"
    for _ in range(5):
        node = world.loop.view.get("keys//all")
        assert node is not None and node.due is not None
        await world.pass_time(node.due - world.clock.now() + SLACK_SECONDS)
    assert len(keys.seen) == 7
    world.loop.scheduler.arrive("keys//all")
    await world.rest()
    assert len(keys.seen) == 8, "news ends the pause"
    await world.pass_time(CONFLICTS * CONFLICT_SECONDS_MAX, step=CONFLICT_SECONDS_MAX / 10)
    assert world.loop.view.get("keys//all") is None and not world.events.said


async def test_that_an_object_is_gone_before_its_news_is_no_error(world: World) -> None:
    ends: list[Outcome] = []

    class Ending(Noting[Workspace]):
        def reconcile(self, context: Context, key: Key) -> Promise:
            promise = super().reconcile(context, key)
            return promise if isinstance(promise, Outcome) else self._note(promise)

        async def _note(self, promise: Awaitable[Outcome]) -> Outcome:
            ends.append(await promise)
            return ends[-1]

    looking = Ending(Workspace)

    async def body(context: Context, obj: Workspace) -> Outcome:
        await world.client.delete(Workspace, "w")
        # As a cache that is behind shows it.
        await context.client.update(msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, ref="x")))
        return DONE

    looking.do = body
    await world.workspace("w")
    await world.serve(looking)
    assert looking.runs == {"w": 1} and ends == [DONE]
    assert world.node("Workspace", "w") is None and not world.events.said


async def test_that_something_else_is_not_there_is_an_error(world: World) -> None:
    async def body(context: Context, obj: Workspace) -> Outcome:
        await context.client.get(Workspace, "absent")
        return DONE

    await world.workspace("w")
    await world.serve(Noting(Workspace, body))
    assert world.events.reasons("Workspace/w") == ["ReconcileFailed"]


async def test_of_a_burst_of_conflicting_writers_none_is_wedged(world: World) -> None:
    """Everybody writes the one object that all of them share, with what they have read before the others wrote."""
    writers = 12
    reads: list[str] = []

    async def body(context: Context, obj: Workspace) -> Outcome:
        name = obj.metadata.name
        if name == "shared":
            return DONE
        shared: Any = await context.client.get(Workspace, "shared")
        if name in shared.metadata.annotations:
            return DONE
        reads.append(name)
        if len(reads) <= writers:
            await world.until(lambda: len(reads) >= writers)
        marked = msgspec.structs.replace(shared.metadata, annotations={**shared.metadata.annotations, name: "1"})
        await context.client.update(msgspec.structs.replace(shared, metadata=marked))
        return DONE

    await world.workspace("shared")
    for i in range(writers):
        await world.workspace(f"w{i}")
    await world.serve(Noting(Workspace, body, concurrency=writers))
    assert len((await world.get("Workspace", "shared")).metadata.annotations) == writers
    assert world.clock.now() == 0 and len(world.loop.view) == 0


async def test_an_object_that_is_gone_at_a_conflict_is_over(world: World) -> None:
    async def body(context: Context, obj: Workspace) -> Outcome:
        await world.delete("Workspace", "w")
        raise conflict()

    looking = Noting(Workspace, body)
    await world.workspace("w")
    await world.serve(looking)
    assert looking.runs == {"w": 1} and world.node("Workspace", "w") is None and not world.events.said


@pytest.mark.parametrize(
    "error",
    [
        ApiError(409, "AlreadyExists", "it exists"),
        ApiError(422, "Invalid", "it is invalid"),
        ApiError(404, "NotFound", "it is not there"),
        ApiError(500, "InternalError", "broken"),
        ConnectionRefusedError("refused"),
        TimeoutError("late"),
    ],
    ids=lambda error: getattr(error, "reason", type(error).__name__),
)
async def test_other_refusals_are_ordinary_errors(world: World, error: Exception) -> None:
    looking = Noting(Workspace, failing(error))
    await world.workspace("w")
    await world.serve(looking)
    assert looking.runs == {"w": 1} and due_in(world) <= BACKOFF_SECONDS_FIRST
    await world.pass_time(BACKOFF_SECONDS_FIRST + SLACK_SECONDS)
    assert looking.runs == {"w": 2} and world.node("Workspace", "w") is None


# Those that do not return.


async def test_one_that_hangs_is_timed_out_and_tried_again(world: World) -> None:
    cancelled: list[str] = []

    async def body(context: Context, obj: Workspace) -> Outcome:
        if len(looking.seen) > 1:
            return DONE
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(obj.metadata.name)
        raise AssertionError

    looking = Noting(Workspace, body, timeout_seconds=60.0)
    await world.workspace("w")
    await world.prepare(looking)
    world.serving = asyncio.create_task(world.loop.serve())
    await world.until(lambda: looking.seen)
    world.clock.advance(59.0)
    assert cancelled == []
    world.clock.advance(1.0)
    await world.until(lambda: cancelled)
    await world.rest()
    assert world.events.reasons("Workspace/w") == ["ReconcileFailed"]
    await world.pass_time(due_in(world) + SLACK_SECONDS)
    assert looking.runs == {"w": 2} and world.node("Workspace", "w") is None


class Odd(BaseException):
    """No Exception, as some libraries raise."""


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Odd("odd"), GeneratorExit()], ids=repr)
async def test_one_that_raises_what_is_no_exception_is_tried_again(world: World, error: BaseException) -> None:
    looking = Noting(Workspace, failing(error))
    await world.workspace("w")
    await world.serve(looking)
    assert looking.runs == {"w": 1} and due_in(world) <= BACKOFF_SECONDS_FIRST
    await world.pass_time(BACKOFF_SECONDS_FIRST + SLACK_SECONDS)
    assert looking.runs == {"w": 2}


async def test_one_whose_inner_task_was_cancelled_is_tried_again(world: World) -> None:
    async def body(context: Context, obj: Workspace) -> Outcome:
        if len(looking.seen) == 1:
            inner = asyncio.create_task(asyncio.Event().wait())
            inner.cancel()
            await inner
        return DONE

    looking = Noting(Workspace, body)
    await world.workspace("w")
    await world.serve(looking)
    await world.pass_time(BACKOFF_SECONDS_FIRST + SLACK_SECONDS)
    assert looking.runs == {"w": 2} and world.node("Workspace", "w") is None


async def test_one_that_answers_with_no_outcome_is_tried_again(world: World) -> None:
    async def body(context: Context, obj: Workspace) -> Any:
        return None if len(looking.seen) == 1 else DONE

    looking = Noting(Workspace, body)
    await world.workspace("w")
    await world.serve(looking)
    assert due_in(world) <= BACKOFF_SECONDS_FIRST
    await world.pass_time(BACKOFF_SECONDS_FIRST + SLACK_SECONDS)
    assert looking.runs == {"w": 2}


class Quick(Noting[Workspace]):
    """One whose quick look raises at first."""

    looks = 0

    def reconcile(self, context: Context, key: Key) -> Promise:
        self.looks += 1
        if self.looks == 1:
            raise ValueError("boom")
        return DONE


async def test_one_whose_quick_look_raises_is_tried_again(world: World) -> None:
    looking = Quick(Workspace)
    await world.workspace("w")
    await world.serve(looking)
    assert due_in(world) <= BACKOFF_SECONDS_FIRST
    await world.pass_time(BACKOFF_SECONDS_FIRST + SLACK_SECONDS)
    assert looking.looks == 2
    assert world.events.reasons("Workspace/w") == ["ReconcileFailed"]
