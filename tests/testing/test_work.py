"""Tasks, claims, functions and schedules of one project, by the controllers of a server, in virtual time."""

from __future__ import annotations

import selectors
import time
from datetime import timedelta
from typing import Any

import pytest

from rota.control.leading import Leading
from rota.registry import pacing
from rota.server import controllers as of_a_server
from rota.testing import Call, Project, Result
from rota.testing import plane as of_a_project
from rota.testing import sites as of_a_fleet
from tests.testing.projects import MARCH

SHOP = """
name: shop
pools:
  - name: workers
    replicas: 2
    reset: Keep
    worker: {type: shell}
functions:
  - name: charge
    entrypoint: main:handler
    timeoutSeconds: 60
    source:
      inline: |
        def handler(event, context):
            return {"charged": event["amount"]}
schedules:
  - name: tidy
    cron: "*/10 * * * *"
    catchUp: All
    taskTemplate: {command: [sh, tidy.sh], workerPoolRef: {name: workers}}
"""
POOL = """
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: boxes}
spec: {replicas: 1, worker: {type: shell}}
"""


def task(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": spec}


def on_workers(name: str, **spec: Any) -> dict[str, Any]:
    return task(name, command=["sh", name], workerPoolRef={"name": "workers"}, **spec)


def phase(project: Project, kind: str, name: str) -> str:
    return str(project.get(kind, name).status.phase)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here waits for the machine's clock."""

    def sleep(seconds: float) -> None:
        raise AssertionError(f"slept for {seconds} s")

    def select(selector: Any, timeout: float | None = None) -> list[Any]:
        assert timeout == 0, f"a loop waited for {timeout} s"
        return []

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(selectors.SelectSelector, "select", select)


pytestmark = pytest.mark.usefixtures("no_waiting")


# Tasks.


def test_tasks_wait_for_those_they_depend_on() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.on("workers", takes=timedelta(minutes=2))
        for name, after in (("ship", ["build", "check"]), ("check", ["build"]), ("build", [])):
            project.apply(on_workers(name, dependsOn=after))
        begun = project.now
        project.run_until_idle()
        minutes = {call.task: (call.at - begun).total_seconds() / 60 for call in project.calls("workers")}
        assert minutes == {"build": 0, "check": 2, "ship": 4}


def test_a_task_whose_dependency_fails_is_not_begun() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.on("workers", lambda call: Result(exit_code=1))
        project.apply(on_workers("build"))
        project.apply(on_workers("ship", dependsOn=["build"]))
        assert phase(project, "Task", "build") == "Failed"
        assert [call.task for call in project.calls()] == ["build"]


def test_a_worker_that_dies_loses_its_task_which_is_run_elsewhere() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.on("workers", takes=timedelta(minutes=10))
        project.apply(on_workers("build"))
        first = project.get("Task", "build").status.instance_name
        project.advance(minutes=4)
        project.kill(first)
        second = project.get("Task", "build").status.instance_name
        assert second not in (None, first)
        project.run_until_idle()
        lost, done = project.get("Task", "build").status.attempts
        assert (lost.instance, lost.reason) == (first, "WorkerLost")
        assert (done.instance, done.reason) == (second, "Succeeded")
        assert (lost.end - lost.start, done.end - done.start) == (timedelta(minutes=4), timedelta(minutes=10))
        assert [call.attempt for call in project.calls("build")] == [1, 2]


def test_the_worker_that_died_is_there_again() -> None:
    with Project(SHOP, at=MARCH) as project:
        name = "workers-1"
        project.kill(name)
        project.advance(minutes=1)
        assert project.get("WorkerPool", "workers").status.ready_replicas == 2
        assert project.get("Instance", name).status.last_exit.signal == 9


def test_only_what_runs_can_be_killed() -> None:
    with Project(SHOP) as project, pytest.raises(LookupError, match="did you mean workers-1"):
        project.kill("workers-11")


def test_short_tasks_are_handed_to_busy_workers_and_each_runs_once() -> None:
    with Project(SHOP, at=MARCH) as project:
        for number in range(20):
            project.apply(on_workers(f"t{number}"))
        project.run_until_idle()
        assert sorted(call.task for call in project.calls("workers")) == sorted(f"t{number}" for number in range(20))


# Claims.


def test_a_claim_is_taken_and_released_and_the_next_one_has_its_instance() -> None:
    with Project(POOL, at=MARCH) as project:
        first = project.claim("boxes", "first")
        assert (first.status.phase, first.status.instance_name) == ("Bound", "boxes-0")
        second = project.claim("boxes", "second")
        assert second.status.phase == "Waiting"
        project.release("first")
        assert (phase(project, "Claim", "first"), phase(project, "Claim", "second")) == ("Released", "Bound")


def test_a_claim_that_is_not_renewed_expires() -> None:
    with Project(POOL, at=MARCH) as project:
        project.claim("boxes", "mine", lease=timedelta(minutes=10))
        project.advance(minutes=9)
        project.renew("mine")
        project.advance(minutes=9)
        assert phase(project, "Claim", "mine") == "Bound"
        project.advance(minutes=1)
        status = project.get("Claim", "mine").status
        assert (status.phase, status.reason) == ("Expired", "LeaseExpired")
        assert project.claim("boxes").status.phase == "Bound"


def test_a_claim_waits_no_longer_than_it_says() -> None:
    with Project(POOL, at=MARCH) as project:
        project.claim("boxes", "mine")
        project.claim("boxes", "late", wait=90)
        project.advance(seconds=89)
        assert phase(project, "Claim", "late") == "Waiting"
        project.advance(seconds=2)
        status = project.get("Claim", "late").status
        assert (status.phase, status.reason) == ("Failed", "WaitTimeout")


def test_a_claim_of_a_higher_priority_is_served_first() -> None:
    with Project(POOL, at=MARCH) as project:
        project.claim("boxes", "mine")
        project.claim("boxes", "low", wait=3600)
        project.claim("boxes", "high", wait=3600, priority=10)
        project.release("mine")
        assert (phase(project, "Claim", "high"), phase(project, "Claim", "low")) == ("Bound", "Waiting")


def test_a_claim_whose_instance_dies_has_failed() -> None:
    with Project(POOL, at=MARCH) as project:
        project.claim("boxes", "mine")
        project.kill("boxes-0")
        status = project.get("Claim", "mine").status
        assert (status.phase, status.reason) == ("Failed", "InstanceCrashed")
        project.advance(minutes=1)
        assert project.claim("boxes", "next").status.phase == "Bound"


def test_tasks_and_claims_share_the_workers_of_a_pool() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.on("workers", takes=timedelta(minutes=5))
        held = {project.claim("workers", name).status.instance_name for name in ("a", "b")}
        project.apply(on_workers("build"))
        project.advance(minutes=1)
        assert len(held) == 2 and phase(project, "Task", "build") == "Queued"
        project.release("b")
        assert phase(project, "Task", "build") == "Running"


def test_a_claim_of_a_pool_that_is_not_there_is_a_mistake() -> None:
    with Project(POOL) as project:
        with pytest.raises(LookupError, match="did you mean boxes"):
            project.claim("boxs")
        with pytest.raises(ValueError, match="whole seconds"):
            project.claim("boxes", lease=0.5)
        with pytest.raises(LookupError, match="no claim mine"):
            project.release("mine")


# Functions.


def test_a_call_that_fails_is_made_again_as_its_task_says() -> None:
    with Project(SHOP, at=MARCH) as project:

        def declined_twice(call: Call) -> Any:
            if call.attempt < 3:
                raise ConnectionError("the bank is away")
            return {"charged": call.event["amount"]}

        project.on("charge", declined_twice)
        call = {"name": "charge", "payload": {"amount": 7}}
        project.apply(task("pay", function=call, retry={"limit": 2, "backoffSeconds": 60, "reasons": ["Failed"]}))
        assert phase(project, "Task", "pay") == "Waiting"
        began = project.now
        project.run_until_idle()
        assert [(one.at - began).total_seconds() for one in project.calls("charge")] == [0, 60, 180]
        assert project.get("Task", "pay").status.result == {"charged": 7}


def test_calls_are_counted_and_a_worker_comes_and_goes_with_them() -> None:
    with Project(SHOP, at=MARCH) as project:
        # It is loaded once, by a worker that goes when nobody calls.
        project.advance(minutes=1)
        assert not [one for one in project.list("Instance") if one.spec.handler is not None]
        project.apply(task("pay", function={"name": "charge", "payload": {"amount": 7}}))
        project.advance(seconds=2)
        status = project.get("Function", "charge").status
        assert (status.ready_workers, status.calls.succeeded, status.calls.failed) == (1, 1, 0)
        project.advance(minutes=6)
        assert project.get("Function", "charge").status.ready_workers == 0


def test_a_worker_of_a_function_that_dies_loses_its_call_which_is_made_again() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.on("charge", takes=30)
        project.apply(task("pay", function={"name": "charge", "payload": {"amount": 7}}))
        project.advance(seconds=10)
        project.kill(project.get("Task", "pay").status.instance_name)
        project.run_until_idle()
        status = project.get("Task", "pay").status
        assert [one.reason for one in status.attempts] == ["WorkerLost", "Succeeded"]


def test_a_call_that_nobody_waits_for_is_a_task() -> None:
    with Project(SHOP, at=MARCH) as project:
        name = project.submit("charge", {"amount": 3})
        assert project.get("Task", name).status.result == {"charged": 3}
        assert project.calls("charge")[0].task == name
        project.advance(hours=2)
        assert project.list("Task", labels="rota.dev/call=asynchronous") == [], "it is kept for an hour"


def test_a_payload_may_use_what_a_task_before_it_has_put_out() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.on("workers", lambda call: Result(outputs={"amount": "12"}))
        project.apply(on_workers("count"))
        given = {"amount": "{{ tasks.count.outputs.amount }}"}
        project.apply(task("pay", function={"name": "charge", "payload": given}, dependsOn=["count"]))
        assert project.get("Task", "pay").status.result == {"charged": "12"}


# Schedules.


def test_what_a_jump_of_time_has_missed_is_caught_up_with() -> None:
    with Project(SHOP, at=MARCH) as project:
        project.advance(minutes=10)
        project.down(minutes=35)
        assert [f"{run.at:%H:%M} {run.phase}" for run in project.runs("tidy")] == [
            "00:10 Succeeded",
            "00:20 Succeeded",
            "00:30 Succeeded",
            "00:40 Succeeded",
        ]
        assert {f"{call.at:%H:%M}" for call in project.calls("tidy")[1:]} == {"00:45"}


# All of it.


def an_hour() -> list[str]:
    """Use everything of the project for an hour."""
    with Project(SHOP, at=MARCH) as project:
        project.on("workers", takes=timedelta(minutes=3))
        project.apply(on_workers("build"))
        project.apply(task("pay", function={"name": "charge", "payload": {"amount": 1}}, dependsOn=["build"]))
        claim = project.claim("workers", lease=timedelta(minutes=20))
        project.advance(minutes=5)
        project.kill(claim.status.instance_name)
        project.submit("charge", {"amount": 2})
        project.advance(minutes=55)
        kinds = ("Task", "Claim", "Instance", "Schedule", "Function", "Event")
        found = [one for kind in kinds for one in project.list(kind)]
        return [repr(call) for call in project.calls()] + [repr(one) for one in found]


def test_the_same_project_is_the_same_again() -> None:
    assert an_hour() == an_hour()


def test_how_fast_the_machine_is_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = an_hour()
    for name in ("FREE_SECONDS", "SLICE_SECONDS", "WRITING_SLICE_SECONDS", "OWN_SLICE_SECONDS"):
        monkeypatch.setattr(pacing, name, 0.0)
    assert an_hour() == before


def test_a_server_a_fleet_and_a_project_are_wired_by_the_same_class() -> None:
    for module in (of_a_server, of_a_fleet, of_a_project):
        assert module.Leading is Leading


async def test_the_async_form_has_claims_too() -> None:
    async with Project(POOL, at=MARCH) as project:
        await project.claim("boxes", "mine", lease=60)
        await project.advance(minutes=1)
        assert (await project.get("Claim", "mine")).status.phase == "Expired"
        name = (await project.claim("boxes")).metadata.name
        await project.renew(name)
        await project.kill("boxes-0")
        assert (await project.get("Claim", name)).status.reason == "InstanceCrashed"
