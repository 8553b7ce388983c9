"""Jobs: tasks that a client submits, and what it is told of their end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rota import ApiError, Client, Job, TaskFailed, TaskGone
from rota.api import Task, WorkerPool
from rota.api.task import TaskStatus
from rota.registry import Registry
from rota.store import MemoryStore
from tests.client.running import running
from tests.until import until_async

PATIENCE_SECONDS = 60.0


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a registry without controllers: the test says what becomes of tasks."""
    registry = Registry(MemoryStore())
    await registry.start()
    client = Client.local(registry)
    yield client
    await client.close()
    await registry.stop()


def task(name: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} if name else {}
    return {"metadata": metadata, "spec": {"command": ["true"], "workerPoolRef": {"name": "crew"}, **spec}}


def crew(type_: str) -> dict[str, Any]:
    spec = {"worker": {"type": type_}, "replicas": 1, "reset": "Keep"}
    return {"apiVersion": WorkerPool.api.api_version, "kind": "WorkerPool", "metadata": {"name": "crew"}, "spec": spec}


async def end(client: Client, name: str, **status: Any) -> None:
    found = await client.get(Task, name)
    await client.update_status(msgspec.structs.replace(found, status=TaskStatus(**{"phase": "Succeeded", **status})))


async def wait_for(job: Job) -> Task:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await job.wait()


async def test_a_job_has_the_result_of_its_task(client: Client) -> None:
    (job,) = await client.submit([task("a")])
    assert repr(job) == "Job('a', Submitted)"
    waiting = asyncio.create_task(job.result())
    await asyncio.sleep(0)
    await end(client, "a", result={"width": 800})
    assert await waiting == {"width": 800} and await job == {"width": 800}
    assert repr(job) == "Job('a', Succeeded)"


async def test_an_end_before_anybody_waits_is_not_missed(client: Client) -> None:
    jobs = await client.submit([task("a"), task("b")])
    for name in ("b", "a"):
        await end(client, name, result=name)
    assert [await job for job in jobs] == ["a", "b"]
    # The watch goes on, and tells of those that are submitted later.
    (later,) = await client.submit([task("c")])
    await end(client, "c", result=3)
    assert await later == 3


async def test_a_task_that_does_not_succeed_says_why(client: Client) -> None:
    (job,) = await client.submit([task("a")])
    await end(client, "a", phase="Failed", reason="Timeout", message="it took more than 5 s")
    with pytest.raises(TaskFailed, match=r'the task "a" has failed \(Timeout\): it took more than 5 s') as failed:
        await job
    assert failed.value.reason == "Timeout" and failed.value.task.metadata.name == "a"
    assert (await job.wait()).status is not None


async def test_each_is_decided_by_itself(client: Client) -> None:
    await client.create(Task.decode(msgspec.json.encode({"metadata": {"name": "taken"}, "spec": task()["spec"]})))
    good, wrong, taken, again = await client.submit([task("a"), task("b", priority=5000), task("taken"), task("a")])
    assert good.error is None and good.task is not None
    assert [job.error.code for job in (wrong, taken, again) if job.error] == [422, 409, 409]
    with pytest.raises(ApiError, match="priority"):
        await wrong
    assert repr(taken) == "Job('taken', Refused)"


async def test_a_task_without_a_name_gets_one(client: Client) -> None:
    stem = {"metadata": {"generateName": "resize-"}, "spec": task()["spec"]}
    one, other, named = await client.submit([task(), task(), stem])
    assert one.name != other.name and one.name.startswith("task-") and named.name.startswith("resize-")
    assert [(await client.get(Task, job.name)).metadata.name for job in (one, named)] == [one.name, named.name]


async def test_what_is_no_task_or_is_for_another_namespace_is_refused_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(ApiError, match="a Task, not a Secret"):
        await client.submit([task("a"), {"kind": "Secret", "metadata": {"name": "b"}}])
    elsewhere = {"metadata": {"name": "b", "namespace": "other"}, "spec": {}}
    with pytest.raises(ApiError, match=r"metadata.namespace is 'other'.* namespace=…"):
        await client.submit([task("a"), elsewhere])
    strange: Any
    for strange, message in (([7], "not 7"), ("ab", "not 'a'"), ([{"metadata": "x"}], "is an object, not 'x'")):
        with pytest.raises(ApiError, match=message):
            await client.submit(strange)
    assert (await client.list(Task)).items == []


