"""To have the server look at, make or tell far more than was sent: by what a template or a filter asks for."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from rota.api.model import Ref
from rota.api.parts import EnvVar
from rota.api.spawner import Filter, WebhookSource
from rota.api.task import Dependency, FunctionCall, TaskSpec
from rota.api.templates.expressions import TemplateError
from rota.api.templates.items import fill, resolver
from rota.control.spawners.webhook import BadBody, item_of
from rota.control.tasks.templating import given_environment, given_payload
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.server.conftest import Reply, Server, parsed, served

SECONDS_MAX = 0.5
BYTES_MAX = 64 * 1024 * 1024
SECRET = b"known to both"
LONG = ",".join(["1"] * 450_000)
EMPTY = ",".join(["{}"] * 300_000)


def source(**more: Any) -> WebhookSource:
    return WebhookSource(secret_ref=Ref(name="signs"), **more)


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        (source(filters=[Filter(path="a", values=["x"])] * 64), f'{{"a": [{LONG}, "x"]}}'),
        (source(map={f"k{i}": "a.b" for i in range(64)}), f'{{"a": [{EMPTY}, {{"b": 1}}]}}'),
        (source(map={"k": "a.b"}), f'{{"a": {"[" * 900}{{}}{"]" * 900}}}'),
    ],
    ids=["filters", "map", "depth"],
)
def test_to_have_long_lists_of_a_delivery_looked_at_again_and_again(asked: WebhookSource, body: str) -> None:
    began = time.perf_counter()
    with pytest.raises(BadBody, match="too much of the body"):
        item_of(asked, {}, body.encode())
    assert time.perf_counter() - began < SECONDS_MAX


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home", edge_port=0) as server:
        yield server


async def spawner(tenant: Deployer, template: dict[str, Any]) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "signs"}}
    secret["stringData"] = {"secret": SECRET.decode()}
    assert (await tenant.ask("POST", f"/api/v1/namespaces/{TENANT}/secrets", secret)).status == 201
    made = {"apiVersion": "rota.dev/v1alpha1", "kind": "TaskSpawner", "metadata": {"name": "hook"}}
    made["spec"] = {"source": {"webhook": {"secretRef": {"name": "signs"}}}, "taskTemplate": template}
    assert (await tenant.ask("POST", f"{API}/{TENANT}/taskspawners", made)).status == 201


async def deliver(server: Server, body: bytes) -> Reply:
    edge = urlsplit((await server.ask("GET", "/v1/status")).json["edge"])
    signature = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    head = (
        f"POST /-/hooks/{TENANT}/hook HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"X-Rota-Signature: sha256={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(edge.hostname, edge.port)
    writer.write(head.encode() + body)
    reply = parsed(await reader.read())
    writer.close()
    return reply


@pytest.mark.parametrize(
    "template",
    [
        {"command": ["cat"], "stdin": "{{item.a}}" * 200, "worker": {"type": "shell"}},
        {"command": ["cat", *["{{item.a}}"] * 200], "worker": {"type": "shell"}},
        {"function": {"name": "f", "payload": {f"k{i}": "{{item}}" for i in range(200)}}},
    ],
    ids=["stdin", "command", "payload"],
)
async def test_to_have_a_small_delivery_fill_the_memory_of_the_server(live: Server, template: dict[str, Any]) -> None:
    await spawner(await deployer(live), template)
    body = json.dumps({"a": "x" * 900_000}).encode()
    tracemalloc.start()
    try:
        reply = await deliver(live, body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reply.status == 422 and b"the item would put more than" in reply.body
    assert most < BYTES_MAX


def test_to_have_results_of_other_tasks_put_in_without_end() -> None:
    large = [Dependency(name="a", uid="1", phase="Succeeded", outputs={"o": "x" * 4096})]
    text = "{{tasks.a.outputs.o}}" * 3000
    with pytest.raises(TemplateError, match="results of other tasks"):
        given_environment([EnvVar(name=f"V{i}", value=text) for i in range(20)], large)
    call = FunctionCall(name="f", payload={f"k{i}": text for i in range(20)})
    spec = TaskSpec(function=call, depends_on=["a"])
    with pytest.raises(TemplateError, match="results of other tasks"):
        given_payload(spec, large)


ASKS = "{{ tasks.build.outputs.token }}"


@pytest.mark.parametrize(
    "where", ["{{ item }}", "{{ item.title }}", "{{ item.body }}", "{{ item.body.l }}", "of {{ item.body }}"]
)
def test_to_be_told_results_of_other_tasks_by_what_one_has_sent(where: str) -> None:
    """A sent value becomes a value of a payload as it is: everything in it is data there, too."""
    item = {"title": ASKS, "body": {"l": [ASKS, {"a": f"{{{ASKS}}}"}], ASKS: ASKS}, "n": [1, None, True]}
    template = {"function": {"name": "f", "payload": {"sent": where, "own": ASKS}}, "dependsOn": ["build"]}
    spec = msgspec.convert(fill(template, resolver(item)), TaskSpec)
    known = [Dependency(name="build", uid="uid", phase="Succeeded", outputs={"token": "hidden"})]
    given = given_payload(spec, known)
    assert given["own"] == "hidden" and "hidden" not in json.dumps(given["sent"])
    # What does not ask for anything is as it was sent.
    plain = {"a": "{{ item.title }} ${{ tasks }} {{ tasks }}", "l": [[{}], 1.5, None]}
    payload = fill({"function": {"payload": {"sent": "{{ item }}"}}}, resolver(plain))["function"]["payload"]
    assert payload["sent"] == plain
