"""The files of tasks that are gone are removed in the background, and those of others are not."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime import task_logs
from rota.runtime.task_logs import TaskLogs
from tests.until import until_async

PATIENCE_SECONDS = 30.0


def nobody(namespace: str, name: str) -> str:
    return ""


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[TaskLogs]:
    made = TaskLogs(tmp_path)
    yield made
    await made.close()


def put(folder: Path, *names: str, namespace: str = "default") -> None:
    (folder / namespace).mkdir(exist_ok=True)
    for name in names:
        (folder / namespace / name).write_text("said")
        os.utime(folder / namespace / name, (1, 1))


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*/*"))


async def test_all_files_of_a_task_go_and_no_others(tmp_path: Path, logs: TaskLogs) -> None:
    put(tmp_path, "a@1.log", "a@1.result", "a@2.log", "ab@3.log", "b@4.log")
    put(tmp_path, "a@5.log", namespace="other")
    logs.drop("default", "a", nobody)
    await until_async(lambda: there(tmp_path) == ["a@5.log", "ab@3.log", "b@4.log"])


async def test_the_files_of_a_later_namesake_stay(tmp_path: Path, logs: TaskLogs) -> None:
    put(tmp_path, "a@old.log", "a@new.log", "a@new.result")
    logs.drop("default", "a", lambda namespace, name: "new")
    await until_async(lambda: there(tmp_path) == ["a@new.log", "a@new.result"])


async def test_nothing_is_kept_of_tasks_whose_files_are_removed_or_never_were(tmp_path: Path, logs: TaskLogs) -> None:
    for number in range(1000):
        logs.drop(f"namespace-{number % 7}", f"task-{number}", nobody)
    await until_async(lambda: logs._removing is None)
    assert logs._gone == {}


async def test_what_cannot_be_removed_is_tried_again(
    tmp_path: Path, logs: TaskLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_logs, "RETRY_SECONDS", 0.01)
    put(tmp_path, "a@1.log")
    failures, unlink = [PermissionError("read-only")] * 3, task_logs._unlink

    def fails_at_first(paths: Any) -> None:
        if failures:
            raise failures.pop()
        unlink(paths)

    monkeypatch.setattr(task_logs, "_unlink", fails_at_first)
    logs.drop("default", "a", nobody)
    await until_async(lambda: there(tmp_path) == [])


async def test_no_more_than_a_bound_wait_to_be_removed(
    tmp_path: Path, logs: TaskLogs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_logs, "NAMES_MAX", 5)
    for number in range(9):
        logs.drop("default", f"task-{number}", nobody)
    assert len(logs._gone["default"]) == 5
    assert "task-8 are not removed before the server starts again" in caplog.text


async def test_a_sweep_removes_what_is_left_of_tasks_that_went_unseen(tmp_path: Path, logs: TaskLogs) -> None:
    put(tmp_path, "there@1.log", "there@old.log", "gone@2.log", "gone@2.result")
    put(tmp_path, "gone@3.log", namespace="gone-too")
    (tmp_path / "default" / "under-way@4.log").write_text("a call that is not written down yet")
    os.utime(tmp_path / "default" / "under-way@4.log", (2**32, 2**32))
    logs.sweep(lambda namespace, name: "1" if name == "there" else "")
    await until_async(lambda: logs._sweeping is not None and logs._sweeping.done())
    assert there(tmp_path) == ["there@1.log", "under-way@4.log"]


async def test_the_end_does_not_wait_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_logs, "END_SECONDS_MAX", 0.01)
    go_on, removed = threading.Event(), threading.Event()

    def slow(paths: Any) -> None:
        go_on.wait(PATIENCE_SECONDS)
        removed.set()

    monkeypatch.setattr(task_logs, "_unlink", slow)
    put(tmp_path, "a@1.log")
    logs = TaskLogs(tmp_path)
    logs.drop("default", "a", nobody)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await logs.close()
    assert not removed.is_set()
    go_on.set()
