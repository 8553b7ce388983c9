"""Faults of other systems with tasks on workers that stay. Those of controllers are tested beside these."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from rota.manifest import loads
from rota.manifest.project_format import FILE_NAME as PROJECT_FILE
from rota.runtime import composing
from rota.runtime.interface import Order, Owner, Subject
from rota.runtime.places import Places
from rota.runtime.runner.jobs import Job
from rota.runtime.runner.messages import BoxPlace, Configure
from rota.runtime.runner.tasklog import LOG_BYTES_MAX
from rota.runtime.runner.worker import Worker
from tests.tasks.errands import SECONDS_MAX, Errands
from tests.until import until_async
from tests.workers.apart import apart

ROOT = Path(__file__).parents[2]


async def test_a_runner_that_is_started_again_does_not_run_a_finished_task_again(errands: Errands) -> None:
    await errands.site.up()
    errands.assign("a.0", errands.effect("echo '::rota output k=v'"))
    first = await errands.outcome("a.0")
    await errands.site.kill()
    await errands.restart()
    errands.assign("a.0", errands.effect())
    assert await errands.outcome("a.0", 2) == first and first.outputs == {"k": "v"}
    errands.acknowledge("a.0")
    await errands.site.until("Idle")
    assert errands.done() == ["a.0"]


async def test_a_task_that_was_acknowledged_is_not_run_again_either(errands: Errands) -> None:
    await errands.site.up()
    await errands.run("a.0", errands.effect())
    await errands.site.kill()
    await errands.site.up()
    errands.assign("a.0", errands.effect())
    await errands.run("b.0", errands.effect())
    assert errands.done() == ["a.0", "b.0"]


async def test_a_task_that_ran_when_its_runner_was_killed_is_lost_and_not_begun_again(errands: Errands) -> None:
    await errands.site.up()
    errands.assign("a.0", errands.effect("sleep 4711"))
    await until_async(lambda: errands.done() == ["a.0"])
    await errands.site.kill()
    await errands.restart()
    errands.assign("a.0", errands.effect())
    assert (await errands.outcome("a.0")).reason == "WorkerLost"
    errands.acknowledge("a.0")
    await errands.run("b.0", errands.effect())
    assert errands.done() == ["a.0", "b.0"]


async def test_what_a_runner_that_is_asked_to_end_has_to_say_is_heard(errands: Errands) -> None:
    await errands.site.up()
    errands.assign("a.0", errands.effect("sleep 4711"))
    await until_async(lambda: errands.done() == ["a.0"])
    await errands.terminate()
    assert [one.reason for one in errands.outcomes] == ["WorkerLost"]


async def test_what_a_runner_has_to_say_when_nobody_is_there_is_said_by_the_next(errands: Errands) -> None:
    await errands.site.up()
    errands.assign("a.0", errands.effect("sleep 4711"))
    await until_async(lambda: errands.done() == ["a.0"])
    await errands.site.close()
    await errands.terminate()
    await errands.reopen()
    await errands.restart()
    assert (await errands.outcome("a.0")).reason == "WorkerLost"


@pytest.mark.parametrize("script", ["touch left", "git init -q; touch .git/hooks/pre-commit", "touch ../home/left"])
async def test_between_two_tasks_the_workspace_is_made_anew(boxed_errands: Errands, script: str) -> None:
    await boxed_errands.site.up()
    assert (await boxed_errands.run("a.0", script)).reason == "Succeeded"
    found = await boxed_errands.run("b.0", 'echo "::rota result $(find . ../home -name left -o -name pre-commit)"')
    assert found.reason == "Succeeded" and found.result == ""


async def test_a_result_is_found_however_much_is_said_after_it(errands: Errands) -> None:
    await errands.site.up()
    much = f"head -c {2 * LOG_BYTES_MAX} /dev/zero | tr '\\0' '\\n'"
    outcome = await errands.run("a.0", f"echo '::rota output k=v'; echo '::rota result early'; {much}")
    assert (outcome.reason, outcome.outputs, outcome.result) == ("Succeeded", {"k": "v"}, "early")
    assert errands.log.stat().st_size <= LOG_BYTES_MAX


async def test_a_task_of_a_worker_without_a_sandbox_begins_in_its_tree(errands: Errands) -> None:
    await errands.site.up()
    outcome = await errands.run("a.0", 'echo "::rota result $PWD"')
    assert outcome.result == str(errands.site.tree)


async def test_a_task_of_a_worker_in_a_sandbox_begins_in_its_tree(boxed_errands: Errands) -> None:
    await boxed_errands.site.up()
    assert (await boxed_errands.run("a.0", 'echo "::rota result $PWD"')).result == "/workspace/repo"


@apart
async def test_a_worker_that_is_asked_to_end_at_the_instant_at_which_its_box_ends_does_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come of the end of a task that has a worker of its own: the reset, and the end of the worker."""
    told = asyncio.Event()
    worker = Worker(1, tmp_path, tmp_path / "note", told.set)
    living = asyncio.create_task(worker.live())
    worker.configure(_configuration(tmp_path))
    await _until(worker, told, "Idle")
    worker.hold("a")
    ended = asyncio.subprocess.Process.wait

    async def and_be_asked_to_end(process: asyncio.subprocess.Process) -> int:
        code = await ended(process)
        living.cancel()
        return code

    monkeypatch.setattr(asyncio.subprocess.Process, "wait", and_be_asked_to_end)
    worker.release()
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.wait((living,))
    assert living.cancelled()


