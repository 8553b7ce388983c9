"""The gateway before a server elsewhere that has no atomic batch, as a Kubernetes cluster: no registry is here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rota.api import KINDS, Claim, Function, Task
from rota.client import Client
from rota.client.backend import Wrapped, Written
from rota.control.functions.call_tasks import ENDED, KEPT_AS, WAITED_FOR, as_created, ended_status, kept_uid
from rota.control.functions.recording import Identity, Recorder, labels_of, new_identity
from rota.control.functions.served import CallOutcome
from rota.engine import CachedObjects
from rota.engine.leadership import Leadership
from rota.registry.errors import ApiError, not_atomic
from rota.registry.options import Answer, Operation
from rota.runtime.archive import log_of
from rota.runtime.blobs import Blobs
from rota.runtime.local import LocalRuntime
from rota.server.app import LOCAL_USER
from rota.server.audit import Audit
from rota.server.blobs import BlobRequests
from rota.server.claims import ClaimRequests
from rota.server.controllers import Controllers
from rota.server.gateway import Gateway
from rota.server.gateway_running import RunningPart
from rota.server.http import Request, Response, Stream
from rota.server.hub_tunnel import Tunnels
from rota.server.signed_tokens import SignedTokens
from rota.server.tables import Tables
from tests.server.conftest import served
from tests.until import until_async

SAYS = "echo ready; trap 'exit 0' TERM; while :; do sleep 0.1; done"
UID = "00000000-0000-4000-8000-000000000000"
LARGE = json.dumps("x" * 5000)


class StepByStep(Wrapped):
    """A backend that takes one write at a time, as a Kubernetes API server does."""

    atomic = False

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if atomic and len(operations) > 1:
            raise not_atomic()
        return [answer for one in operations for answer in await self._backend.write((one,), atomic=atomic)]


class Post:
    """A gateway on a client of a server elsewhere, with controllers of its own."""

    def __init__(self, client: Client, folder: Path, runtime: LocalRuntime) -> None:
        self.client = client
        kinds = [kind for kind in KINDS.values() if kind.served and "watch" in kind.verbs]
        objects = CachedObjects(client, kinds)
        leadership = Leadership(client, "post", namespace="default")
        self.controllers = Controllers(client, objects, leadership, "post", runtime, home=folder)
        self.audit = Audit(folder / "audit.log")
        seeing = Client(objects.seeing(client.backend))
        claims = ClaimRequests(seeing, objects, self.audit, SignedTokens(folder / "key", "claim"))
        blobs = BlobRequests(Blobs(folder), self.audit)
        tunnels = Tunnels(self.audit)
        part = RunningPart(objects, self.audit, claims, blobs, tunnels, Tables(), lambda: self.controllers)
        self.gateway = Gateway((part,), objects, self.audit)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path.encode(), {"content-type": "application/json"}, content, 0)
        answer: Any = self.gateway(request, LOCAL_USER)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Response):
            return answer.status, answer.body
        assert isinstance(answer, Stream)
        return answer.status, b"".join([piece async for piece in answer.chunks])

    async def until(self, what: Callable[[], Any]) -> Any:
        async def found() -> Any:
            try:
                there = what()
                return await there if isawaitable(there) else there
            except ApiError as error:
                if error.code not in (404, 429, 503):
                    raise
                return None

        return await until_async(found)

    async def function(self) -> Function:
        body = {
            "apiVersion": Function.api.api_version,
            "kind": "Function",
            "metadata": {"name": "hello", "namespace": "default"},
            "spec": {"entrypoint": "app:handler", "source": {"inline": "def handler(event): return 1"}},
        }
        await self.client.create(body)
        kind: Any = Function
        made: Function = await self.client.get(kind, "hello", namespace="default")
        return made

    async def task(self, name: str, so: Callable[[Task], Any]) -> Task:
        kind: Any = Task

        async def looked() -> Task | None:
            found: Task = await self.client.get(kind, name, namespace="default")
            return found if so(found) else None

        made: Task = await self.until(looked)
        return made


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    folder = tmp_path / "post"
    folder.mkdir()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(served(tmp_path / "home", with_controllers=False))
        connected = Client.connect(home=server.home)
        stack.push_async_callback(connected.close)
        runtime = await stack.enter_async_context(LocalRuntime(folder))
        post = Post(Client(StepByStep(connected.backend), manager="post"), folder, runtime)
        stack.callback(post.audit.close)
        running = asyncio.create_task(post.controllers.run())
        try:
            await post.until(lambda: post.controllers.loop is not None)
            yield post
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await runtime.shutdown()


def over(task: Task) -> bool:
    return task.over()


def ended(result: str = "", reason: Any = "Succeeded") -> CallOutcome:
    return CallOutcome(reason, 1000.0, 1001.0, result=Raw(result.encode()))


async def test_a_claim_is_served_listed_read_and_released(post: Post) -> None:
    template = {"containers": [{"name": "main", "command": ["sh", "-c", SAYS]}], "isolation": "none"}
    template["terminationGracePeriodSeconds"] = 0  # type: ignore[assignment]
    pool = {"apiVersion": Claim.api.api_version, "kind": "WorkerPool", "metadata": {"name": "boxes"}}
    await post.client.create({**pool, "spec": {"replicas": 1, "template": template}})

    async def claimed() -> Any:
        status, body = await post.ask("POST", "/v1/pools/default/boxes/claims", {"name": "mine"})
        return json.loads(body) if status == 201 else None

    made = await post.until(claimed)
    assert made["claim"]["status"]["phase"] == "Bound" and made["token"]
    instance = made["claim"]["status"]["instanceName"]

    async def said() -> bool:
        return b"ready" in (await post.ask("GET", f"/v1/logs/default/{instance}"))[1]

    await post.until(said)
    listed = json.loads((await post.ask("GET", "/v1/pools/default/boxes/claims"))[1])
    assert [one["metadata"]["name"] for one in listed["claims"]] == ["mine"] and listed["remaining"] == 0
    status, renewed = await post.ask("POST", "/v1/claims/default/mine/renew")
    assert status == 200 and json.loads(renewed)["claim"]["spec"]["renewTime"]
    status, released = await post.ask("DELETE", "/v1/claims/default/mine")
    assert status == 200 and json.loads(released)["claim"]["status"]["phase"] == "Released"
    assert (await post.ask("GET", "/v1/why/workerpools/default/boxes"))[0] == 200


async def test_a_call_is_recorded_in_two_steps_with_its_result_and_its_log(post: Post) -> None:
    function, serving = await post.function(), post.controllers.serving
    assert serving is not None
    identity = new_identity("hello")
    log = Path(serving.runtime.archive.place(log_of("default", identity.name, identity.uid)))
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("said by the call\n")
    await serving.recorder.record(function, identity, {"method": "GET"}, ended(LARGE))
    task = await post.task(identity.name, over)
    assert task.status is not None and task.status.phase == "Succeeded" and task.metadata.uid != identity.uid
    assert (await post.ask("GET", f"/v1/tasks/default/{identity.name}/result"))[1].decode() == LARGE
    assert b"said by the call" in (await post.ask("GET", f"/v1/tasks/default/{identity.name}/logs"))[1]
    assert b"said by the call" in (await post.ask("GET", "/v1/functions/default/hello/logs"))[1]


async def test_a_call_that_is_recorded_twice_is_one_task(post: Post) -> None:
    function, serving = await post.function(), post.controllers.serving
    assert serving is not None
    identity = new_identity("hello")
    for _ in range(2):
        await serving.recorder.record(function, identity, {}, ended("1"))
    await post.task(identity.name, over)
    kind: Any = Task
    assert len((await post.client.list(kind, namespace="default")).items) == 1


async def test_a_call_whose_recording_was_cut_in_between_is_completed_and_not_made_again(post: Post) -> None:
    function = await post.function()
    made: list[Task] = []

    class Cut(Wrapped):
        async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
            (answer,) = await self._backend.write(operations, atomic=atomic)
            assert isinstance(answer, Answer)
            made.append(Task.decode(answer.value))
            raise ConnectionResetError("cut")

    serving = post.controllers.serving
    assert serving is not None
    cut = Client(Cut(serving.client.backend), manager="post")
    recorder = Recorder(cut, serving.objects, serving.runtime.archive, serving.clock)
    identity = Identity("hello-cut", new_identity("hello").uid)
    await recorder.record(function, identity, {}, ended("", "Failed"))
    assert made[0].status is None and ENDED in made[0].metadata.annotations
    task = await post.task("hello-cut", over)
    assert task.status is not None and task.status.phase == "Failed" and not task.status.attempts


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_what_says_of_itself_how_it_ended_must_be_over_and_a_call_to_be_believed(phase: str) -> None:
    body = {"metadata": {"name": "a", "uid": UID}, "spec": {"function": {"name": "f"}}, "status": {"phase": phase}}
    plain = as_created(Task.decode(json.dumps(body).encode()))
    assert ended_status(plain) is None and kept_uid(plain) == ""
    plain.metadata.labels.update(labels_of("f", WAITED_FOR))
    assert (ended_status(plain) is not None) == (phase == "Succeeded") and kept_uid(plain) == UID
    plain.metadata.annotations.update({ENDED: "{", KEPT_AS: "../other"})
    assert ended_status(plain) is None and kept_uid(plain) == ""
