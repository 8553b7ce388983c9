"""Failed graphs that are run again: which tasks, under which names, and what they then depend on."""

from __future__ import annotations

from typing import Any

import pytest

from rota.control.tasks.retrying import RetryError, failed_graph

Object = dict[str, Any]


def task(name: str, phase: str = "Succeeded", *needs: str, because: str = "", **more: Any) -> Object:
    """Return a task that is over. `because`: why it failed, if not by itself."""
    spec = {"command": ["true"], "workerPoolRef": {"name": "crew"}, **({"dependsOn": list(needs)} if needs else {})}
    status: Object = {"phase": phase, "completionTime": "2026-01-01T00:00:00Z"}
    if phase == "Failed":
        status["reason"] = because or "Failed"
    return {"metadata": {"name": name, "labels": more.pop("labels", {})}, "spec": spec | more, "status": status}


def by_dependency(name: str, *needs: str, **more: Any) -> Object:
    return task(name, "Failed", *needs, because="DependencyFailed", **more)


def again(tasks: list[Object], *wanted: str) -> dict[str, list[str]]:
    """Return the new tasks in their order, each with what it depends on."""
    return {one["metadata"]["name"]: one["spec"].get("dependsOn", []) for one in failed_graph(tasks, wanted)}


def test_the_failed_one_and_all_between_run_again_in_order_and_what_succeeded_does_not() -> None:
    tasks = [
        by_dependency("ship", "test", "build"),
        by_dependency("test", "build"),
        task("build", "Failed", "fetch"),
        task("fetch"),
    ]
    assert list(again(tasks, "ship").items()) == [
        ("build-retry-1", ["fetch"]),
        ("test-retry-1", ["build-retry-1"]),
        ("ship-retry-1", ["test-retry-1", "build-retry-1"]),
    ]


def test_what_failed_beside_it_for_the_same_reason_runs_again_too_and_so_does_what_that_needs() -> None:
    tasks = [
        task("build", "Failed"),
        by_dependency("ship", "build"),
        by_dependency("docs", "build", "draw"),
        task("draw", "Cancelled"),
        task("other", "Failed"),
    ]
    assert again(tasks, "ship") == {
        "build-retry-1": [],
        "draw-retry-1": [],
        "docs-retry-1": ["build-retry-1", "draw-retry-1"],
        "ship-retry-1": ["build-retry-1"],
    }


def test_a_further_try_that_succeeded_is_depended_on_and_not_run_again() -> None:
    tasks = [
        task("build", "Failed"),
        task("build-retry-1", labels={"rota.dev/retry-of": "build"}),
        by_dependency("ship", "build"),
    ]
    assert again(tasks, "ship") == {"ship-retry-1": ["build-retry-1"]}


def test_a_failed_retry_is_retried_under_the_next_number() -> None:
    tasks = [
        task("build", "Failed"),
        by_dependency("ship", "build"),
        task("build-retry-1", "Failed", labels={"rota.dev/retry-of": "build"}),
        by_dependency("ship-retry-1", "build-retry-1", labels={"rota.dev/retry-of": "ship"}),
    ]
    assert again(tasks, "ship-retry-1") == {"build-retry-2": [], "ship-retry-2": ["build-retry-2"]}


def test_templates_name_the_new_tasks() -> None:
    text = 'a {{ tasks.build.outputs.image }} {{ tasks.fetch.outputs.x }} {{ "{{" }}'
    ship = by_dependency("ship", "build", "fetch", prompt=text, worker={"env": [{"name": "A", "value": text}]})
    (_, new) = failed_graph([task("build", "Failed"), task("fetch"), ship], ["ship"])
    fresh = 'a {{ tasks.build-retry-1.outputs.image }} {{ tasks.fetch.outputs.x }} {{ "{{" }}'
    assert new["spec"]["prompt"] == fresh and new["spec"]["worker"]["env"] == [{"name": "A", "value": fresh}]


def test_templates_in_what_a_function_is_called_with_name_the_new_tasks_too() -> None:
    payload = {"image": "{{ tasks.build.outputs.image }}", "more": [{"n": 1, "x": "{{ tasks.fetch.outputs.x }}"}]}
    call = {"name": "ship", "payload": payload}
    tasks = [task("build", "Failed"), task("fetch"), by_dependency("ship", "build", "fetch", function=call)]
    again = failed_graph(tasks, ["ship"])[-1]["spec"]["function"]
    assert again["payload"]["image"] == "{{ tasks.build-retry-1.outputs.image }}"
    assert again["payload"]["more"] == payload["more"] and again["name"] == "ship"


def test_a_dependency_that_succeeded_and_is_gone_is_left_out_unless_it_had_outputs() -> None:
    ship = by_dependency("ship", "gone", "build")
    ship["status"]["dependencies"] = [{"name": "gone", "uid": "u", "phase": "Succeeded"}]
    tasks = [ship, task("build", "Failed")]
    assert again(tasks, "ship") == {"build-retry-1": [], "ship-retry-1": ["build-retry-1"]}
    ship["status"]["dependencies"][0]["outputs"] = {"image": "x"}
    with pytest.raises(RetryError, match="task/gone, whose outputs task/ship may use, is no longer there"):
        again(tasks, "ship")


def test_a_dependency_that_never_was_is_refused() -> None:
    with pytest.raises(RetryError, match="task/nobody, on which task/ship depends, is not there"):
        again([task("ship", "Cancelled", "nobody")], "ship")


def test_a_ring_is_refused_whichever_of_it_was_cancelled() -> None:
    ring = [task("one", "Cancelled", "two"), by_dependency("two", "one"), by_dependency("after", "two")]
    for wanted in ("one", "two", "after"):
        with pytest.raises(RetryError, match=r"task/one, task/two depend on each other in a cycle") as refused:
            again(ring, wanted)
        assert "task/after" not in str(refused.value)


def test_one_that_succeeded_has_nothing_failed() -> None:
    with pytest.raises(RetryError, match="task/fetch has succeeded; `rota retry task/fetch`"):
        again([task("fetch")], "fetch")
