"""Workers as their controller has them, with runners in memory that say what a test wants."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import Instance, WorkerPool
from rota.control.instance import Instances
from rota.control.making.local import LocalMaker
from rota.control.pool import Pools
from rota.runtime.interface import Refused
from rota.runtime.runner.messages import Hold, Release
from rota.runtime.runners import RETURN_SECONDS_MAX, Runners
from tests.control.running.fake import FakeRuntime
from tests.control.running.lines import FakeRunner
from tests.engine_loop.loops import World

HELD = {"id": "h1", "kind": "Claim", "name": "c", "uid": "u", "since": "2026-01-01T00:00:00Z"}


class Crew:
    """A pool of workers, and their runners."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runtime = FakeRuntime(world.clock)
        self.runners = Runners(world.clock.time)

    async def serve(self) -> None:
        await self.world.serve(Pools(self.runtime), Instances(LocalMaker(self.runtime, self.runners)))

    async def up(self, **spec: Any) -> FakeRunner:
        """One worker that is ready."""
        pool = {"worker": {"type": "shell", **spec.pop("worker", {})}, "replicas": 1, **spec}
        await self.world.create("WorkerPool", "p", pool)
        await self.serve()
        # What is connected long after the start of a server is not one that comes back.
        await self.world.pass_time(RETURN_SECONDS_MAX + 1)
        return await self.ready(self.connect())

    def connect(self, run: int = 0) -> FakeRunner:
        [subject] = self.runtime.alive
        return FakeRunner(self.runners, subject, run)

    async def ready(self, runner: FakeRunner) -> FakeRunner:
        await self.world.rest()
        runner.be_idle()
        await self.world.rest()
        return runner

    async def hold(self, id_: str | None = "h1") -> None:
        held = None if id_ is None else {**HELD, "id": id_}
        await self.world.client.patch(Instance, "p-0", {"spec": {"assignment": held}})
        await self.world.rest()

    async def held(self, runner: FakeRunner, id_: str = "h1") -> None:
        await self.hold(id_)
        runner.say("Held", holder=id_)
        await self.world.rest()

    async def instance(self) -> Any:
        return await self.world.get("Instance", "p-0")

    async def available(self) -> tuple[str, str, str]:
        found = await self.world.condition("Instance", "p-0", "Available")
        assert found is not None
        return found


@pytest.fixture
async def crew(world: World) -> Crew:
    return Crew(world)


async def test_a_worker_is_ready_when_its_runner_says_so(crew: Crew) -> None:
    runner = await crew.up()
    assert (await crew.available())[0] == "True"
    instance = await crew.instance()
    assert (instance.status.phase, instance.readiness().state) == ("Idle", "Ready")
    assert len(runner.configurations) == 1


@pytest.mark.parametrize(("phase", "words"), [("Waiting", "started"), ("Preparing", "prepared"), ("Resetting", "left")])
async def test_until_then_it_says_what_it_does(crew: Crew, phase: Any, words: str) -> None:
    runner = await crew.up()
    runner.say(phase)
    await crew.world.rest()
    status, reason, message = await crew.available()
    assert (status, reason) == ("False", "Starting") and words in message


async def test_why_it_cannot_be_prepared_is_said_at_every_level(crew: Crew) -> None:
    runner = await crew.up()
    runner.say("Failed", reason="SetupFailed", message="the set-up command ended with 3: no paper")
    await crew.world.rest()
    assert (await crew.available())[2] == "SetupFailed: the set-up command ended with 3: no paper"
    pool = await crew.world.get("WorkerPool", "p")
    ready = pool.status.condition("Ready")
    assert ready.reason == "ConfigurationError" and "no paper" in ready.message


async def test_it_is_told_once_what_to_prepare(crew: Crew) -> None:
    runner = await crew.up()
    for phase in ("Preparing", "Failed", "Preparing", "Idle"):
        runner.say(phase)
        await crew.world.rest()
    assert len(runner.configurations) == 1


