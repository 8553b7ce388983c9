"""A graph of tasks that failed, on real workers: why it did, and how it is run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_task_runs import Place

OUTPUT = "echo '::rota output image=v2'"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_a_failed_graph_is_explained_to_its_cause_and_run_again_as_a_graph(place: Place, tmp_path: Path) -> None:
    place.rota("apply", "-f", "-", stdin=POOL)
    place.rota("run", "--name", "fetch", "--", "true")
    # The second try of it succeeds: it finds what the first has left in its persistent folder.
    build = f"{OUTPUT}; test -e ~/tried || {{ touch ~/tried; echo no compiler; exit 3; }}"
    place.rota("run", "--name", "build", "--depends-on", "fetch", "--", "sh", "-c", build)
    place.rota("run", "--name", "test", "--depends-on", "build", "--", "sh", "-c", "echo got $ROTA_TASKS_BUILD_IMAGE")
    place.rota("run", "--name", "ship", "--depends-on", "test", "--", "true")
    place.rota("wait", "task/ship", code=1)

    why = place.ran("why", "task/ship").stdout
    assert "Task/build" in why and "no compiler" in why
    assert "`rota logs task/build`" in why and "`rota retry task/ship --failed`" in why

    alone = place.ran("retry", "task/ship")
    assert alone.returncode == 1 and "`rota retry task/ship --failed`" in alone.stderr
    again = place.rota("retry", "task/ship", "--failed")
    assert again.split() == [f"task.rota.dev/{name}-retry-1" for name in ("build", "test", "ship")]
    place.rota("wait", "task/ship-retry-1")
    assert place.rota("logs", "task/test-retry-1") == "got v2\n", "a script finds it under the name that it knows"
    assert place.rota("why", "task/ship-retry-1").startswith("Task/ship-retry-1 is ready")


POOL = """
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: crew}
spec:
  replicas: 1
  reset: Keep
  worker: {type: shell}
"""