@apart
async def test_a_worker_that_cannot_write_down_how_a_task_ended_ends_so_that_the_next_one_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asyncio.Event()
    worker = Worker(1, tmp_path, tmp_path / "note", told.set)
    living = asyncio.create_task(worker.live())
    worker.configure(_configuration(tmp_path))
    await _until(worker, told, "Idle")
    full = OSError(errno.ENOSPC, "the disk is full")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", Mock(side_effect=full))
        worker.jobs.assign(Job(id="a.0", kind="command", argv=("true",), env={}, cwd="repo"))
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.wait((living,))
    assert living.exception() is full
    assert [(one.id, one.reason) for one in Worker(2, tmp_path, tmp_path / "note", told.set).jobs.pending()] == [
        ("a.0", "Succeeded")
    ]


def _configuration(folder: Path) -> Configure:
    subject = Subject("default", "w-0", "uid")
    order = Order(
        subject=subject,
        container="worker",
        number=0,
        argv=(),
        env={},
        has_runner=True,
        storage_name="w-0",
        storage_path="/workspace",
        storage_owner=Owner("w", "pool"),
        isolation="none",
    )
    places = Places(folder / "home")
    places.folder(subject).mkdir(parents=True)
    box = composing.box(places, order, "digest")
    place = BoxPlace(box.argv, box.env, box.folder, box.inside, box.record, box.uid)
    return Configure("digest", place, "Clean")


async def _until(worker: Worker, told: asyncio.Event, phase: str) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while worker.report.phase != phase:
            told.clear()
            await told.wait()


def _shown() -> Iterator[tuple[str, str]]:
    """Every manifest that is shown to people: whole files, and parts of pages."""
    for path in sorted((ROOT / "examples").rglob("*.y*ml")):
        if path.name != PROJECT_FILE:
            yield str(path.relative_to(ROOT)), path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)):
            if re.search(r"^apiVersion:", text, re.MULTILINE):
                yield f"{path.relative_to(ROOT)}#{number}", text


@pytest.mark.parametrize(("where", "text"), [pytest.param(*shown, id=shown[0]) for shown in _shown()])
def test_what_is_shown_as_an_example_is_accepted(where: str, text: str) -> None:
    assert loads(text, where)


def test_what_the_example_of_agents_declares_is_accepted() -> None:
    spec = importlib.util.spec_from_file_location("start", ROOT / "examples" / "agents" / "start.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    declared = [*example.pool("default", "file:///shop"), *example.tasks("default", "1")]
    assert len(declared) > len(example.FEATURES)
    assert len(loads("---\n".join(f"{json.dumps(one)}\n" for one in declared), "start.py")) == len(declared)
