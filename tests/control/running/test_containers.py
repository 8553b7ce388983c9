"""Pools under `rota up`, with real containers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.runtime.container import Engine
from rota.runtime.keeper.protocol import hash_of
from tests.control.running.test_processes import apply, told
from tests.runtime.homes import keepers_of
from tests.runtime_container.conftest import found, make_image, podman
from tests.server.live import Live, execute
from tests.until import until

PATIENCE_SECONDS = 60.0
SECRET = "do-not-show-this"


@pytest.fixture
def engine() -> Engine:
    facts = found()
    if isinstance(facts, str):
        pytest.skip(facts)
    return Engine(facts)


@pytest.fixture
def image(engine: Engine) -> Iterator[str]:
    name = make_image(engine)
    yield name
    podman(engine, "rmi", "--force", name)


@pytest.fixture
def server(tmp_path: Path, engine: Engine) -> Iterator[Live]:
    live = Live(tmp_path)
    try:
        yield live
    finally:
        live.end()
    assert containers(engine, tmp_path) == []


def containers(engine: Engine, home: Path) -> list[str]:
    return asyncio.run(engine.listed(hash_of(str(home.resolve()))))


def pool(image: str, replicas: int = 2, **template: Any) -> str:
    script = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
    key = {"secretKeyRef": {"name": "s", "key": "token"}}
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "env": [{"name": "TOKEN", "valueFrom": key}],
    }
    template = {
        "runtime": "container",
        "terminationGracePeriodSeconds": 2,
        "storage": {"size": "1Gi", "path": "/data"},
        "volumes": [{"name": "v", "secret": {"name": "s"}, "mountPath": "/etc/s"}],
        "containers": [container],
        **template,
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default"},
        "stringData": {"token": SECRET},
    }
    spec = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "box", "namespace": "default"},
        "spec": {"replicas": replicas, "template": template},
    }
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [secret, spec]}).decode()


def is_ready(server: Live, count: int) -> bool:
    found = server.read("wp", "box")
    status = found.get("status", {})
    seen = [status.get(name) for name in ("observedGeneration", "replicas", "readyReplicas", "updatedReplicas")]
    return status.get("phase") == "Ready" and seen == [found["metadata"]["generation"], count, count, count]


def restarts(server: Live) -> int:
    return int(server.read("inst", "box-0")["status"].get("restarts", 0))


def inside(server: Live, script: str) -> str:
    code, said = execute(server.home, "box-0", script, PATIENCE_SECONDS)
    assert code == 0, said
    return said


@pytest.mark.timeout(240)
def test_containers_come_up_keep_their_storage_and_leave_nothing(server: Live, engine: Engine, image: str) -> None:
    apply(server, pool(image))
    until(lambda: is_ready(server, 2), told(server), seconds=PATIENCE_SECONDS)
    until(lambda: len(containers(engine, server.home)) == 2, told(server), seconds=PATIENCE_SECONDS)
    conditions = server.read("inst", "box-0")["status"]["conditions"]
    assert [one["reason"] for one in conditions if one["type"] == "Isolated"] == ["Contained"]
    assert inside(server, 'echo kept > /data/f; echo "$TOKEN"; cat /etc/s/token') == f"{SECRET}\n{SECRET}"
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if SECRET.encode() in _read(path)]
    apply(server, pool(image, 1, terminationGracePeriodSeconds=1))
    until(lambda: is_ready(server, 1), told(server), seconds=PATIENCE_SECONDS)
    # Its client is up before it is.
    until(lambda: len(containers(engine, server.home)) == 1, told(server), seconds=PATIENCE_SECONDS)
    assert inside(server, "cat /data/f") == "kept\n"
    server.kubectl("delete", "wp", "box")
    until(lambda: not server.read("inst")["items"], told(server), seconds=PATIENCE_SECONDS)
    assert containers(engine, server.home) == []
    assert not list((server.home / "storage" / "default").iterdir())


@pytest.mark.timeout(240)
def test_containers_of_a_killed_keeper_are_replaced_and_none_is_left(server: Live, engine: Engine, image: str) -> None:
    apply(server, pool(image, 1))
    until(lambda: is_ready(server, 1), told(server), seconds=PATIENCE_SECONDS)
    # Its client is up before it is.
    [before] = until(lambda: containers(engine, server.home), told(server), seconds=PATIENCE_SECONDS)
    for pid in keepers_of(server.home):
        os.kill(pid, signal.SIGKILL)
    until(lambda: server.read("inst", "box-0")["status"]["restarts"] == 1, told(server), seconds=PATIENCE_SECONDS)
    until(lambda: is_ready(server, 1), told(server), seconds=PATIENCE_SECONDS)
    until(lambda: containers(engine, server.home) == [before], told(server), seconds=PATIENCE_SECONDS)
    # While nobody looks: its container goes on, and is found by the server that comes then.
    server.kill()
    for pid in keepers_of(server.home):
        os.kill(pid, signal.SIGKILL)
    server.start()
    until(lambda: server.read("inst", "box-0")["status"]["restarts"] == 2, told(server), seconds=PATIENCE_SECONDS)
    until(lambda: containers(engine, server.home) == [before], told(server), seconds=PATIENCE_SECONDS)


def test_an_image_that_is_not_there_is_said_and_a_good_one_takes_its_place(server: Live, image: str) -> None:
    apply(server, pool("localhost/no-such-image", 1))

    def ready() -> Any:
        status = server.read("wp", "box").get("status", {})
        return next((one for one in status.get("conditions", []) if one["type"] == "Ready"), {})

    until(lambda: ready().get("reason") == "ImageUnavailable", told(server), seconds=PATIENCE_SECONDS)
    assert "localhost/no-such-image is not on this host" in ready()["message"]
    apply(server, pool(image, 1))
    until(lambda: is_ready(server, 1), told(server), seconds=PATIENCE_SECONDS)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
