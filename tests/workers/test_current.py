"""A worker that was prepared a while ago runs a task on what its ref stands for when the task begins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.live import ROTA
from tests.workers.farm import API, Farm, farm, pool, workspace
from tests.workspace.conftest import Repo

MINUTES = 300.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm(tmp_path_factory.mktemp("current") / "home") as found:
        yield found


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    found = Repo(tmp_path / "origin")
    found.commit("file", "old\n")
    return found


def warm(made: Farm, name: str, repo: Repo, reset: str = "Clean", **spec: Any) -> None:
    """A pool with one worker, which was prepared minutes ago."""
    made.apply(workspace(name, repo.url, **spec), pool(name, worker={"workspaceRef": {"name": name}}, reset=reset))
    made.ready(name, 1)
    [record] = [one for one in made.home.rglob("*.prepared") if json.loads(one.read_text())["commit"] == commit(repo)]
    record.write_text(json.dumps({**json.loads(record.read_text()), "known": time.time() - MINUTES}))
    for mirror in (made.home / "mirrors").glob("*.git/rota-refreshed"):
        os.utime(mirror, (time.time() - MINUTES,) * 2)
    # The next runner takes up what this one has prepared, and takes it to be as old as the record says.
    before = made.runners()[f"{name}-0"]
    os.kill(before, signal.SIGKILL)
    made.until(lambda: made.runners().get(f"{name}-0", before) != before)
    made.ready(name, 1)
    made.until(lambda: made.instance(f"{name}-0")["status"].get("restarts") == 1)


def commit(repo: Repo) -> str:
    return repo.git("rev-parse", "trunk")


def run(made: Farm, name: str, pool_: str) -> Any:
    """The status of a task that shows a file of its tree, when it is over."""
    task = {
        "apiVersion": API,
        "kind": "Task",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"command": ["cat", "file"], "workerPoolRef": {"name": pool_}},
    }
    made.apply(task)

    def over() -> Any:
        status = made.read("task", name).get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    return made.until(over)


def log(made: Farm, name: str) -> str:
    return said(made, "logs", f"task/{name}")


def said(made: Farm, *arguments: str) -> str:
    env = {**os.environ, "ROTA_HOME": str(made.home)}
    return subprocess.run([ROTA, *arguments], capture_output=True, text=True, timeout=60, check=True, env=env).stdout


def test_the_first_task_of_a_warm_worker_runs_on_what_the_branch_is_now(made: Farm, repo: Repo) -> None:
    warm(made, "branch", repo, ref="trunk")
    new = repo.commit("file", "new\n")
    status = run(made, "moved", "branch")
    assert status["phase"] == "Succeeded" and log(made, "moved") == "new\n"
    assert (status["commit"], status["attempts"][0]["commit"]) == (new, new) and "note" not in status["attempts"][0]
    assert new in said(made, "get", "task", "moved", "-o", "wide") and new in said(made, "describe", "task", "moved")


def test_so_it_is_with_the_default_branch_and_a_tag_that_moves(made: Farm, repo: Repo) -> None:
    repo.git("tag", "stable")
    warm(made, "tag", repo, ref="stable")
    repo.commit("file", "new\n")
    repo.git("tag", "-f", "stable")
    run(made, "tagged", "tag")
    assert log(made, "tagged") == "new\n"


def test_a_branch_that_has_not_moved_keeps_its_tree(made: Farm, repo: Repo) -> None:
    warm(made, "still", repo, setup=["sh", "-c", "date +%s%N > made"])
    tree = next(path for path in made.home.rglob("repo/made") if (path.parent / "file").read_text() == "old\n")
    before = tree.stat().st_ino
    repo_commit = commit(repo)
    task = {"command": ["stat", "-c", "%i", "made"], "workerPoolRef": {"name": "still"}}
    made.apply({"apiVersion": API, "kind": "Task", "metadata": {"name": "still"}, "spec": task})
    made.until(lambda: made.read("task", "still").get("status", {}).get("phase") == "Succeeded")
    assert log(made, "still") == f"{before}\n"
    assert made.read("task", "still")["status"]["commit"] == repo_commit


def test_where_the_origin_is_away_the_task_runs_on_what_there_is_and_says_so(made: Farm, repo: Repo) -> None:
    warm(made, "away", repo, ref="trunk")
    old = commit(repo)
    repo.path.rename(repo.path.with_name("elsewhere"))
    status = run(made, "alone", "away")
    [attempt] = status["attempts"]
    assert status["phase"] == "Succeeded" and attempt["commit"] == old
    note = attempt["note"]
    assert f"its tree is of {old[:12]}, which was trunk" in note and "it may have moved since" in note
    assert log(made, "alone") == f"[rota: {note}]\nold\n"


def test_a_commit_is_what_it_is_and_nobody_is_asked(made: Farm, repo: Repo) -> None:
    warm(made, "fixed", repo, ref=commit(repo))
    repo.path.rename(repo.path.with_name("elsewhere"))
    status = run(made, "fixed", "fixed")
    assert log(made, "fixed") == "old\n" and "note" not in status["attempts"][0]


def test_what_is_kept_between_holders_stays_as_it_is(made: Farm, repo: Repo) -> None:
    warm(made, "kept", repo, reset="Keep", ref="trunk")
    old = commit(repo)
    repo.commit("file", "new\n")
    status = run(made, "kept", "kept")
    assert log(made, "kept") == "old\n" and status["commit"] == old


def test_a_task_whose_new_tree_cannot_be_made_is_tried_again(made: Farm, repo: Repo) -> None:
    warm(made, "broken", repo, ref="trunk", setup=["test", "-e", "file"])
    repo.git("rm", "-q", "file")
    repo.commit("other")
    task = {"command": ["cat", "file"], "workerPoolRef": {"name": "broken"}}
    made.apply({"apiVersion": API, "kind": "Task", "metadata": {"name": "broken"}, "spec": task})

    def lost() -> Any:
        return [
            one
            for one in made.read("task", "broken").get("status", {}).get("attempts", [])
            if one["reason"] == "WorkerLost"
        ]

    made.until(lost)
    repo.commit("file", "mended\n")
    made.until(lambda: made.read("task", "broken")["status"].get("phase") == "Succeeded")
    assert log(made, "broken").endswith("mended\n")
