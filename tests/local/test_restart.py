"""A new server in the place of the old one, while the work goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter

from tests.local.place import Place
from tests.tasks.chaos import Effects

TASKS, WORKERS = 12, 3
RESTARTS = 3


def test_what_runs_goes_on_under_a_new_server_at_the_same_address(place: Place) -> None:
    pid = place.start()
    place.pool(2)
    before, state = place.runs(), place.found().state
    assert len(before) == 2 and state is not None
    said = place.says("restart")
    after = place.found().state
    assert place.pid() != pid and after is not None
    assert (after.url, after.edge) == (state.url, state.edge) and after.url in said
    assert place.runs() == before
    instances = place.objects("inst")
    assert [one["status"].get("restarts", 0) for one in instances] == [0, 0]


def test_the_workers_of_a_function_are_counted_as_before(place: Place) -> None:
    place.start("--edge-port", "0")
    spec = {"entrypoint": "a:f", "source": {"inline": "def f(event, context):\n    return 1"}, "scale": {"min": 2}}
    function = {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": "warm"}, "spec": spec}
    (place.folder / "warm.json").write_text(json.dumps(function))
    place.says("apply", "-f", "warm.json")
    place.says("wait", "fn/warm")

    def counted() -> tuple[int, str]:
        (found,) = place.objects("fn")
        (ready,) = (one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready")
        return found["status"]["readyWorkers"], ready

    before = place.runs()
    assert counted() == (2, "True") and len(before) == 2
    place.says("restart")
    # Before its workers have come back, and when they have.
    assert counted() == (2, "True")
    assert place.says("call", "warm") == "1\n"
    place.says("wait", "fn/warm", "--for=jsonpath={.status.calls.succeeded}=1")
    assert counted() == (2, "True") and place.runs() == before


def test_a_restart_without_a_server_starts_one(place: Place) -> None:
    assert "there was no server to replace" in place.says("restart", "--port", "0")
    assert place.found().condition == "running"


def test_a_server_that_hangs_is_killed_and_its_work_goes_on(place: Place) -> None:
    pid = place.start()
    place.pool(1)
    before = place.runs()
    os.kill(pid, signal.SIGSTOP)
    assert "was killed" in place.says("restart")
    assert place.runs() == before


def test_a_new_server_that_does_not_come_up_leaves_the_work_running(place: Place) -> None:
    place.start()
    place.pool(1)
    before = place.runs()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = place.rota("restart", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 1 and "is taken" in refused.stderr
    assert place.runs() == before
    place.start()
    assert place.runs() == before


def test_under_restarts_no_task_is_lost_and_none_is_done_twice(place: Place) -> None:
    place.start()
    place.workers(WORKERS)
    effects = Effects(place.folder, place.home / "tasks" / "default")
    script = effects.script(inside=False, seconds=0.7)
    items = [
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": f"errand-{i}"},
            "spec": {"workerPoolRef": {"name": "crew"}, "command": ["sh", "-c", script]},
        }
        for i in range(TASKS)
    ]
    file = place.folder / "tasks.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    place.says("apply", "-f", str(file))
    for _ in range(RESTARTS):
        place.says("restart")
    names = [f"task/errand-{i}" for i in range(TASKS)]
    place.says("wait", *names, "--for=jsonpath={.status.phase}=Succeeded", "--timeout", "50s")
    tasks = place.objects("task")
    assert Counter(one["status"]["tries"] for one in tasks) == {1: TASKS}
    assert sorted(effects.count().values()) == [1] * TASKS
