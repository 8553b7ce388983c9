"""A project in memory is what the same files are on a server, and nothing of it is left."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rota.registry import ApiError
from rota.testing import DeployRefused, ManifestError, Project
from tests.testing.projects import COMMANDS, MARCH, NIGHTLY

POOL = "apiVersion: rota.dev/v1alpha1\nkind: WorkerPool\nmetadata: {name: pool}\nspec: {worker: {}}\n"


def test_it_comes_from_a_file_a_folder_or_a_text(tmp_path: Path) -> None:
    (tmp_path / "rota.yaml").write_text(COMMANDS)
    for source in (tmp_path, tmp_path / "rota.yaml", str(tmp_path / "rota.yaml"), COMMANDS):
        with Project(source) as project:
            assert [one.metadata.name for one in project.list("Schedule")] == ["tidy"]


def test_it_comes_from_manifests(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    for source in (tmp_path, tmp_path / "pool.yaml", POOL):
        with Project(source) as project:
            assert project.get("WorkerPool", "pool").status.ready_replicas == 1


def test_defaults_and_rules_are_the_server_s() -> None:
    with Project(NIGHTLY) as project:
        assert project.get("Schedule", "report.nightly").spec.overlap == "Skip"
        bad = {"apiVersion": "rota.dev/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}, "spec": {"hard": 3}}
        with pytest.raises(ApiError, match="hard"):
            project.apply(bad)


def test_a_mistake_in_the_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rota.yaml").write_text(NIGHTLY.replace("cron:", "crn:"))
    with pytest.raises(ManifestError, match=r"rota\.yaml:14:9: functions\[0\].*crn: unknown key; did you mean cron"):
        Project(tmp_path).__enter__()
    with pytest.raises(ManifestError, match="no such file"):
        Project(tmp_path / "none.yaml").__enter__()


def test_what_a_server_would_refuse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rota.yaml").write_text(
        "name: shop\nfunctions:\n  - {name: a, schedules: [{name: s, cron: '@daily'}]}\n"
    )
    with pytest.raises(DeployRefused, match=r'rota\.yaml:3: Function "a" is neither on the server nor declared here'):
        Project(tmp_path).__enter__()


def test_variables_of_the_file_are_those_that_are_given() -> None:
    text = COMMANDS.replace("replicas: 1", "replicas: ${WORKERS}")
    with Project(text, environment={"WORKERS": "3"}) as project:
        assert project.get("WorkerPool", "workers").status.ready_replicas == 3


def test_it_may_be_in_a_namespace_of_its_own() -> None:
    with Project(COMMANDS, namespace="shop") as project:
        assert project.run("tidy").succeeded and project.get("Schedule", "tidy").metadata.namespace == "shop"


def test_it_is_changed_while_time_goes_on() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        project.advance(days=2)
        project.apply(NIGHTLY.replace("0 3 * * *", "0 */12 * * *"))
        project.advance(days=1)
        assert [run.at.hour for run in project.runs("report.nightly")] == [3, 3, 12, 0]


def test_a_paused_schedule_is_silent_until_it_is_resumed() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        project.pause("report.nightly")
        project.advance(days=3)
        assert project.runs("report.nightly") == []
        project.resume("report.nightly")
        project.advance(days=1)
        assert len(project.runs("report.nightly")) == 1


def test_a_run_by_hand_is_beside_the_ticks() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        run = project.run("report.nightly")
        assert run.manual and run.succeeded and run.at == project.now


def test_a_task_is_cancelled_and_a_schedule_deleted() -> None:
    with Project(COMMANDS, at=MARCH) as project:
        project.on("workers", takes=300)
        run = project.run("tidy")
        assert run.phase == "Running"
        project.cancel(run.task)
        assert [run.phase for run in project.runs("tidy")] == ["Cancelled"]
        project.delete("Schedule", "tidy")
        project.advance(days=1)
        assert project.list("Task") == [] and len(project.runs("tidy")) == 1


def test_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    with Project(COMMANDS) as project:
        project.on("workers", takes=300)
        project.run("tidy")
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="inside its `with`"):
        project.advance(days=1)


async def test_nothing_is_left_of_the_async_form() -> None:
    before, tasks = set(threading.enumerate()), asyncio.all_tasks()
    async with Project(NIGHTLY, at=MARCH) as project:
        await project.advance(days=1)
        await project.until("2026-03-04")
        assert [run.at.day for run in await project.runs()] == [1, 2, 3]
        await project.on("report", lambda call: "x", takes=5)
        assert (await project.run("report.nightly")).phase == "Running"
        await project.run_until_idle()
        assert (await project.calls("report"))[-1].result == "x"
        await project.pause("report.nightly")
        assert (await project.get("Schedule", "report.nightly")).spec.enabled is False
    assert set(threading.enumerate()) <= before and asyncio.all_tasks() == tasks
    with pytest.raises(ManifestError, match="text:"):
        async with Project("name: 3\n"):
            pass
    assert set(threading.enumerate()) <= before


async def test_async_code_is_told_to_use_the_async_form() -> None:
    with pytest.raises(RuntimeError, match="async with Project"):
        Project(NIGHTLY).__enter__()
