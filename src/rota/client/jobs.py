"""Wait for submitted tasks, with one watch for all tasks of a namespace.

    jobs = await client.submit([task, another])
    print(await jobs[0].result())

A job is durable when `submit` returns: its task goes on whatever becomes of this process. The watch begins when the
first job is waited for; after a lost connection it continues, and misses no end.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec

from rota.api import Task
from rota.api.problems import NOT_JSON
from rota.registry import Answer, ApiError, Operation, WriteOptions
from rota.registry.errors import bad_request

if TYPE_CHECKING:
    from rota.client.backend import Object
    from rota.client.client import Client

log = logging.getLogger(__name__)

RETRY_SECONDS_FIRST = 0.05
RETRY_SECONDS_MAX = 5.0
NAME_LENGTH_MAX = 63
DIGEST = "sha256:"
"""The prefix of a result that is a digest. A large result is kept beside its task, which has its digest."""


class TaskFailed(ApiError):  # noqa: N818 - says what became of it
    """A task ended without success. `reason` is one word for programs, `task` is the Task."""

    def __init__(self, task: Task) -> None:
        status = task.status
        assert status is not None
        why = status.reason or "Failed"
        how = "was cancelled" if status.phase == "Cancelled" else f"has failed ({why})"
        said = f": {status.message}" if status.message else ""
        super().__init__(409, why, f'the task "{task.metadata.name}" {how}{said}')
        self.task = task


class TaskGone(ApiError):  # noqa: N818 - says what became of it
    """A task was deleted before it was over."""

    def __init__(self, name: str) -> None:
        super().__init__(404, "NotFound", f'the task "{name}" was deleted before it was over')


class Job:
    """A submitted task. `await job` returns its result."""

    def __init__(self, jobs: Jobs, name: str) -> None:
        self.name = name
        self.task: Task | None = None
        """The Task as it was last read; None if it was refused."""
        self.error: ApiError | None = None
        """The error if it was refused or deleted; then there is nothing to wait for."""
        self._jobs = jobs
        self._over: asyncio.Future[None] | None = None
        self._early: dict[str, tuple[Task, bool]] = {}
        """Changes of tasks of this name that arrived before the answer to the create, which has the uid."""

    def __repr__(self) -> str:
        status = self.task.status if self.task is not None else None
        phase = status.phase if status is not None and status.phase else "Refused" if self.error else "Submitted"
        return f"Job({self.name!r}, {phase})"

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()

    @property
    def is_over(self) -> bool:
        return self.error is not None or (self.task is not None and self.task.over())

    async def wait(self) -> Task:
        """Return the Task once it is over, whatever its outcome. Raises `ApiError` if it was refused or deleted."""
        if not self.is_over:
            await self._jobs.until_over(self)
        if self.error is not None:
            raise self.error
        assert self.task is not None
        return self.task

    async def result(self) -> Any:
        """Return the result of the task. Raises `TaskFailed` if it did not succeed."""
        task = await self.wait()
        assert task.status is not None
        if task.status.phase != "Succeeded":
            raise TaskFailed(task)
        found = task.status.result
        return await self._jobs.large_result(self) if isinstance(found, str) and found.startswith(DIGEST) else found

    async def cancel(self) -> None:
        """Request its cancellation. A task that is over stays as it is."""
        await self._jobs.cancel(self)

    # Its outcome.

    def _submitted(self, answer: Answer | ApiError) -> None:
        if isinstance(answer, ApiError):
            self.error = answer
        else:
            self.task = Task.decode(answer.value)
        early, self._early = self._early, {}
        if self.task is not None and self.task.metadata.uid in early:
            self._take(*early[self.task.metadata.uid])

    def _take(self, task: Task, is_gone: bool) -> None:
        """Take the current Task. Changes of another task of the same name are ignored."""
        if self.task is None:
            self._early[task.metadata.uid] = (task, is_gone)
        elif self.task.metadata.uid == task.metadata.uid:
            self.task = task
            if is_gone and not task.over():
                self.error = TaskGone(self.name)
            self._wake()

    def _fail(self, error: ApiError) -> None:
        """End the job with an error: its task can no longer be followed."""
        if not self.is_over:
            self.error = error
        self._wake()

    def _wake(self) -> None:
        if self.is_over and self._over is not None and not self._over.done():
            self._over.set_result(None)


class Jobs:
    """The jobs of a client in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._known: WeakValueDictionary[str, Job] = WeakValueDictionary()
        """Jobs that are not over, by name. A job that its caller has dropped is not kept."""
        self._version = ""
        self._watching: asyncio.Task[None] | None = None

    async def submit(self, tasks: Sequence[Task | Object]) -> list[Job]:
        """Create tasks in as few requests and commits as possible. Each is created by itself."""
        operations, jobs = [], list[Job]()
        for task in tasks:
            body = self._named(task)
            job = Job(self, body["metadata"]["name"])
            # Registered before it is created, because its end may arrive before the answer.
            if self._known.setdefault(job.name, job) is not job:
                job.error = ApiError(409, "AlreadyExists", f'tasks "{job.name}" was submitted by this client already')
            jobs.append(job)
            options = WriteOptions(self._client.manager, field_validation="Strict")
            operations.append(Operation("create", Task.api, self._namespace, body=body, options=options))
        new = [(job, o) for job, o in zip(jobs, operations, strict=True) if job.error is None]
        answers = await self._client.write_each([o for _, o in new])
        for (job, _), answer in zip(new, answers, strict=True):
            job._submitted(answer)
            if isinstance(answer, Answer) and not self._version:
                self._version = str(answer.revision)
            self._forget_if_over(job)
        return jobs

    def _named(self, task: Task | Object) -> Object:
        from rota.client.client import to_dict

        if not isinstance(task, Task | dict):
            raise bad_request(f"tasks are submitted as dicts or as rota.api.Task, in a list, not {task!r:.100}")
        body: Object = to_dict(task) if isinstance(task, Task) else {**task}
        if body.get("kind", Task.api.name) != Task.api.name:
            raise bad_request(f"what is submitted is a Task, not a {body['kind']}")
        body.setdefault("apiVersion", Task.api.api_version)
        body["kind"] = Task.api.name
        given = body.get("metadata") or {}
        if not isinstance(given, dict):
            raise bad_request(f"the metadata of a Task is an object, not {given!r:.100}")
        if given.get("namespace", self._namespace) not in ("", self._namespace):
            named = f"metadata.namespace is {given['namespace']!r}"
            raise bad_request(f"{named}, and tasks are submitted to {self._namespace!r}: submit(…, namespace=…)")
        meta = {key: value for key, value in given.items() if key != "generateName"}
        if not meta.get("name"):
            stem = given.get("generateName") or "task-"
            tail = uuid.uuid4().hex[:10]
            meta["name"] = f"{stem[: NAME_LENGTH_MAX - len(tail)]}{tail}"
        body["metadata"] = {**meta, "namespace": self._namespace}
        return body

    async def until_over(self, job: Job) -> None:
        if job._over is None:
            job._over = asyncio.get_running_loop().create_future()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="jobs of a client")
        # Shielded, because several callers may wait for one job.
        await asyncio.shield(job._over)

    async def large_result(self, job: Job) -> Any:
        from rota.client.http import HttpBackend

        backend = self._client.backend
        if not isinstance(backend, HttpBackend):
            raise bad_request("a large result is kept by a server, and this is a client of a registry in this process")
        where = f"{quote(self._namespace, safe='')}/{quote(job.name, safe='')}"
        text = (await backend.raw("GET", f"/v1/tasks/{where}/result")).body
        try:
            return msgspec.json.decode(text)
        except NOT_JSON:
            return text.decode(errors="replace")

    async def cancel(self, job: Job) -> None:
        if job.task is None or job.is_over:
            return
        patch = {"metadata": {"uid": job.task.metadata.uid}, "spec": {"cancel": True}}
        await self._client.patch(Task, job.name, patch, namespace=self._namespace)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    # Watching.

    async def _watch(self) -> None:
        pause = RETRY_SECONDS_FIRST
        while True:
            try:
                async for change in self._client.watch(
                    Task, namespace=self._namespace, resource_version=self._version, bookmarks=True
                ):
                    self._version, pause = change.resource_version, RETRY_SECONDS_FIRST
                    if change.object is not None:
                        self._on_change(change.object, is_gone=change.type == "DELETED")
            except ApiError as error:
                if error.code == 410:
                    self._version = ""
                elif error.code in (401, 403):
                    self._fail_all(error)
                    return
                else:
                    log.debug("the watch of tasks was refused: %s", error)
            except OSError as error:
                log.debug("the watch of tasks was lost: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_SECONDS_MAX)
            if not self._version:
                await self._look_again()

    def _on_change(self, task: Task, *, is_gone: bool) -> None:
        job = self._known.get(task.metadata.name)
        if job is not None:
            job._take(task, is_gone)
            self._forget_if_over(job)

    def _forget_if_over(self, job: Job) -> None:
        if job.is_over and self._known.get(job.name) is job:
            del self._known[job.name]

    def _fail_all(self, error: ApiError) -> None:
        for job in list(self._known.values()):
            job._fail(error)
        self._known.clear()
        self._watching = None

    async def _look_again(self) -> None:
        """Read every job, because the history that the watch needs is no longer kept."""
        try:
            version = (await self._client.list(Task, namespace=self._namespace, limit=1)).resource_version
            for job in list(self._known.values()):
                try:
                    found = await self._client.get(Task, job.name, namespace=self._namespace)
                except ApiError as error:
                    if error.code != 404:
                        raise
                    if job.task is not None:
                        self._on_change(job.task, is_gone=True)
                    continue
                if job.task is not None and found.metadata.uid != job.task.metadata.uid:
                    self._on_change(job.task, is_gone=True)
                else:
                    self._on_change(found, is_gone=False)
            self._version = version
        except (ApiError, OSError) as error:
            log.debug("tasks could not be read: %s", error)
