from __future__ import annotations

from rota.api import Object, ObjectMeta, Task, WorkerPool
from rota.api.kind import Kind
from rota.api.model import Ref
from rota.api.pool import WorkerPoolSpec
from rota.api.task import TaskSpec
from rota.api.worker import WorkerConfig
from rota.client import Key
from rota.control.tasks.locks import NAMED_MAX, Locks


class Pools:
    """Pools by name; the name of the workspace is theirs."""

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        worker = WorkerConfig(workspace_ref=Ref(name=name.partition("-")[0]))
        return WorkerPool(metadata=ObjectMeta(name=name, namespace=namespace), spec=WorkerPoolSpec(worker=worker))


def a_task(name: str, branch: str | None = "main", pool: str = "shop", namespace: str = "default") -> Task:
    return Task(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-{namespace}-{name}"),
        spec=TaskSpec(command=["true"], worker_pool_ref=Ref(name=pool), branch=branch),
    )


def turn(locks: Locks, task: Task) -> bool:
    return locks.acquire(Pools(), task)  # type: ignore[arg-type]


def test_one_at_a_time_in_the_order_in_which_they_asked() -> None:
    woken: list[Key] = []
    locks = Locks(woken.append)
    first, second, third = a_task("b"), a_task("a"), a_task("c")
    assert [turn(locks, one) for one in (first, second, third)] == [True, False, False]
    locks.leave(first)
    assert woken[0] == Key("default", "a") and turn(locks, second) and not turn(locks, third)
    locks.leave(third)
    locks.leave(second)
    assert turn(locks, first), "it asks anew"


def test_another_branch_workspace_or_namespace_is_another_lock() -> None:
    locks = Locks(lambda key: None)
    assert turn(locks, a_task("a"))
    assert turn(locks, a_task("b", branch="dev"))
    assert turn(locks, a_task("c", pool="docs"))
    assert turn(locks, a_task("d", namespace="other"))
    assert not turn(locks, a_task("e", pool="shop-fast")), "another pool on the same workspace"
    assert turn(locks, a_task("f", branch=None))


def test_one_that_runs_has_it_whoever_asked_before() -> None:
    locks = Locks(lambda key: None)
    early, runs = a_task("early"), a_task("runs")
    assert turn(locks, early)
    locks.take(Pools(), runs)  # type: ignore[arg-type]
    assert turn(locks, runs) and not turn(locks, early)


def test_one_that_is_gone_holds_nobody_up() -> None:
    locks = Locks(lambda key: None)
    first, second = a_task("a"), a_task("b")
    assert turn(locks, first) and not turn(locks, second)
    locks.gone(Key("default", "a"))
    assert turn(locks, second)


def test_the_next_in_line_are_told_who_has_it_and_the_others_left_alone() -> None:
    woken: list[Key] = []
    locks = Locks(woken.append)
    tasks = [a_task(f"t{number}") for number in range(NAMED_MAX + 4)]
    for one in tasks:
        turn(locks, one)
    assert locks.message(tasks[NAMED_MAX]) == "branch main is held by Task/t0"
    assert locks.message(tasks[-1]) == f"branch main is held by another task; more than {NAMED_MAX} are before this one"
    assert locks.place(tasks[-1]) == f"branch main is held by Task/t0, {NAMED_MAX + 2} more before it"
    assert woken == []
    locks.leave(tasks[0])
    assert [key.name for key in woken] == [f"t{number}" for number in range(1, NAMED_MAX + 2)]
    assert locks.message(tasks[NAMED_MAX + 1]) == "branch main is held by Task/t1"


def test_those_that_asked_before_one_that_runs_are_told_of_it() -> None:
    woken: list[Key] = []
    locks = Locks(woken.append)
    early = a_task("early")
    assert turn(locks, early)
    locks.take(Pools(), a_task("runs"))  # type: ignore[arg-type]
    assert woken == [Key("default", "early")] and locks.message(early) == "branch main is held by Task/runs"