async def test_a_runner_whose_stream_broke_on_the_way_is_told_again(crew: Crew) -> None:
    await crew.world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": 1})
    await crew.serve()
    runner = crew.connect()
    await crew.world.rest()
    assert len(runner.configurations) == 1
    # It never came: the runner knows nothing of it.
    runner.cut()
    runner.connect()
    await crew.world.rest()
    assert len(runner.configurations) == 2


async def test_a_runner_that_came_back_with_what_it_has_is_told_nothing(crew: Crew) -> None:
    runner = await crew.up()
    runner.cut()
    await crew.world.rest()
    runner.connect()
    await crew.world.rest()
    assert len(runner.configurations) == 1 and (await crew.available())[0] == "True"


async def test_what_could_not_be_told_is_told_when_it_can_be(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    await crew.world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": 1})
    await crew.serve()
    works = crew.runtime.box

    async def refuses(*_: Any) -> Any:
        raise Refused("ConfigurationError", "no box today")

    monkeypatch.setattr(crew.runtime, "box", refuses)
    runner = crew.connect()
    await crew.world.rest()
    assert runner.configurations == [] and "no box today" in (await crew.available())[2]
    monkeypatch.setattr(crew.runtime, "box", works)
    runner.say("Waiting", message="still here")
    await crew.world.rest()
    assert len(runner.configurations) == 1


async def test_a_bad_workspace_is_made_good_by_going_back_to_the_old_one(crew: Crew) -> None:
    await crew.world.workspace("w")
    await crew.world.say_ready("Workspace", "w")
    runner = await crew.up(worker={"workspaceRef": {"name": "w"}})
    good = runner.configurations[-1]
    await _change_workspace(crew, "https://git.example/bad")
    runner.say("Failed", reason="RepositoryNotFound", message="not there", configured="")
    await crew.world.rest()
    await _change_workspace(crew, "https://git.example/app")
    assert len(runner.configurations) == 3 and runner.configurations[-1].digest == good.digest


async def test_going_back_is_told_though_the_runner_has_not_said_anything_yet(crew: Crew) -> None:
    await crew.world.workspace("w")
    await crew.world.say_ready("Workspace", "w")
    runner = await crew.up(worker={"workspaceRef": {"name": "w"}})
    await _change_workspace(crew, "https://git.example/bad")
    await _change_workspace(crew, "https://git.example/app")
    assert [one.workspace.spec.repo for one in runner.configurations if one.workspace] == [
        "https://git.example/app",
        "https://git.example/bad",
        "https://git.example/app",
    ]


async def _change_workspace(crew: Crew, repo: str) -> None:
    await crew.world.patch("Workspace", "w", {"spec": {"repo": repo}})
    await crew.world.say_ready("Workspace", "w")
    await crew.world.rest()


async def test_a_report_of_an_earlier_run_is_not_believed(crew: Crew) -> None:
    await crew.up()
    crew.runtime.die("p-0", code=1, container="worker")
    await crew.world.rest()
    assert [order.number for order in crew.runtime.orders] == [0, 1]
    # The stream of the run that is gone is still there.
    assert (await crew.available())[:2] == ("False", "Starting")
    await crew.ready(crew.connect(run=1))
    assert (await crew.available())[0] == "True"


async def test_a_hold_is_told_and_written_down_when_it_is_taken_on(crew: Crew) -> None:
    runner = await crew.up()
    await crew.hold()
    assert runner.orders == [Hold("h1")] and (await crew.instance()).status.assignment is None
    runner.say("Held", holder="h1")
    await crew.world.rest()
    instance = await crew.instance()
    assert (instance.status.assignment.id, instance.status.assignment.phase) == ("h1", "Accepted")
    assert instance.status.phase == "Running"


async def test_nobody_is_given_what_is_not_prepared_as_it_should_be_by_now(crew: Crew) -> None:
    runner = await crew.up()
    runner.say("Idle", configured="")
    await crew.hold()
    assert runner.orders == []
    runner.be_idle()
    await crew.world.rest()
    assert runner.orders == [Hold("h1")]


async def test_it_is_released_when_the_hold_ends(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner)
    await crew.hold(None)
    assert runner.orders[-1] == Release()
    crew.world.clock.advance(1)
    await crew.world.rest()
    assert (await crew.instance()).status.phase != "Idle"
    runner.say("Resetting")
    await crew.world.rest()
    assert (await crew.available())[:2] == ("False", "Starting")
    runner.be_idle()
    await crew.world.rest()
    assert (await crew.instance()).status.assignment is None and (await crew.available())[0] == "True"


async def test_between_two_holders_it_is_always_reset(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner, "h1")
    await crew.hold("h2")
    assert runner.orders == [Hold("h1"), Release()]
    runner.say("Resetting")
    runner.be_idle()
    await crew.world.rest()
    assert runner.orders[2:] == [Hold("h2")]


async def test_a_hold_that_was_lost_is_done_and_is_not_taken_on_again(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner)
    runner.say("Idle", holder="")
    await crew.world.rest()
    instance = await crew.instance()
    assert instance.status.assignment.phase == "Done" and runner.orders == [Hold("h1")]


async def test_a_hold_whose_runner_crashed_is_done_when_the_next_run_is_ready(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner)
    crew.runtime.die("p-0", code=1, container="worker")
    runner.cut()
    await crew.world.rest()
    assert (await crew.instance()).status.assignment.phase == "Accepted"
    again = await crew.ready(crew.connect(run=1))
    assert (await crew.instance()).status.assignment.phase == "Done" and again.orders == []


async def test_one_that_is_made_anew_under_the_same_name_has_nothing_of_the_last_ones_hold(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner)
    before = await crew.instance()
    await crew.world.delete("Instance", "p-0")
    await crew.world.rest()
    after = await crew.instance()
    assert after.metadata.uid != before.metadata.uid
    assert after.spec.assignment is None and (after.status is None or after.status.assignment is None)
    again = await crew.ready(crew.connect())
    assert again.orders == [] and (await crew.instance()).status.phase == "Idle"


async def test_recreate_gives_the_next_one_a_new_instance_and_new_storage(crew: Crew) -> None:
    runner = await crew.up(reset="Recreate", storage={"size": "1Gi"})
    await crew.held(runner)
    before = (await crew.instance()).metadata.uid
    await crew.hold(None)
    assert (await crew.instance()).metadata.uid != before
    assert crew.runtime.dropped == ["p-0"] and Release() not in runner.orders


async def test_what_cannot_be_made_as_new_is_replaced_with_its_storage(crew: Crew) -> None:
    runner = await crew.up(storage={"size": "1Gi"})
    before = (await crew.instance()).metadata.uid
    runner.say("Broken", reason="MustReplace", message="it cannot be emptied")
    await crew.world.rest()
    assert (await crew.instance()).metadata.uid != before and crew.runtime.dropped == ["p-0"]
    assert "Replaced" in crew.world.events.reasons("Instance/p-0")


async def test_what_is_reset_is_what_the_pool_says_when_the_hold_ends(crew: Crew) -> None:
    runner = await crew.up(reset="Recreate")
    await crew.held(runner)
    await crew.world.client.patch(WorkerPool, "p", {"spec": {"reset": "Clean"}})
    await crew.world.rest()
    before = (await crew.instance()).metadata.uid
    await crew.hold(None)
    assert runner.orders[-1] == Release() and (await crew.instance()).metadata.uid == before


async def test_a_server_that_was_away_does_not_make_ready_workers_unready(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner)
    before = await crew.instance()
    await crew.world.stop()
    crew.runners = Runners(crew.world.clock.time)
    await crew.serve()
    assert await crew.instance() == before
    await crew.world.pass_time(RETURN_SECONDS_MAX - 1, step=1)
    assert await crew.instance() == before
    again = crew.connect()
    again.say("Held", configured=runner.configurations[-1].digest, holder="h1")
    await crew.world.rest()
    assert await crew.instance() == before


async def test_one_that_does_not_come_back_is_unready_in_the_end(crew: Crew) -> None:
    await crew.up()
    await crew.world.stop()
    crew.runners = Runners(crew.world.clock.time)
    await crew.serve()
    await crew.world.pass_time(RETURN_SECONDS_MAX + 1, step=1)
    assert (await crew.available())[:2] == ("False", "Starting")


async def test_one_whose_process_is_another_by_now_is_not_taken_for_the_one_it_was(crew: Crew) -> None:
    await crew.up()
    await crew.world.stop()
    crew.runtime.die("p-0", code=1, container="worker")
    crew.runners = Runners(crew.world.clock.time)
    await crew.serve()
    assert (await crew.available())[:2] == ("False", "Starting")


async def test_a_busy_worker_is_not_restarted_by_a_new_template_before_it_is_free(crew: Crew) -> None:
    runner = await crew.up()
    await crew.held(runner)
    before = (await crew.instance()).metadata.uid
    await crew.world.client.patch(WorkerPool, "p", {"spec": {"worker": {"type": "python"}}})
    await crew.world.rest()
    assert (await crew.instance()).metadata.uid == before and crew.runtime.stopped == []
    await crew.hold(None)
    assert (await crew.instance()).metadata.uid != before


async def test_a_busy_worker_is_told_a_changed_workspace_and_nobody_ends_it(crew: Crew) -> None:
    await crew.world.workspace("w")
    await crew.world.say_ready("Workspace", "w")
    runner = await crew.up(worker={"workspaceRef": {"name": "w"}})
    await crew.held(runner)
    await _change_workspace(crew, "https://git.example/other")
    assert len(runner.configurations) == 2 and crew.runtime.stopped == [] and Release() not in runner.orders


async def test_a_secret_that_changed_is_told(crew: Crew) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    await crew.world.client.create({**secret, "stringData": {"token": "old"}})
    source = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}
    runner = await crew.up(worker={"env": [source]})
    await crew.world.patch("Secret", "s", {"stringData": {"token": "new"}})
    await crew.world.rest()
    assert [one.place.env["T"] for one in runner.configurations] == ["old", "new"]


