"""The life of one instance, without anything that runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.api import Instance, ObjectMeta
from rota.api.instance import Assignment, AssignmentStatus, Container, InstanceSpec, InstanceStatus, SchedulingGate
from rota.control.instances.backoff import RESTART_SECONDS_MIN, RUNS_REMEMBERED, RunHistory
from rota.control.instances.lifecycle import (
    KEEPER_LOST,
    Restarts,
    found,
    hold_step,
    is_held_back,
    is_same_run,
    not_made,
    plan_restarts,
    remembered,
    retry_seconds,
)
from rota.control.instances.memory import Baseline
from rota.control.making.interface import Observed, Obstacle
from rota.runtime.interface import Exit, Overuse, Run
from rota.runtime.keeper.protocol import LEASE_ENDED

NOW = 1_700_000_000.0
NOTHING, MAIN = Restarts(frozenset(), None), Restarts(frozenset(("main",)), None)
UNREACHABLE = Obstacle("NodeUnreachable", "node n1 does not answer", is_made=True)


def an_instance(*containers: str, **spec: Any) -> Instance:
    made = [Container(name=one, command=["serve"]) for one in containers or ("main",)]
    fields = {"containers": made, "template_hash": "h", "ordinal": 0, **spec}
    return Instance(
        metadata=ObjectMeta(name="i", namespace="default", uid="u", generation=3), spec=InstanceSpec(**fields)
    )


def held(env: str = "A") -> Assignment:
    options = {"env": [{"name": env, "value": "b"}]} if env else None
    return Assignment(id="h", kind="Claim", name="c", uid="u", since=datetime.fromtimestamp(NOW, UTC), options=options)


def alive(number: int = 0) -> Run:
    return Run(number, f"run-{number}", NOW - 5)


def ended(number: int = 0, code: int = 1, reason: str = "", ago: float = 0.0) -> Run:
    return Run(number, f"run-{number}", NOW - ago - 1, Exit(NOW - ago, code=code, reason=reason, lines="no paper"))


def history(*runs: Run) -> RunHistory:
    made = RunHistory()
    for run in runs:
        made.note({"main": run})
    return made


# Restarts.


@pytest.mark.parametrize(
    ("policy", "code", "is_started"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_what_has_ended_is_started_again_as_its_policy_says(policy: str, code: int, is_started: bool) -> None:
    obj, run = an_instance(restart_policy=policy), ended(code=code)
    assert plan_restarts(obj, Observed({"main": run}), {}, history(run), NOW) == (MAIN if is_started else NOTHING)


def test_what_runs_and_what_was_never_made_is_not_started_again() -> None:
    assert plan_restarts(an_instance("main", "new"), Observed({"main": alive()}), {}, history(), NOW) == NOTHING


def test_after_the_second_crash_in_a_row_there_is_a_pause() -> None:
    runs = [ended(0, ago=3), ended(1)]
    planned = plan_restarts(an_instance(), Observed({"main": runs[-1]}), {}, history(*runs), NOW)
    assert planned == Restarts(frozenset(), RESTART_SECONDS_MIN)


def test_of_several_the_shortest_pause_counts_and_what_is_due_starts() -> None:
    past = history(ended(0, ago=30), ended(1, ago=20), ended(2))
    past.note({"beside": ended(0)})
    observed = Observed({"main": ended(2), "beside": ended(0)})
    assert plan_restarts(an_instance("main", "beside"), observed, {}, past, NOW) == Restarts(
        frozenset(("beside",)), 2 * RESTART_SECONDS_MIN
    )


@pytest.mark.parametrize("reason", [KEEPER_LOST, LEASE_ENDED])
def test_an_end_that_is_no_fault_of_its_own_has_no_pause_and_is_not_remembered(reason: str) -> None:
    past, run = [ended(0, ago=4), ended(1, ago=3)], ended(2, reason=reason)
    assert plan_restarts(an_instance(), Observed({"main": run}), {}, history(*past), NOW) == MAIN
    assert remembered({"main": run}, {}) == {}


def test_what_was_renewed_starts_at_once_whatever_its_policy_and_only_that_run() -> None:
    obj, past = an_instance(restart_policy="Never"), history(ended(0, ago=4), ended(1, ago=3))
    assert plan_restarts(obj, Observed({"main": ended(2)}), {"main": 2}, past, NOW) == MAIN
    assert plan_restarts(obj, Observed({"main": ended(3)}), {"main": 2}, past, NOW) == NOTHING
    assert remembered({"main": ended(2)}, {"main": 2}) == {} != remembered({"main": ended(3)}, {"main": 2})


def test_nothing_is_started_while_there_is_an_obstacle() -> None:
    observed = Observed({"main": ended()}, obstacle=UNREACHABLE)
    assert plan_restarts(an_instance(), observed, {}, history(), NOW) == NOTHING


def test_a_history_counts_each_run_once_and_has_a_bound() -> None:
    past = history(*[ended(0)] * 5)
    assert (past.crashes("main"), past.crashes("other")) == (1, 0)
    assert history(*(ended(number) for number in range(100))).crashes("main") == RUNS_REMEMBERED


# Gates.


@pytest.mark.parametrize(
    ("gates", "is_held", "is_held_if_copied"),
    [((), False, False), (("Quota",), True, True), (("HubQuota", "x/y"), True, True), (("x/y",), True, False)],
)
def test_a_quota_holds_back_every_maker_and_other_gates_those_that_do_not_copy_them(
    gates: tuple[str, ...], is_held: bool, is_held_if_copied: bool
) -> None:
    obj = an_instance(scheduling_gates=[SchedulingGate(name=one) for one in gates])
    assert is_held_back(obj, copies_gates=False) is is_held
    assert is_held_back(obj, copies_gates=True) is is_held_if_copied


# Holds.


def test_a_hold_without_images_and_variables_of_its_own_asks_for_nothing() -> None:
    for obj in (an_instance(), an_instance(assignment=held(env=""))):
        assert hold_step(obj, InstanceStatus(), {"main": ended()}) is None


def test_a_hold_with_its_own_variables_is_renewed_for_and_then_done_with_the_first_end() -> None:
    obj = an_instance(assignment=held())
    other, running = AssignmentStatus(id="x", phase="Done"), AssignmentStatus(id="h", phase="Running")
    assert hold_step(obj, InstanceStatus(), {"main": alive()}) == "Renew"
    assert hold_step(obj, InstanceStatus(assignment=other), {"main": alive()}) == "Renew"
    assert hold_step(obj, InstanceStatus(assignment=running), {"main": alive()}) is None
    assert hold_step(obj, InstanceStatus(assignment=running), {"main": ended()}) == "Done"
    done = AssignmentStatus(id="h", phase="Done")
    assert hold_step(obj, InstanceStatus(assignment=done), {"main": alive(1)}) == "Done"


def test_what_runs_for_such_a_hold_is_written_down_as_running() -> None:
    made = found(an_instance(assignment=held()), InstanceStatus(), Observed({"main": alive()}), None, 0, NOW)
    assert made.status.assignment == AssignmentStatus(id="h", phase="Running")


# What is said.


def said(observed: Observed, wait: float | None = None, crashes: int = 0) -> tuple[str, str, str, str]:
    made = found(an_instance(), InstanceStatus(), observed, wait, crashes, NOW)
    assert made.wait == wait
    return made.phase, made.available.status, made.available.reason, made.available.message


def test_what_runs_is_available_with_what_is_known_of_its_run() -> None:
    made = found(an_instance(), InstanceStatus(restarts=1), Observed({"main": alive(2)}), None, 0, NOW)
    assert (made.phase, made.available.status) == ("Idle", "True")
    status = made.status
    assert (status.runtime_id, status.restarts, status.observed_generation) == ("run-2", 2, 3)


def test_what_is_started_again_later_says_when() -> None:
    phase, status, reason, message = said(Observed({"main": ended()}), 10.0, 2)
    assert (phase, status, reason) == ("Starting", "False", "InstanceCrashing")
    assert "2 times in a row" in message and "no paper" in message


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_what_is_not_started_again_has_stopped(code: int, phase: str) -> None:
    assert said(Observed({"main": ended(code=code)}))[:3] == (phase, "False", "Stopped")


def test_what_is_made_and_has_no_run_yet_is_starting() -> None:
    assert said(Observed({})) == ("Starting", "False", "Starting", "")


def test_the_reason_of_a_maker_counts_before_what_is_known_of_the_runs_which_stays() -> None:
    observed = Observed({"main": alive(2)}, obstacle=UNREACHABLE)
    assert said(observed) == ("Starting", "False", "NodeUnreachable", "node n1 does not answer")
    assert found(an_instance(), InstanceStatus(), observed, None, 0, NOW).status.runtime_id == "run-2"


@pytest.mark.parametrize(
    ("reason", "phase", "again"),
    [
        ("Provisioning", "Pending", None),
        ("HubUnreachable", "Pending", None),
        ("ConfigurationError", "Failed", None),
        ("ImageUnavailable", "Failed", 30.0),
    ],
)
def test_what_could_not_be_made_says_why(reason: str, phase: str, again: float | None) -> None:
    obstacle = Obstacle(reason, "because")
    conditions, said_phase = not_made(obstacle)
    assert [(one.type, one.status, one.reason, one.message) for one in conditions] == [
        ("Programmed", "False", reason, "because"),
        ("Available", "False", reason, "because"),
    ]
    assert (said_phase, retry_seconds(an_instance(), obstacle)) == (phase, again)


def test_runs_of_one_name_are_told_apart_by_their_numbers() -> None:
    before = InstanceStatus(runtime_id="pod-0", restarts=1)
    assert is_same_run(before, Run(1, "pod-0", NOW)) and not is_same_run(before, Run(2, "pod-0", NOW))
    assert not is_same_run(before, Run(0, "pod-1", NOW))


# At rest.


def test_a_baseline_holds_until_more_changes_than_who_has_it() -> None:
    obj, observed = an_instance(), Observed({"main": alive()})
    baseline = Baseline.of(obj, observed, ("1",))
    assert baseline.holds(obj, observed, ("1",))
    assert baseline.holds(an_instance(assignment=held(env="")), observed, ("1",))
    assert not baseline.holds(an_instance(assignment=held()), observed, ("1",))
    assert not baseline.holds(obj, observed, ("2",))
    for other in (
        Observed({"main": ended()}),
        Observed({"main": alive(1)}),
        Observed({"main": Run(1, "run-0", NOW)}),
        Observed({"main": alive()}, obstacle=UNREACHABLE),
        Observed({"main": alive()}, overuse=Overuse("DiskPressure", "full")),
    ):
        assert not baseline.holds(obj, other, ("1",))
