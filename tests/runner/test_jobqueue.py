"""The queue of jobs of a runner."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from rota.runtime.runner import jobqueue as module
from rota.runtime.runner import journal
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Jobs
from tests.runner.queues import SECONDS_MAX, Queue, with_queue


@with_queue
async def test_jobs_run_in_the_order_in_which_they_were_assigned(queue: Queue) -> None:
    for id_ in ("b", "a", "c"):
        queue.assign(id_)
    assert [one.id for one in await queue.ended("a", "b", "c")] == ["b", "a", "c"] == queue.effects()


@with_queue
async def test_the_next_job_begins_without_an_acknowledgement_of_the_last(queue: Queue) -> None:
    queue.assign("a")
    queue.assign("b")
    await queue.ended("b")
    assert [one.id for one in queue.jobs.pending()] == ["a", "b"] and queue.jobs.holder == "a"
    queue.jobs.acknowledge("a")
    queue.jobs.acknowledge("b")
    assert queue.jobs.pending() == [] and queue.jobs.holder == ""


@with_queue
async def test_a_job_that_is_assigned_again_runs_once(queue: Queue) -> None:
    queue.stuck("a")
    queue.assign("b")
    for id_ in ("a", "b"):
        queue.assign(id_)
    queue.let_go()
    await queue.ended("a", "b")
    queue.assign("b")
    queue.jobs.acknowledge("a")
    queue.assign("a")
    queue.assign("c")
    await queue.ended("c")
    assert queue.effects() == ["a", "b", "c"] and queue.returned() == []


@with_queue
async def test_a_job_beyond_the_bound_is_returned(queue: Queue) -> None:
    pytest.MonkeyPatch().setattr(module, "JOBS_QUEUED_MAX", 2)
    queue.stuck("a")
    for id_ in ("b", "c", "d"):
        queue.assign(id_)
    assert queue.returned() == ["d"]
    queue.let_go()
    await queue.ended("a", "b", "c")
    assert queue.effects() == ["a", "b", "c"]


@with_queue
async def test_a_job_that_is_withdrawn_before_it_begins_is_returned_and_does_not_run(queue: Queue) -> None:
    queue.stuck("a")
    for id_ in ("b", "c", "d"):
        queue.assign(id_)
    queue.jobs.withdraw(("b", "d"))
    queue.let_go()
    await queue.ended("a", "c")
    assert queue.returned() == ["b", "d"] and queue.effects() == ["a", "c"]


@with_queue
async def test_a_job_that_has_begun_is_not_withdrawn_and_its_end_comes(queue: Queue) -> None:
    queue.stuck("a")
    await queue.until(queue.effects)
    queue.jobs.withdraw(("a", "unknown"))
    queue.let_go()
    [outcome] = await queue.ended("a")
    queue.jobs.withdraw(("a",))
    assert outcome.reason == "Succeeded" and queue.returned() == []


@with_queue
async def test_a_job_that_was_returned_can_be_assigned_again(queue: Queue) -> None:
    queue.stuck("a")
    queue.assign("b")
    queue.jobs.withdraw(("b",))
    queue.assign("b")
    queue.let_go()
    await queue.ended("b")
    assert queue.effects() == ["a", "b"]


@with_queue
async def test_a_queued_job_that_is_cancelled_ends_in_its_order_without_running(queue: Queue) -> None:
    queue.stuck("a")
    for id_ in ("b", "c"):
        queue.assign(id_)
    queue.jobs.cancel("b")
    queue.let_go()
    outcomes = await queue.ended("a", "b", "c")
    assert [(one.id, one.reason) for one in outcomes] == [("a", "Succeeded"), ("b", "Cancelled"), ("c", "Succeeded")]
    assert queue.effects() == ["a", "c"]


@with_queue
async def test_a_cancelled_job_that_is_withdrawn_and_assigned_again_runs(queue: Queue) -> None:
    queue.stuck("a")
    queue.assign("b")
    queue.jobs.cancel("b")
    queue.jobs.withdraw(("b",))
    queue.assign("b")
    queue.let_go()
    assert [one.reason for one in await queue.ended("b")] == ["Succeeded"]


@with_queue
async def test_that_a_long_job_began_is_sent_once_and_of_short_ones_nothing(queue: Queue) -> None:
    pytest.MonkeyPatch().setattr(module, "BEGAN_SECONDS", 60.0)
    queue.assign("short")
    await queue.ended("short")
    assert queue.jobs._began_timer is not None
    queue.jobs._began_timer.cancel()
    queue.jobs._began_timer = None
    pytest.MonkeyPatch().setattr(module, "BEGAN_SECONDS", 0.01)
    queue.stuck("long")
    await queue.until(queue.began)
    queue.let_go()
    [outcome] = await queue.ended("long")
    assert queue.began() == ["long"] and outcome.id == "long"


@with_queue
async def test_a_worker_that_is_used_once_returns_all_jobs_but_one(queue: Queue) -> None:
    queue.jobs.limit_to_one(True)
    queue.stuck("a")
    queue.assign("b")
    queue.let_go()
    await queue.ended("a")
    queue.assign("c")
    assert queue.returned() == ["b", "c"] and queue.effects() == ["a"]


@with_queue
async def test_a_worker_that_becomes_one_that_is_used_once_returns_what_is_queued(queue: Queue) -> None:
    queue.stuck("a")
    queue.assign("b")
    queue.jobs.limit_to_one(True)
    assert queue.returned() == ["b"]
    queue.let_go()
    await queue.ended("a")


@with_queue
async def test_a_job_for_which_the_journal_has_no_room_is_returned(queue: Queue) -> None:
    pytest.MonkeyPatch().setattr(journal, "PENDING_MAX", 1)
    queue.assign("a")
    queue.assign("b")
    await queue.until(queue.returned)
    queue.jobs.acknowledge("a")
    queue.assign("b")
    await queue.ended("b")
    assert queue.returned() == ["b"] and queue.effects() == ["a", "b"]


@with_queue
async def test_a_queue_that_ends_returns_what_has_not_begun(queue: Queue) -> None:
    queue.stuck("a")
    queue.assign("b")
    await queue.until(queue.effects)
    finishing = asyncio.create_task(queue.jobs.finish())
    [outcome] = await queue.ended("a")
    queue.jobs.acknowledge("a")
    await finishing
    queue.assign("c")
    assert outcome.reason == "WorkerLost" and queue.returned() == ["b", "c"] and queue.effects() == ["a"]


@with_queue
async def test_what_runs_and_what_waits_is_listed(queue: Queue) -> None:
    assert queue.jobs.listed() == Jobs()
    queue.stuck("a")
    for id_ in ("b", "c"):
        queue.assign(id_)
    assert queue.jobs.listed() == Jobs("a", ("b", "c"))
    queue.let_go()
    await queue.ended("a", "b", "c")


@with_queue
async def test_a_job_waits_while_the_worker_is_not_ready(queue: Queue) -> None:
    queue.stuck("a")
    queue.assign("b")
    queue.is_ready = False
    queue.let_go()
    await queue.ended("a")
    assert queue.jobs.listed() == Jobs("", ("b",)) and queue.effects() == ["a"]
    queue.is_ready = True
    queue._changed()
    await queue.ended("b")


class Disk:
    """Counts how often something is synced, and what was sent by then."""

    def __init__(self, queue: Queue) -> None:
        self.synced: list[int] = []
        self._queue = queue
        self._sync = os.fdatasync
        pytest.MonkeyPatch().setattr(os, "fdatasync", self.sync)

    def sync(self, file: int) -> None:
        self.synced.append(len(self._queue.outcomes()))
        self._sync(file)


@with_queue
async def test_an_outcome_is_on_disk_before_it_is_sent(queue: Queue) -> None:
    disk = Disk(queue)
    for id_ in ("a", "b"):
        queue.assign(id_)
        await queue.ended(id_)
    assert disk.synced == [0, 1]


@with_queue
async def test_outcomes_that_come_while_others_are_synced_share_one_sync(queue: Queue) -> None:
    go, real, syncs = asyncio.Event(), queue.jobs._journal.sync_aside, 0

    async def slowly() -> object:
        nonlocal syncs
        syncs += 1
        await go.wait()
        return await real()

    queue.jobs._journal.sync_aside = slowly  # type: ignore[method-assign, assignment]
    ids = [f"job-{number}" for number in range(6)]
    for id_ in ids[:-1]:
        queue.assign(id_)
    queue.stuck(ids[-1])
    await queue.until(lambda: len(queue.effects()) == len(ids))
    assert queue.outcomes() == []
    go.set()
    assert [one.id for one in await queue.ended(*ids[:-1])] == ids[:-1] and syncs == 1
    queue.let_go()
    await queue.ended(ids[-1])


@with_queue
async def test_outcomes_of_short_jobs_wait_for_a_few_others_to_share_their_sync(queue: Queue) -> None:
    written = queue.jobs._journal
    real, groups = written.sync_aside, list[int]()

    async def counted() -> list[Outcome]:
        groups.append(written.unsynced)
        return await real()

    written.sync_aside = counted  # type: ignore[method-assign]
    ids = [f"t{number}.0" for number in range(module.ENDS_SYNCED_TOGETHER + 3)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "SYNC_SECONDS_MAX", SECONDS_MAX)
        for id_ in ids:
            queue.assign(id_)
        await queue.ended(*ids)
    assert groups[0] >= 2


@with_queue
async def test_the_last_outcome_is_synced_without_a_detour(queue: Queue) -> None:
    async def never() -> object:
        raise AssertionError("nothing comes that it could be synced with")

    queue.jobs._journal.sync_aside = never  # type: ignore[method-assign, assignment]
    queue.assign("a")
    await queue.ended("a")


@with_queue
async def test_no_job_begins_when_outcomes_cannot_be_synced(queue: Queue) -> None:
    def fails(file: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with pytest.MonkeyPatch().context() as patched:
        patched.setattr(os, "fdatasync", fails)
        queue.assign("a")
        await queue.until(lambda: queue.jobs.trouble)
        queue.is_ready = False
    assert queue.outcomes() == [] and str(queue.jobs.trouble) == "[Errno 5] the disk is broken"