async def test_an_idle_pool_writes_nothing(crew: Crew) -> None:
    await crew.up(storage={"size": "1Gi"})
    before = _revision(crew)
    await crew.world.pass_time(3600, step=60)
    assert _revision(crew) == before


async def test_a_report_that_says_nothing_new_writes_nothing(crew: Crew) -> None:
    runner = await crew.up()
    before = _revision(crew)
    for _ in range(10):
        runner.say("Idle")
        await crew.world.rest()
    assert _revision(crew) == before


def _revision(crew: Crew) -> int:
    return crew.world.registry.store.revision


async def test_a_runner_of_another_version_is_ended_and_started_anew_without_a_pause(crew: Crew) -> None:
    runner = await crew.up()
    [subject] = crew.runtime.alive
    assert crew.runtime.runs(subject)["worker"].number == 0
    runner.cut()
    crew.runners.turn_away(subject)
    await crew.world.rest()
    run = crew.runtime.runs(subject)["worker"]
    assert (run.number, run.exit) == (1, None) and not crew.runners.is_outdated(subject)
    await crew.ready(crew.connect(1))
    assert (await crew.available())[0] == "True"


async def test_a_runner_of_another_version_that_comes_once_more_does_not_end_the_next(crew: Crew) -> None:
    runner = await crew.up()
    [subject] = crew.runtime.alive
    runner.cut()
    for _ in range(3):
        crew.runners.turn_away(subject)
    await crew.world.rest()
    assert crew.runtime.runs(subject)["worker"].number == 1
