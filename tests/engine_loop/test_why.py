"""Why something is not ready, from the state of a running loop: each state, and the one thing to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from rota.api import KINDS, Function, Kind, Object, Secret, Task, Workspace
from rota.client import Client
from rota.control.gate import Gate, ReadyGate
from rota.control.table import controllers
from rota.engine import (
    DONE,
    Context,
    ControlLoop,
    Done,
    NodeView,
    ObjectReconciler,
    Outcome,
    Reconciler,
    RequeueAfter,
    StoreObjects,
    VirtualClock,
)
from rota.engine import why as bounds
from rota.engine.advice import Finding, advice
from rota.engine.why import Acting, Step, Why, explain
from rota.registry import Registry
from rota.store import MemoryStore
from tests.until import until_async, until_so

QUIET_TURNS = 50
"""Turns of the event loop without anything running, after which nothing is on its way."""


class NoEvents:
    def record(self, about: Object, type: str, reason: str, message: str) -> None:  # noqa: A002
        """Nobody reads them here."""


class World:
    """A registry in memory, and a running loop on it."""

    def __init__(self, registry: Registry, clock: VirtualClock, which: Iterable[Reconciler]) -> None:
        self.clock = clock
        self.client = Client.local(registry)
        self.objects = StoreObjects(registry)
        self.loop = ControlLoop(self.client, self.objects, which, NoEvents(), clock=clock)

    async def create(self, kind: str, name: str, spec: Any = None, **meta: Any) -> None:
        api = KINDS[kind]
        body: dict[str, Any] = {"apiVersion": api.api_version, "kind": kind, "metadata": {"name": name, **meta}}
        await self.client.create(body if spec is None else {**body, "spec": spec})

    async def set_status(self, kind: str, name: str, **status: Any) -> None:
        found = await self.client.get(KINDS[kind], name)
        await self.client.update_status({**found, "status": {**found.get("status", {}), **status}})

    async def rest(self) -> None:
        """Go on when nothing runs and nothing is about to."""
        quiet = 0

        def busy() -> list[NodeView]:
            return [node for node in self.loop.view if node.state in ("running", "runnable")]

        def is_quiet() -> bool:
            nonlocal quiet
            quiet = 0 if busy() else quiet + 1
            return quiet > QUIET_TURNS

        await until_async(is_quiet, lambda: f"busy: {busy()}", poll_seconds=0)

    async def until_engine(self, kind: str, name: str, state: str) -> None:
        """Go on when the engine says this of an object."""
        await until_so(lambda: self.why(kind, name).step.engine, lambda found: found == state, state, poll_seconds=0)

    def why(self, kind: str, name: str, **more: Any) -> Why:
        api = KINDS[kind]
        return explain(
            api.key("default" if api.namespaced else "", name),
            find=self.objects.find,
            view=self.loop.view,
            graph=self.loop.graph,
            now=self.clock.now(),
            **{"acting": acting, **more},
        )


def acting(kind: Kind) -> Acting:
    return {"Task": "gate", "WorkerPool": "gate", "Workspace": "controller"}.get(kind.name, "nobody")  # type: ignore[return-value]


@asynccontextmanager
async def world(which: Iterable[Reconciler] | None = None) -> AsyncIterator[World]:
    clock = VirtualClock(1.7e9)
    registry = Registry(MemoryStore(), clock=clock.time)
    await registry.start()
    made = World(registry, clock, controllers() if which is None else which)
    serving = asyncio.create_task(made.loop.serve())
    try:
        yield made
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await registry.stop()


def task(**spec: Any) -> dict[str, Any]:
    return {"prompt": "x", "workerPoolRef": {"name": "agents"}, **spec}


def workspace(secret: str = "token") -> dict[str, Any]:
    return {"repo": "https://example.com/shop", "secretRef": {"name": secret}}


POOL: dict[str, Any] = {"worker": {"type": "shell"}}


def names(step: Step) -> list[str]:
    """The first way down from a step."""
    return [step.name, *(names(step.causes[0]) if step.causes else [])]


# Ready.


async def test_what_is_ready_needs_nothing() -> None:
    async with world() as w:
        await w.create("Secret", "token")
        await w.create("Workspace", "repo", workspace())
        await w.rest()
        w.clock.advance(90)
        why = w.why("Workspace", "repo")
        assert why.ready and why.step.verdict == "Ready" and why.advice == "" and not why.over
        assert why.step.since == "2023-11-14T22:13:20Z" and why.step.causes == []


async def test_plain_data_is_ready_since_it_exists() -> None:
    async with world() as w:
        await w.create("Secret", "token")
        why = w.why("Secret", "token")
        assert why.ready and why.step.since == why.step.created != ""


async def test_what_is_ready_but_lacks_something_since_then_says_so() -> None:
    async with world() as w:
        await w.create("Secret", "token")
        await w.create("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
        ready = {"type": "Ready", "status": "True", "reason": "Up", "observedGeneration": 1}
        await w.set_status("WorkerPool", "agents", conditions=[ready])
        await w.rest()
        why = w.why("WorkerPool", "agents")
        assert why.ready and why.root.name == "Workspace/repo" and why.advice.startswith("create Workspace/repo")


# Waiting for others.


async def test_the_chain_goes_down_to_what_is_absent() -> None:
    async with world() as w:
        await w.create("Workspace", "repo", workspace())
        await w.create("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
        await w.rest()
        w.clock.advance(30)
        why = w.why("WorkerPool", "agents")
        assert names(why.step) == ["WorkerPool/agents", "Workspace/repo", "Secret/token"]
        assert [why.step.verdict, why.step.causes[0].verdict, why.root.verdict] == ["Blocked", "Blocked", "Missing"]
        assert why.step.waiting_seconds == 30 and why.step.engine in ("parked", "runnable")
        assert why.step.causes[0].field == "spec.worker.workspaceRef" and why.root.field == "spec.secretRef"
        assert why.root.state == "Absent" and why.root.message == "not found; referred to by Workspace/repo"
        assert why.advice == (
            "create Secret/token: `kubectl create secret generic token --from-literal=KEY=VALUE`; "
            "if the name in spec.secretRef is wrong, correct Workspace/repo (`rota edit workspace/repo`)"
        )


async def test_a_reference_that_cannot_be_edited_is_made_anew() -> None:
    async with world() as w:
        await w.create("Task", "build", task())
        await w.rest()
        assert w.why("Task", "build").advice == (
            "create WorkerPool/agents: `rota apply -f FILE`; if the name in spec.workerPoolRef is wrong, "
            "make Task/build anew (`rota delete task/build`, then `rota apply -f FILE`)"
        )


async def test_commands_name_a_namespace_that_is_not_the_default_one() -> None:
    async with world() as w:
        await w.create("Namespace", "shop")
        await w.create("Workspace", "repo", workspace(), namespace="shop")
        await w.rest()
        why = explain(
            Workspace.api.key("shop", "repo"), find=w.objects.find, view=w.loop.view, graph=w.loop.graph, now=0
        )
        assert "generic token --from-literal=KEY=VALUE -n shop`" in why.advice
        assert "`rota edit workspace/repo -n shop`" in why.advice


async def test_what_is_absent_itself_says_who_refers_to_it() -> None:
    async with world() as w:
        for name in "abcde":
            await w.create("Workspace", name, workspace())
        why = w.why("Secret", "token")
        assert why.step.state == "Absent" and not why.over
        assert why.step.message == "not found; referred to by Workspace/a, Workspace/b, Workspace/c and 2 more"
        assert why.advice == "create Secret/token: `kubectl create secret generic token --from-literal=KEY=VALUE`"


async def test_of_thousands_that_refer_to_what_is_absent_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a tenant's, and everybody waits for the answer."""
    monkeypatch.setattr("rota.engine.why.REFERRERS_LOOKS_MAX", 4)
    asked: list[str] = []

    def may_read(kind: Kind, namespace: str, name: str) -> bool:
        asked.append(name)
        return True

    async with world() as w:
        for name in "abcdefgh":
            await w.create("Workspace", name, workspace())
        found = explain(
            Secret.api.key("default", "token"),
            find=w.objects.find,
            view=w.loop.view,
            graph=w.loop.graph,
            now=0,
            may_read=may_read,
        )
        assert found.step.message.endswith(" and at least 1 more")
        assert len({*asked} - {"token"}) == 4


