"""Events for what a person should notice: broken instances, failed tasks; none for what is merely on its way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_task_runs import Place
from tests.until import until

POOL = """
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: %s}
spec:
  replicas: 1
  %s
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("home"))
    try:
        made.rota("apply", "-f", "-", stdin=POOL % ("crew", "worker: {type: shell}"))
        yield made
    finally:
        made.end()


def noticed(place: Place, kind: str, name: str) -> list[tuple[str, str]]:
    """Return the reason and message of every Event about an object."""
    found = json.loads(place.rota("get", "events", "-o", "json"))["items"]
    about = [one for one in found if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name)]
    return [(one["reason"], one["message"]) for one in about]


def test_an_instance_that_ends_again_and_again_is_noticed(place: Place) -> None:
    spec = "template: {containers: [{name: main, command: [sh, -c, 'exit 3']}]}"
    place.rota("apply", "-f", "-", stdin=POOL % ("broken", spec))
    found = until(lambda: dict(noticed(place, "Instance", "broken-0")).get("InstanceCrashing"))
    assert found.startswith("it exited with code 3")
    place.rota("delete", "wp/broken")


def test_a_task_that_fails_is_noticed_and_so_is_each_try(place: Place) -> None:
    place.rota("run", "-f", "--name", "bad", "--", "sh", "-c", "echo no compiler; exit 3", code=3)
    assert until(lambda: noticed(place, "Task", "bad")) == [("TaskFailed", "Failed with exit code 3: no compiler")]
    task = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "twice"},
        "spec": {
            "command": ["false"],
            "workerPoolRef": {"name": "crew"},
            "retry": {"limit": 1, "backoffSeconds": 0, "reasons": ["Failed"]},
        },
    }
    place.rota("apply", "-f", "-", stdin=json.dumps(task))
    found = until(lambda: len(said := noticed(place, "Task", "twice")) == 2 and said)
    assert sorted(reason for reason, _ in found) == ["AttemptFailed", "TaskFailed"]


def test_a_chain_that_is_applied_back_to_front_makes_no_noise(place: Place) -> None:
    names = ["third", "second", "first"]
    tasks = [
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"command": ["true"], "workerPoolRef": {"name": "crew"}, "dependsOn": names[i + 1 : i + 2]},
        }
        for i, name in enumerate(names)
    ]
    for task in tasks:
        place.rota("apply", "-f", "-", stdin=json.dumps(task))
    place.rota("wait", "task/third")
    place.rota("run", "-f", "--name", "after", "--", "false", code=1)
    # What is recorded is written in order: when this one's is there, there are none of those before.
    until(lambda: noticed(place, "Task", "after"))
    assert [noticed(place, "Task", name) for name in names] == [[], [], []]


def test_a_scheduled_call_that_fails_is_noticed_at_its_function(place: Place, tmp_path: Path) -> None:
    code = "def handler(event, context):\n    raise ValueError('no data')\n"
    (tmp_path / "rota.yaml").write_text(
        "name: shop\nfunctions:\n  - name: report\n    entrypoint: main:handler\n"
        f"    source: {{inline: {json.dumps(code)}}}\n"
        "    schedules:\n      - {name: nightly, cron: '0 0 1 1 *'}\n"
    )
    place.rota("deploy", "-f", str(tmp_path))
    place.rota("schedule", "run", "report.nightly")
    (found,) = until(lambda: noticed(place, "Function", "report"))
    assert found[0] == "TaskFailed" and "no data" in found[1]
