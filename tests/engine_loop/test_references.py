"""The graph of references, and whether an object may go on: as pure functions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api import KINDS, Object, Readiness, Task, WorkerPool, Workspace
from rota.api.references import Need
from rota.engine import CASCADE, FORCE, NO_CASCADE, Blocked, Dependency, Failed, Graph
from rota.engine.references import (
    CYCLE,
    FAILED,
    NAMED_AT_ONCE_MAX,
    NOT_FOUND,
    NOT_READY,
    decide,
    dependencies,
    id_of,
    kind_of,
    references_of,
    shown,
)


def made(kind: str, name: str, spec: Any, namespace: str = "default", status: Any = None, **meta: Any) -> Any:
    body = {"metadata": {"name": name, "namespace": namespace, **meta}, "spec": spec}
    return KINDS[kind].type.decode(msgspec.json.encode(body if status is None else {**body, "status": status}))


def task(name: str, *after: str, **more: Any) -> Task:
    found: Task = made("Task", name, {"function": {"name": "f"}, "dependsOn": list(after)}, **more)
    return found


def tid(name: str) -> str:
    return f"tasks.rota.dev/default/{name}"


# The graph.


def test_an_object_refers_to_what_its_fields_name_in_its_own_namespace() -> None:
    spec = {
        "template": {
            "containers": [
                {"name": "main", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
            ],
            "instanceType": "big",
            "workspaceRef": {"name": "w"},
        }
    }
    graph = Graph()
    graph.put(made("WorkerPool", "p", spec, namespace="team"))
    assert [(edge.path, edge.target, edge.needs) for edge in graph.references("workerpools.rota.dev/team/p")] == [
        ("spec.template.containers[0].env[0].valueFrom.secretKeyRef", "secrets/team/s", "readiness"),
        ("spec.template.instanceType", "instancetypes.rota.dev//big", "readiness"),
        ("spec.template.workspaceRef", "workspaces.rota.dev/team/w", "readiness"),
    ]


def test_those_that_need_existence_only_are_told_apart() -> None:
    graph = Graph()
    graph.put(task("t", "first"))
    pool = made("Task", "q", {"prompt": "x", "workerPoolRef": {"name": "p"}})
    graph.put(pool)
    assert graph.referrers(tid("first"), "readiness") == [tid("t")]
    assert graph.referrers("workerpools.rota.dev/default/p") == [tid("q")]
    assert graph.referrers("workerpools.rota.dev/default/p", "existence") == [tid("q")]
    assert graph.referrers("workerpools.rota.dev/default/p", "readiness") == []


def test_one_that_needs_both_counts_as_needing_readiness() -> None:
    template = {"command": ["true"], "worker": {"credentials": {"type": "api-key", "secretRef": {"name": "s"}}}}
    spec = {"source": {"github": {"repo": "acme/app", "secretRef": {"name": "s"}}}, "taskTemplate": template}
    graph = Graph()
    graph.put(made("TaskSpawner", "t", spec))
    assert {edge.needs for edge in graph.references("taskspawners.rota.dev/default/t")} == {"existence", "readiness"}
    assert graph.referrers("secrets/default/s", "readiness") == ["taskspawners.rota.dev/default/t"]


def test_an_object_that_refers_to_itself_is_a_cycle() -> None:
    graph = Graph()
    graph.put(task("a", "a"))
    assert graph.cycle(tid("a")) == (tid("a"), tid("a"))


def test_the_shortest_cycle_through_an_object_is_found_and_none_beside_it() -> None:
    graph = Graph()
    for name, after in {"a": ["b", "x"], "b": ["c", "a"], "c": ["a"], "x": ["a2"], "a2": [], "out": ["a"]}.items():
        graph.put(task(name, *after))
    assert graph.cycle(tid("a")) == (tid("a"), tid("b"), tid("a"))
    assert graph.cycle(tid("c")) == (tid("c"), tid("a"), tid("b"), tid("c"))
    assert graph.cycle(tid("out")) is None and graph.cycle(tid("x")) is None


NAMES = [f"n{i}" for i in range(5)]
CHANGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.none() | st.lists(st.sampled_from(NAMES), unique=True, max_size=4)),
    max_size=20,
)


@given(CHANGES)
def test_the_graph_is_what_a_recount_of_the_objects_gives(changes: list[tuple[str, list[str] | None]]) -> None:
    graph = Graph()
    there: dict[str, list[str]] = {}
    for name, after in changes:
        if after is None:
            there.pop(name, None)
            graph.remove(tid(name))
        else:
            there[name] = after
            graph.put(task(name, *after))
    assert len(graph) == sum(len(after) + 1 for after in there.values()), "each refers to its function too"
    for name in NAMES:
        referrers = sorted(tid(one) for one, after in there.items() if name in after)
        assert graph.referrers(tid(name)) == referrers
        assert graph.referrers(tid(name), "readiness") == referrers
        wanted = [tid(one) for one in there.get(name, [])]
        assert [edge.target for edge in graph.references(tid(name)) if edge.path != "spec.function.name"] == wanted
    assert graph.referrers("functions.rota.dev/default/f") == sorted(map(tid, there))
    for name in there:
        graph.remove(tid(name))
    assert len(graph) == 0 and not any(graph.referrers(tid(name)) for name in NAMES)


def test_a_node_is_shown_as_people_write_it() -> None:
    assert shown("tasks.rota.dev/default/a") == "Task/a"
    assert shown("tasks.rota.dev/team/a") == "Task/team/a"
    assert shown("locations.rota.dev//ams") == "Location/ams"
    assert shown("shipped//all") == "shipped/all" and kind_of("shipped//all") is None
    assert id_of(task("a")) == tid("a")


# How what is needed is.


def look(obj: Object, *others: Object, needs: Need | None = None) -> dict[str, str]:
    there = {id_of(other): other for other in others}
    found = dependencies(obj, lambda kind, ns, name: there.get(kind.key(ns, name)), needs=needs)
    return {shown(d.id): d.state for d in found}


READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "R", "observedGeneration": 1}]}
UNREADY = {"conditions": [{"type": "Ready", "status": "False", "reason": "R", "observedGeneration": 1}]}
GONE = "2024-05-06T07:08:09Z"
SPEC = {"repo": "https://git.example/app"}


def workspace(**more: Any) -> Workspace:
    found: Workspace = made("Workspace", "w", SPEC, **{"generation": 1, **more})
    return found


def pool() -> WorkerPool:
    found: WorkerPool = made("WorkerPool", "p", {"worker": {"workspaceRef": {"name": "w"}}})
    return found


@pytest.mark.parametrize(
    ("there", "state"),
    [
        ([], "Absent"),
        ([workspace()], "Pending"),
        ([workspace(status=UNREADY)], "Pending"),
        ([workspace(status=READY)], "Ready"),
        ([workspace(status=READY, generation=2)], "Pending"),
        ([workspace(status=READY, deletionTimestamp=GONE)], "Pending"),
        ([workspace(status=READY, namespace="other")], "Absent"),
    ],
    ids=["absent", "unobserved", "unready", "ready", "out of date", "being deleted", "in another namespace"],
)
def test_what_must_be_ready(there: list[Object], state: str) -> None:
    assert look(pool(), *there) == {"Workspace/w": state}


@pytest.mark.parametrize(("phase", "state"), [("Succeeded", "Ready"), ("Failed", "Failed"), ("Running", "Pending")])
def test_a_task_must_have_succeeded(phase: str, state: str) -> None:
    assert look(task("b", "a"), task("a", status={"phase": phase}))["Task/a"] == state


def test_what_must_only_exist_may_be_in_any_state() -> None:
    claim = made("Claim", "c", {"poolRef": {"name": "p"}})
    assert look(claim) == {"WorkerPool/p": "Absent"}
    assert look(claim, pool()) == {"WorkerPool/p": "Ready"}
    assert look(claim, made("WorkerPool", "p", {"worker": {}}, deletionTimestamp=GONE)) == {"WorkerPool/p": "Ready"}
    assert look(claim, pool(), needs="readiness") == {"WorkerPool/p": "Pending"}


def test_something_that_is_referred_to_twice_is_needed_once_and_as_much_as_the_more_demanding_says() -> None:
    spec = {"worker": {"workspaceRef": {"name": "w"}, "agentConfigRefs": [{"name": "base"}, {"name": "base"}]}}
    found = made("WorkerPool", "p", spec)
    assert look(found, workspace(status=READY)) == {"Workspace/w": "Ready", "AgentConfig/base": "Absent"}
    assert len(references_of(found)) == 3


def test_one_that_refers_to_nothing_needs_nothing() -> None:
    assert look(made("Workspace", "w", SPEC)) == {} and not references_of(made("Secret", "s", None))


# Whether it may go on.

A, B = "tasks.rota.dev/default/a", "secrets/default/b"
RING = (A, tid("z"), A)


def needed(id_: str, state: Any, path: str = "spec.x", reason: str = "") -> Dependency:
    return Dependency(id_, path, state, Readiness("Pending", reason))


ABSENT, PENDING, BROKEN, FINE = needed(B, "Absent"), needed(A, "Pending"), needed(A, "Failed"), needed(B, "Ready")
SKIPPED = needed(A, "Skipped", reason="Cancelled")
NOT_THERE = "dependency not found: Secret/b (spec.x)"


@pytest.mark.parametrize(
    ("found", "level", "pending", "cycle", "outcome"),
    [
        ([], NO_CASCADE, False, None, None),
        ([FINE], FORCE, False, RING, None),
        ([ABSENT], NO_CASCADE, False, None, Blocked((B,), NOT_FOUND, NOT_THERE)),
        ([ABSENT], CASCADE, False, None, Failed((B,), NOT_FOUND, NOT_THERE)),
        ([ABSENT], CASCADE, True, None, Blocked((B,), NOT_FOUND, NOT_THERE)),
        ([PENDING], NO_CASCADE, True, None, Blocked((A,), NOT_READY, "not ready: Task/a")),
        ([PENDING], CASCADE, True, None, Blocked((A,), NOT_READY, "not ready: Task/a")),
        ([PENDING], CASCADE, False, None, Failed((A,), NOT_READY, "not ready: Task/a")),
        ([PENDING], FORCE, True, None, Failed((A,), NOT_READY, "not ready: Task/a")),
        (
            [SKIPPED],
            NO_CASCADE,
            False,
            None,
            Failed((A,), "DependencySkipped", "dependencies skipped: Task/a (Cancelled)"),
        ),
        ([SKIPPED, ABSENT], NO_CASCADE, False, None, Blocked((B,), NOT_FOUND, NOT_THERE)),
        ([BROKEN], NO_CASCADE, False, None, Failed((A,), FAILED, "dependencies failed: Task/a")),
        ([BROKEN], NO_CASCADE, False, RING, Failed((A,), FAILED, "dependencies failed: Task/a")),
        ([BROKEN, ABSENT], NO_CASCADE, False, None, Blocked((B,), NOT_FOUND, NOT_THERE)),
        (
            [BROKEN, ABSENT],
            CASCADE,
            False,
            None,
            Failed((B, A), NOT_FOUND, f"{NOT_THERE}; dependencies failed: Task/a"),
        ),
        (
            [PENDING],
            NO_CASCADE,
            True,
            RING,
            Blocked((A,), CYCLE, "dependency cycle detected: Task/a → Task/z → Task/a"),
        ),
        (
            [PENDING],
            FORCE,
            True,
            RING,
            Failed((A,), CYCLE, "dependency cycle detected: Task/a → Task/z → Task/a"),
        ),
        (
            [ABSENT, PENDING],
            NO_CASCADE,
            True,
            None,
            Blocked((B, A), NOT_FOUND, f"{NOT_THERE}; not ready: Task/a"),
        ),
    ],
)
def test_whether_it_may_go_on(found: Any, level: int, pending: bool, cycle: Any, outcome: Any) -> None:
    assert decide(found, level, lambda id_: pending, lambda awaited: cycle) == outcome
    assert decide(list(reversed(found)), level, lambda id_: pending, lambda awaited: cycle) == outcome


@pytest.mark.parametrize("level", [NO_CASCADE, CASCADE, FORCE])
@given(
    found=st.lists(
        st.builds(
            needed,
            st.sampled_from([A, B, tid("c"), tid("d")]),
            st.sampled_from(["Absent", "Pending", "Failed", "Skipped", "Ready"]),
        ),
        unique_by=lambda d: d.id,
    ),
    pending=st.sets(st.sampled_from([A, B, tid("c"), tid("d")])),
)
def test_it_waits_for_exactly_what_may_still_come(level: int, found: list[Dependency], pending: set[str]) -> None:
    outcome = decide(found, level, pending.__contains__, lambda awaited: None)
    undecided = {d.id for d in found if d.state in ("Absent", "Pending")}
    failed = {d.id for d in found if d.state in ("Failed", "Skipped")}
    if not undecided | failed:
        assert outcome is None
    elif (level == NO_CASCADE and undecided) or (level == CASCADE and undecided & pending):
        assert isinstance(outcome, Blocked) and outcome.on == tuple(sorted(undecided))
    else:
        assert isinstance(outcome, Failed) and outcome.because == tuple(sorted(undecided | failed))


def test_a_message_names_some_and_counts_the_rest() -> None:
    many = [needed(tid(f"t{i:02}"), "Pending") for i in range(NAMED_AT_ONCE_MAX + 3)]
    outcome = decide(many, NO_CASCADE, lambda id_: True, lambda awaited: None)
    assert isinstance(outcome, Blocked) and outcome.message.endswith(" and 3 more")
    assert outcome.message.count("Task/") == NAMED_AT_ONCE_MAX and len(outcome.on) == len(many)