async def test_a_task_that_is_deleted_before_it_is_over_is_gone(client: Client) -> None:
    (job,) = await client.submit([task("a")])
    waiting = asyncio.create_task(job.wait())
    await asyncio.sleep(0)
    await client.delete(Task, "a")
    with pytest.raises(TaskGone, match='"a" was deleted'):
        await waiting


async def test_a_namesake_that_was_there_before_is_not_taken_for_it(client: Client) -> None:
    (first,) = await client.submit([task("a")])
    waiting = asyncio.create_task(first.wait())
    await asyncio.sleep(0)
    await end(client, "a", result="old")
    assert (await waiting).status is not None
    await client.delete(Task, "a")
    (second,) = await client.submit([task("a")])
    await end(client, "a", result="new")
    assert await second == "new" and await first == "old"


async def test_a_job_is_cancelled_by_its_task(client: Client) -> None:
    (job,) = await client.submit([task("a")])
    await job.cancel()
    assert (await client.get(Task, "a")).spec.cancel
    await end(client, "a", phase="Cancelled")
    with pytest.raises(TaskFailed, match="was cancelled"):
        await job
    await job.cancel()


async def test_who_gives_up_waiting_takes_it_from_nobody(client: Client) -> None:
    (job,) = await client.submit([task("a")])
    first, second = asyncio.create_task(job.wait()), asyncio.create_task(job.wait())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await end(client, "a")
    assert (await second).over()


async def test_nothing_is_kept_for_a_job_that_was_dropped(client: Client) -> None:
    jobs = await client.submit([task() for _ in range(100)])
    known = client._jobs["default"]._known
    assert len(known) == 100
    del jobs
    gc.collect()
    assert len(known) == 0


async def test_a_history_that_is_not_kept_any_more_is_made_up_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, deleted, later = await client.submit([task("a"), task("b"), task("c")])
    await end(client, "a", result=1)
    await client.delete(Task, "b")
    watch, refusals = client.watch, [410]

    def once_refused(*args: Any, **more: Any) -> Any:
        if refusals:
            raise ApiError(refusals.pop(), "Expired", "too old")
        return watch(*args, **more)

    monkeypatch.setattr(client, "watch", once_refused)
    assert (await wait_for(ended)).over()
    with pytest.raises(TaskGone):
        await wait_for(deleted)
    await end(client, "c")
    assert (await wait_for(later)).over()


async def test_a_server_that_refuses_the_watch_is_told_to_who_waits(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any, **more: Any) -> Any:
        raise ApiError(403, "Forbidden", "no watch for you")

    (job,) = await client.submit([task("a")])
    monkeypatch.setattr(client, "watch", refused)
    with pytest.raises(ApiError, match="no watch for you"):
        await wait_for(job)


async def test_what_the_page_shows_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "tasks.md").read_text()
    code = page.partition("## From Python")[2].partition("```python\n")[2].partition("```")[0]
    async with running(tmp_path / "home"):
        client = Client.connect(home=tmp_path / "home")
        await client.create(crew("shell"))
        shown: dict[str, Any] = {}
        exec(code.replace("asyncio.run(main())", ""), shown)
        shown["rota"] = SimpleNamespace(Client=lambda: Client.connect(home=tmp_path / "home"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await shown["main"]()
        assert sorted(map(int, capsys.readouterr().out.split())) == list(range(100))
        await client.close()


async def test_a_restart_of_the_server_is_waited_for(tmp_path: Path) -> None:
    client = Client.connect(home=tmp_path / "home")
    async with running(tmp_path / "home"):
        (job,) = await client.submit([task("a")])
        waiting = asyncio.create_task(job.wait())
        # The pool is not there: the task says so, and the watch tells of that.
        await until_async(lambda: job.task is not None and job.task.status, lambda: job.task, poll_seconds=0)
    assert not waiting.done()
    async with running(tmp_path / "home"):
        await client.create(crew("shell"))
        assert (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).over()
        await client.close()


async def test_tasks_run_on_a_real_server_and_their_results_come_back(tmp_path: Path) -> None:
    async with running(tmp_path / "home"):
        client = Client.connect(home=tmp_path / "home")
        await client.create(crew("python"))
        calls = [task(command=["math:sqrt", str(number * number)]) for number in range(20)]
        large = task(command=["operator:mul", '"word "', "2000"])
        jobs = await client.submit([*calls, task(command=["math:sqrt", "-1"]), large])
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await asyncio.gather(*jobs, return_exceptions=True)
        assert found[:20] == [float(number) for number in range(20)]
        assert isinstance(found[20], TaskFailed) and "math domain error" in str(found[20])
        assert found[21] == "word " * 2000
        await client.close()