async def test_what_needs_a_person_is_told_rather_than_what_goes_on_by_itself() -> None:
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        await w.create("Task", "a-runs", task())
        await w.set_status("Task", "a-runs", phase="Running")
        await w.create("Task", "b-stuck", task(dependsOn=["missing"]))
        await w.create("Task", "c", task(dependsOn=["a-runs", "b-stuck"]))
        await w.rest()
        why = w.why("Task", "c")
        assert names(why.step) == ["Task/c", "Task/b-stuck", "Task/missing"], "the way to the bottom comes first"
        assert [cause.name for cause in why.step.causes] == ["Task/b-stuck", "Task/a-runs"]


async def test_a_task_that_was_let_through_is_explained_by_its_pool() -> None:
    async with world() as w:
        await w.create("Workspace", "repo", workspace())
        await w.create("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
        await w.create("Task", "build", task())
        await w.rest()
        why = w.why("Task", "build")
        assert names(why.step) == ["Task/build", "WorkerPool/agents", "Workspace/repo", "Secret/token"]


async def test_a_chain_leads_through_failures_to_the_first_one() -> None:
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        await w.create("Task", "one", task())
        await w.create("Task", "two", task(dependsOn=["one"]))
        await w.create("Task", "three", task(dependsOn=["two"]))
        await w.set_status("Task", "one", phase="Failed", reason="ExitCode", message="it ended with 3")
        await w.rest()
        why = w.why("Task", "three")
        assert names(why.step) == ["Task/three", "Task/two", "Task/one"]
        assert why.step.state == "Failed" and why.over
        assert why.root.verdict == "Failed" and why.advice == (
            "see how Task/one ended (it ended with 3): `rota describe task/one`; "
            "then make it anew (`rota delete task/one`, then `rota apply -f FILE`)"
        )


async def test_what_is_as_it_is_written_is_corrected_and_not_made_anew() -> None:
    async with world() as w:
        await w.create("InstanceType", "large", {"cpu": 8, "memory": "16Gi", "state": "Disabled"})
        why = w.why("InstanceType", "large")
        assert why.over and why.advice == (
            'correct InstanceType/large (instance type "large" is disabled): `rota edit instancetype/large`'
        )


async def test_a_task_that_is_over_waits_for_nothing_any_more() -> None:
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        await w.create("Task", "build", task(dependsOn=["missing"]))
        await w.set_status("Task", "build", phase="Cancelled")
        await w.rest()
        why = w.why("Task", "build")
        assert (why.step.state, why.step.verdict, why.step.causes) == ("Failed", "Failed", []) and why.over


# In a circle.


async def make_circle(w: World) -> None:
    await w.create("WorkerPool", "agents", POOL)
    await w.create("Task", "a", task(dependsOn=["b"]))
    await w.create("Task", "b", task(dependsOn=["a"]))
    await w.create("Task", "c", task(dependsOn=["a"]))
    await w.rest()


async def test_a_circle_is_told_with_its_path_and_how_to_break_it() -> None:
    async with world() as w:
        await make_circle(w)
        why = w.why("Task", "a")
        assert why.step.verdict == "Cycle" and why.root == why.step
        assert why.step.causes[0].causes[0].explained_above and why.step.causes[0].causes[0].name == "Task/a"
        assert why.advice == (
            "break the circle Task/a → Task/b → Task/a: make Task/a anew without spec.dependsOn[0] "
            "(`rota delete task/a`, then `rota apply -f FILE`)"
        )


async def test_what_waits_for_a_circle_is_led_to_it() -> None:
    async with world() as w:
        await make_circle(w)
        why = w.why("Task", "c")
        assert why.step.verdict == "Blocked" and why.root.name == "Task/a" and why.root.verdict == "Cycle"
        assert why.root.field == "spec.dependsOn[0]"


async def test_a_circle_that_its_members_do_not_know_of_yet_is_found() -> None:
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        await w.create("Task", "x", task(dependsOn=["y"]))
        await w.create("Task", "y", task(dependsOn=["z"]))
        await w.rest()
        await w.create("Task", "z", task(dependsOn=["x"]))
        await w.rest()
        assert w.why("Task", "x").root.verdict == "Cycle"


# Deleting.


async def test_what_is_being_deleted_says_what_holds_it() -> None:
    async with world() as w:
        await w.create("Workspace", "repo", workspace(), finalizers=["example.com/keep"])
        w.clock.advance(5)
        await w.client.delete(Workspace.api, "repo")
        await w.rest()
        why = w.why("Workspace", "repo")
        assert why.step.state == "Deleting" and why.step.message == "it is being deleted, held by example.com/keep"
        assert why.step.since == "2023-11-14T22:13:25Z" and why.step.causes == []
        assert why.advice == (
            "see that whoever put example.com/keep on Workspace/repo lets go of it, or take it out "
            "(`rota edit workspace/repo`)"
        )


async def test_what_waits_for_something_on_its_way_out_is_told_to_make_it_again() -> None:
    async with world() as w:
        await w.create("Workspace", "repo", workspace())
        await w.create("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
        owner = await w.client.get(Workspace.api, "repo")
        reference = {name: owner[name] for name in ("apiVersion", "kind")} | {
            "name": "repo",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        await w.create("ConfigMap", "owned", ownerReferences=[reference], finalizers=["example.com/keep"])
        await w.client.delete(Workspace.api, "repo", propagation="Foreground")
        await w.rest()
        why = w.why("WorkerPool", "agents")
        assert names(why.step) == ["WorkerPool/agents", "Workspace/repo"] and why.root.verdict == "Deleting"
        assert why.advice == (
            "wait until what it owns is gone, and Workspace/repo is gone, then create it again: `rota apply -f FILE`"
        )


# Errors, and what goes on by itself.


class Told(ObjectReconciler[Workspace]):
    """Does as it is told."""

    def __init__(self, outcome: Outcome | Exception) -> None:
        super().__init__(Workspace)
        self.outcome = outcome
        self.hold: asyncio.Event | None = None
        self.concurrency = 1

    async def sync(self, context: Context, obj: Workspace) -> Outcome:
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


async def test_a_controller_that_fails_shows_its_error_and_the_next_try() -> None:
    async with world([Told(OSError("no route to the forge")), Gate(Task)]) as w:
        await w.create("Workspace", "repo", workspace())
        await w.rest()
        for _ in range(3):
            w.clock.advance(10)
            await w.rest()
        why = w.why("Workspace", "repo")
        assert why.step.verdict == "Error" and why.step.engine == "sleeping"
        assert (why.step.reason, why.step.message) == ("ReconcileFailed", "no route to the forge")
        assert why.step.runs == 4 and why.step.again_seconds is not None and 0 < why.step.again_seconds <= 0.8
        assert why.advice.startswith("correct what the error of Workspace/repo says (no route to the forge); ")
        assert not why.over


async def test_an_error_of_what_is_ready_is_told_all_the_same() -> None:
    async with world([Told(OSError("no route"))]) as w:
        await w.create("Workspace", "repo", workspace())
        ready = {"type": "Ready", "status": "True", "reason": "Up", "observedGeneration": 1}
        await w.set_status("Workspace", "repo", conditions=[ready])
        await w.rest()
        why = w.why("Workspace", "repo")
        assert why.ready and why.step.verdict == "Error" and "no route" in why.advice


async def test_what_does_not_come_to_rest_says_so() -> None:
    async with world([Told(RequeueAfter(0))]) as w:
        await w.create("Workspace", "repo", workspace())
        spinning = "Spinning"
        why = await until_so(
            lambda: w.why("Workspace", "repo"), lambda found: found.step.verdict == spinning, spinning, poll_seconds=0
        )
        assert "without coming to rest" in why.step.message
        assert "`rota get workspace/repo -o yaml --show-managed-fields` names the writers" in why.advice


async def test_what_runs_is_waited_for() -> None:
    told = Told(DONE)
    told.hold = asyncio.Event()
    async with world([told]) as w:
        await w.create("Workspace", "first", workspace())
        await w.create("Workspace", "second", workspace())
        await w.until_engine("Workspace", "first", "running")
        assert w.why("Workspace", "first").advice == ("wait a moment: Workspace/first is being looked at right now")
        why = w.why("Workspace", "second")
        assert why.step.verdict == "Working" and why.step.engine == "runnable"
        assert why.advice == "wait a moment: Workspace/second is in the queue of its controller"
        told.hold.set()


async def test_the_chain_goes_through_what_is_queued() -> None:
    told = Told(DONE)
    told.hold = asyncio.Event()
    async with world([told, *(one for one in controllers() if one.kind is not Workspace)]) as w:
        await w.create("Workspace", "repo", workspace())
        await w.create("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
        await w.until_engine("WorkerPool", "agents", "parked")
        why = w.why("WorkerPool", "agents")
        assert why.root.name == "Workspace/repo" and why.root.engine == "running" and why.root.verdict == "Working"
        told.hold.set()


async def test_what_sleeps_without_an_error_says_when_it_is_looked_at() -> None:
    async with world([Told(RequeueAfter(300, "Cloning", "the repository is being cloned"))]) as w:
        await w.create("Workspace", "repo", workspace())
        await w.rest()
        w.clock.advance(100)
        why = w.why("Workspace", "repo")
        assert why.step.verdict == "Working" and why.step.waiting_seconds == 100 and why.step.again_seconds == 200
        assert why.advice == "wait: Workspace/repo is looked at again in 200 s (the repository is being cloned)"


@pytest.mark.parametrize("outcome", [DONE, Done("Pending", 60)])
async def test_what_its_controller_has_left_to_itself_is_waited_for(outcome: Outcome) -> None:
    async with world([Told(outcome)]) as w:
        await w.create("Workspace", "repo", workspace())
        await w.create("Secret", "token")
        await w.rest()
        why = w.why("Workspace", "repo")
        assert why.step.verdict == "Settled"
        assert why.advice == (
            "wait for Workspace/repo (no controller has reported on it yet): "
            "`rota why workspace/repo --watch` tells when that changes"
        )


async def test_a_kind_that_nothing_takes_further_says_so() -> None:
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        await w.create("Task", "build", task())
        await w.rest()
        why = w.why("Task", "build")
        assert why.step.verdict == "Gated" and why.advice == (
            "nothing for now: all that Task/build refers to is there; "
            "this version has nothing that takes a Task further"
        )


async def test_a_kind_without_a_controller_says_so() -> None:
    async with world([ReadyGate(Workspace)]) as w:
        await w.create("Cell", "berlin", {"cityCode": "ber"})
        why = w.why("Cell", "berlin")
        assert why.step.verdict == "Unattended" and why.advice == (
            "nothing here acts on Cell/berlin: see that whatever reports on a Cell runs"
        )
        assert "rota get lease rota-controllers" in w.why("Cell", "berlin", acting=None).advice


# Bounds.


async def make_chain(w: World, length: int) -> None:
    await w.create("WorkerPool", "agents", POOL)
    for i in range(length):
        await w.create("Task", f"t{i:03}", task(dependsOn=[f"t{i + 1:03}"]))
    await w.rest()


async def test_a_long_chain_is_shown_in_part_and_ends_at_its_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "DEPTH_MAX", 3)
    async with world() as w:
        await make_chain(w, 10)
        why = w.why("Task", "t000")
        assert names(why.step) == ["Task/t000", "Task/t001", "Task/t002", "Task/t003", "Task/t010"]
        last = why.step.causes[0].causes[0].causes[0]
        assert (last.left_out, last.more_causes) == (6, 0)
        assert why.root.name == "Task/t010" and why.root.field == "spec.dependsOn[0]"


async def test_where_looking_ends_one_can_go_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOOKS_MAX", 4)
    async with world() as w:
        await make_chain(w, 10)
        why = w.why("Task", "t000")
        assert why.root.verdict == "Blocked" and why.advice == "go on from Task/t003: `rota why task/t003`"


async def test_a_large_fan_in_is_counted_and_its_cause_still_found() -> None:
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        many = [f"d{i:02}" for i in range(40)]
        for name in many[:-1]:
            await w.create("Task", name, task())
        await w.create("Task", "all", task(dependsOn=many))
        await w.rest()
        why = w.why("Task", "all")
        assert len(why.step.causes) == bounds.CAUSES_MAX and why.step.more_causes == 40 - bounds.CAUSES_MAX
        assert why.step.causes[0] == why.root and why.root.name == "Task/d39"


async def test_a_wide_and_deep_tree_has_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STEPS_MAX", 10)
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        for one in range(4):
            await w.create("Task", f"m{one}", task(dependsOn=[f"l{one}{two}" for two in range(4)]))
        await w.create("Task", "top", task(dependsOn=[f"m{one}" for one in range(4)]))
        await w.rest()
        why = w.why("Task", "top")
        assert count(why.step) <= 10 and left(why.step) > 0


def count(step: Step) -> int:
    return 1 + sum(map(count, step.causes))


def left(step: Step) -> int:
    return step.more_causes + sum(map(left, step.causes))


# What one may not read.


async def test_what_one_may_not_read_has_a_name_and_a_state_only() -> None:
    async with world() as w:
        await w.create("Workspace", "repo", workspace())
        await w.create("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
        await w.rest()
        why = w.why("WorkerPool", "agents", may_read=lambda kind, namespace, name: kind.name != "Workspace")
        assert why.root == Step(
            Workspace.api.key("default", "repo"),
            "Workspace/repo",
            "Pending",
            field="spec.worker.workspaceRef",
            verdict="Hidden",
            hidden=True,
        )
        assert why.advice == "ask somebody who may read Workspace/repo: `rota why workspace/repo`"
        assert b"token" not in msgspec.json.encode(why)


async def test_what_is_absent_and_may_not_be_read_is_told_to_be_absent() -> None:
    async with world() as w:
        await w.create("Workspace", "repo", workspace())
        await w.rest()
        why = w.why("Workspace", "repo", may_read=lambda kind, namespace, name: kind.name != "Secret")
        assert (why.root.state, why.root.message, why.root.hidden) == ("Absent", "", True)
        assert why.advice.startswith("create Secret/token: ")


def test_what_has_to_be_corrected_is_not_to_be_waited_for() -> None:
    matter = Finding(Function.api.key("default", "f"), "Settled", "no module named a", "ImportFailed")
    assert advice(matter) == (
        "see why the code of Function/f cannot be loaded (`rota logs function/f`), correct it, and deploy it again"
    )
    assert advice(matter._replace(reason="Starting")).startswith("wait for Function/f")


# What somebody has to correct.


@pytest.mark.parametrize(("ready", "root"), [(0, "WorkerPool/agents"), (1, "Task/t")])
async def test_a_pool_to_correct_is_the_cause_unless_some_of_its_workers_serve(ready: int, root: str) -> None:
    crashing = {"type": "Ready", "status": "False", "reason": "InstanceCrashing", "observedGeneration": 1}
    async with world() as w:
        await w.create("WorkerPool", "agents", POOL)
        await w.create("Task", "t", task())
        await w.rest()
        said = [{**crashing, "message": "it ends", "lastTransitionTime": "2023-11-14T22:13:20Z"}]
        await w.set_status("WorkerPool", "agents", conditions=said, readyReplicas=ready)
        await w.set_status("Task", "t", phase="Queued", message="waits for a worker")
        await w.rest()
        why = w.why("Task", "t", acting=lambda kind: "controller")
        assert why.root.name == root
        assert why.advice.startswith("see why WorkerPool/agents ends" if ready == 0 else "wait for Task/t")
