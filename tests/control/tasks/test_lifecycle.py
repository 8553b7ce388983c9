from __future__ import annotations

import pytest

from rota.api import ObjectMeta, Task
from rota.api.model import Ref
from rota.api.task import ATTEMPTS_MAX, Retry, TaskSpec, TaskStatus
from rota.control.tasks import lifecycle
from rota.runtime.runner.jobs import Outcome, Reason


def a_task(status: TaskStatus | None = None, **spec: object) -> Task:
    return Task(
        metadata=ObjectMeta(name="t", namespace="default", uid="u"),
        spec=TaskSpec(command=["true"], worker_pool_ref=Ref(name="p"), **spec),  # type: ignore[arg-type]
        status=status,
    )


def ended(task: Task, reason: Reason = "Succeeded", **more: object) -> Task:
    """A task after another attempt."""
    outcome = Outcome(lifecycle.assignment_id(task), reason, 10.0, 20.0, **more)  # type: ignore[arg-type]
    status = lifecycle.after(task, task.status or TaskStatus(), "p-0", outcome)
    return Task(metadata=task.metadata, spec=task.spec, status=status)


def test_an_attempt_has_an_id_of_its_own_until_it_is_recorded() -> None:
    task = a_task()
    assert lifecycle.assignment_id(task) == lifecycle.assignment_id(a_task()) == "u.0"
    assert lifecycle.assignment_id(ended(task, "WorkerLost")) == "u.1"


def test_a_success_is_the_end() -> None:
    task = ended(a_task(), exit_code=0, result='{"a":1}', outputs={"k": "v"}, usage={"tokens": 3.0})
    status = task.status
    assert status is not None and task.over()
    assert (status.phase, status.reason, status.result, status.outputs) == ("Succeeded", None, {"a": 1}, {"k": "v"})
    assert status.attempts[0].instance == "p-0" and status.usage == {"tokens": 3.0}


@pytest.mark.parametrize("reason", ["Failed", "Timeout"])
def test_a_failure_is_the_end_unless_it_is_to_be_tried_again(reason: Reason) -> None:
    assert ended(a_task(), reason).status.phase == "Failed"  # type: ignore[union-attr]
    retry = Retry(limit=2, reasons=["Failed", "Timeout"])
    task = a_task(retry=retry)
    for _ in range(2):
        task = ended(task, reason)
        assert task.status is not None and (task.status.phase, task.status.reason) == ("Waiting", "Retrying")
    task = ended(task, reason)
    assert task.status is not None and (task.status.phase, task.status.tries) == ("Failed", 3)


def test_a_lost_worker_is_not_the_tasks_fault() -> None:
    task = a_task(retry=Retry(limit=1, reasons=["Failed", "WorkerLost"]))
    for _ in range(lifecycle.LOSSES_MAX):
        task = ended(task, "WorkerLost")
        assert task.status is not None and task.status.phase == "Waiting"
    assert lifecycle.retried_at(task) == 0.0, "at once"
    task = ended(task, "Failed")
    assert task.status is not None and task.status.phase == "Waiting", "that was the first try that counts"
    task = ended(task, "WorkerLost")
    assert task.status is not None and (task.status.phase, task.status.reason) == ("Failed", "WorkerLost")


def test_one_that_does_not_want_to_be_tried_again_is_not() -> None:
    assert ended(a_task(retry=Retry(reasons=[])), "WorkerLost").status.phase == "Failed"  # type: ignore[union-attr]
    assert ended(a_task(cancel=True), "WorkerLost").status.phase == "Failed"  # type: ignore[union-attr]


def test_the_pause_doubles() -> None:
    task = a_task(retry=Retry(limit=50, backoff_seconds=5, reasons=["Failed"]))
    pauses = []
    for _ in range(12):
        task = ended(task, "Failed")
        pauses.append(lifecycle.retried_at(task) - 20.0)
    assert pauses[:3] == [5, 10, 20] and pauses[-1] == lifecycle.BACKOFF_SECONDS_MAX


def test_attempts_are_bounded_and_still_counted() -> None:
    task = a_task(retry=Retry(limit=100, reasons=["Failed"]))
    for _ in range(50):
        task = ended(task, "Failed")
    assert task.status is not None and len(task.status.attempts) == ATTEMPTS_MAX and task.status.tries == 50


def test_of_a_large_result_there_is_the_digest_and_text_stays_text() -> None:
    assert lifecycle.result_of("x" * 5000).startswith("sha256:") and lifecycle.is_large("ä" * 2049)
    assert lifecycle.result_of("[" + "1," * 10 + "1]") == [1] * 11
    assert lifecycle.result_of("no json") == "no json" and lifecycle.result_of("") is None
