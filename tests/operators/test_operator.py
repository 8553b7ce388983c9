"""`rota operator` as a process: how it begins, what it answers, and how it ends; and the controllers of `rota up`."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.api import Claim, Lease, Workspace
from rota.client import Client
from rota.registry import ApiError
from tests.operators.processes import LEASE, holder
from tests.server.live import ROTA, Live, die_with_parent, live
from tests.until import until_async

SOON_SECONDS = 20.0
"""Generous, for busy machines."""


class Operator:
    """One operator with arguments, and what it has said."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [ROTA, "operator", *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def said(self) -> str:
        return self._log.read_text()

    async def end(self, how: int = signal.SIGTERM) -> int:
        os.kill(self.process.pid, how)
        return await asyncio.to_thread(self.process.wait, SOON_SECONDS)

    async def leads(self) -> None:
        async def so() -> bool:
            return " leads" in self.said() and "waits; " not in self.said().splitlines()[-1]

        await until_async(so, self.said, seconds=SOON_SECONDS)


@contextmanager
def operating(log: Path, *arguments: str) -> Iterator[Operator]:
    operator = Operator(log, *arguments)
    try:
        yield operator
    finally:
        if operator.process.poll() is None:
            operator.process.kill()
            operator.process.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", "--no-controllers") as started:
        yield started


@asynccontextmanager
async def connected(server: Live) -> AsyncIterator[Client]:
    client = Client.connect(kubeconfig=server.kubeconfig, manager="tester")
    try:
        yield client
    finally:
        await client.close()


def workspace(name: str, secret: str = "") -> dict[str, Any]:
    spec = {"repo": "https://git.example/app", **({"secretRef": {"name": secret}} if secret else {})}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": "Workspace", "metadata": meta, "spec": spec}


async def settled(client: Client, name: str, seconds: float = SOON_SECONDS) -> None:
    async def so() -> bool:
        return (await client.get(Workspace, name)).readiness().state == "Ready"

    await until_async(so, lambda: f"{name} did not become ready", seconds=seconds)


def rota(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROTA, *arguments], capture_output=True, text=True, timeout=60, check=False)


def ask(folder: Path, path: str, method: str = "GET", body: str | None = None, token: str = "") -> tuple[int, str]:
    """Ask on the socket in a folder."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(10)
    try:
        connection.sock.connect(str(folder / "rota.sock"))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


# How it begins.


class NoKinds(http.server.BaseHTTPRequestHandler):
    """An API server that does not know Rota's kinds."""

    def do_GET(self) -> None:
        body = b"404 page not found\n"
        self.send_response(404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


def kubeconfig(path: Path, url: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def test_against_a_server_without_its_kinds_it_says_what_to_do(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoKinds) as bare:
        threading.Thread(target=bare.serve_forever, daemon=True).start()
        config = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{bare.server_address[1]}")
        done = rota("operator", "--kubeconfig", str(config))
        bare.shutdown()
    assert done.returncode == 1
    assert "rota crds --install" in done.stderr and "Traceback" not in done.stderr


async def test_against_a_server_that_is_away_it_waits_and_can_be_ended(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    with operating(tmp_path / "log", "--kubeconfig", str(config)) as operator:

        async def begun() -> bool:
            return " waits" in operator.said()

        await until_async(begun, operator.said, seconds=SOON_SECONDS)
        assert await operator.end() == 0, operator.said()
        assert "Traceback" not in operator.said()


async def test_it_takes_the_lease_and_settles_what_is_there(server: Live, tmp_path: Path) -> None:
    async with connected(server) as client:
        await client.create(workspace("before"))
        with operating(tmp_path / "log", "--kubeconfig", str(server.kubeconfig)) as operator:
            await settled(client, "before")
            await operator.leads()
            assert f"-{operator.process.pid}-" in await holder(client)
            await client.create(workspace("after"))
            await settled(client, "after")


async def test_the_lease_may_be_in_another_namespace(server: Live, tmp_path: Path) -> None:
    async with connected(server) as client:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}})
        arguments = ("--kubeconfig", str(server.kubeconfig), "--lease-namespace", "system")
        with operating(tmp_path / "log", *arguments) as operator:
            await operator.leads()
            lease = await client.get(Lease, LEASE, namespace="system")
            assert lease.spec is not None and lease.spec.holder_identity
            assert await holder(client) == ""


# How it ends.


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_releases_the_lease_and_ends_it_well(server: Live, tmp_path: Path, how: signal.Signals) -> None:
    async with connected(server) as client:
        with operating(tmp_path / "log", "--kubeconfig", str(server.kubeconfig)) as operator:
            await operator.leads()
            assert await operator.end(how) == 0, operator.said()
            assert await holder(client) == "" and operator.said().splitlines()[-1] == "stopped"


async def test_one_that_waits_takes_over_at_once_from_one_that_ends_well(server: Live, tmp_path: Path) -> None:
    arguments = ("--kubeconfig", str(server.kubeconfig))
    async with connected(server) as client:
        with operating(tmp_path / "one", *arguments) as one:
            await one.leads()
            with operating(tmp_path / "two", *arguments) as two:

                async def waits() -> bool:
                    return "waits; " in two.said()

                await until_async(waits, two.said, seconds=SOON_SECONDS)
                await one.end()
                await two.leads()
                await client.create(workspace("w"))
                await settled(client, "w")


# What it answers.


async def test_its_socket_answers_why_metrics_and_health(server: Live, tmp_path: Path) -> None:
    gateway = tmp_path / "g"
    arguments = ("--kubeconfig", str(server.kubeconfig), "--gateway", str(gateway))
    async with connected(server) as client:
        await client.create(workspace("w", "missing"))
        with operating(tmp_path / "log", *arguments) as operator:
            await operator.leads()

            async def known() -> bool:
                return await asyncio.to_thread(lambda: ask(gateway, "/v1/why/workspaces/default/w")[0]) == 200

            await until_async(known, operator.said, seconds=SOON_SECONDS)
            done = await asyncio.to_thread(rota, "why", "workspace/w", "--home", str(gateway))
            assert done.returncode == 1 and "Secret/missing" in done.stdout, done
            assert "next: create Secret/missing" in done.stdout
            assert ask(gateway, "/healthz") == (200, "ok")
            status, metrics = ask(gateway, "/v1/metrics")
            assert status == 200 and "# TYPE" in metrics and "Workspace" in metrics
            assert ask(gateway, "/apis/rota.dev/v1alpha1/namespaces/default/workspaces")[0] == 404
            assert ask(gateway, "/v1/why/workspaces/default/nobody")[0] == 404
            status, message = ask(gateway, "/v1/why/leases/default/l")
            assert status == 501 and "no controller here looks at leases" in message
            assert (gateway / "rota.sock").stat().st_mode & 0o077 == 0
            await operator.end()
        assert not (gateway / "rota.sock").exists()


async def test_without_a_runtime_it_serves_claims_that_are_there_and_refuses_what_takes_one(
    server: Live, tmp_path: Path
) -> None:
    gateway = tmp_path / "g"
    pool = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "boxes"}}
    async with connected(server) as client:
        await client.create({**pool, "spec": {"worker": {}}})
        await client.create(
            {**pool, "kind": "Claim", "metadata": {"name": "c"}, "spec": {"poolRef": {"name": "boxes"}}}
        )
        with operating(tmp_path / "log", "--kubeconfig", str(server.kubeconfig), "--gateway", str(gateway)) as operator:
            await operator.leads()

            async def listed() -> bool:
                status, body = await asyncio.to_thread(ask, gateway, "/v1/pools/default/boxes/claims")
                return status == 200 and [one["metadata"]["name"] for one in json.loads(body)["claims"]] == ["c"]

            await until_async(listed, operator.said, seconds=SOON_SECONDS)
            status, body = ask(gateway, "/v1/claims/default/c/renew", "POST")
            assert status == 200 and json.loads(body)["claim"]["spec"]["renewTime"]
            assert ask(gateway, "/v1/claims/default/c", "DELETE")[0] == 200
            assert (await client.get(Claim, "c")).spec.release
            for method, path in (
                ("POST", "/v1/pools/default/boxes/claims"),
                ("GET", "/v1/logs/default/boxes-0"),
                ("GET", "/v1/tasks/default/t/logs"),
                ("GET", "/v1/tasks/default/t/result"),
                ("GET", "/v1/functions/default/f/logs"),
                ("GET", "/v1/exec/default/boxes-0?command=ls&stdout=true"),
                ("GET", "/v1/instances/default/boxes-0/files?path=/"),
                ("PUT", "/v1/instances/default/boxes-0/files?path=/a"),
            ):
                status, body = ask(gateway, path, method, "{}" if method == "POST" else None)
                assert status == 501 and "it has no runtime" in body, (method, path, status, body)
            status, body = ask(gateway, f"/v1/blobs/sha256:{'0' * 64}", "PUT", "x")
            assert status == 501 and "ConfigMaps" in body
            assert ask(gateway, "/v1/status")[0] == 404
            for token in ("nobody's", "rota-claim-default/c/u/0"):
                assert ask(gateway, "/v1/pools/default/boxes/claims", token=token)[0] == 401


async def test_one_that_does_not_lead_says_who_does(server: Live, tmp_path: Path) -> None:
    gateway = tmp_path / "g"
    arguments = ("--kubeconfig", str(server.kubeconfig))
    with operating(tmp_path / "one", *arguments) as one:
        await one.leads()
        with operating(tmp_path / "two", *arguments, "--gateway", str(gateway)) as two:

            async def waits() -> bool:
                return "waits; " in two.said()

            await until_async(waits, two.said, seconds=SOON_SECONDS)
            status, message = ask(gateway, "/v1/why/workspaces/default/w")
            assert status == 503 and f"-{one.process.pid}-" in message


def test_the_home_of_a_server_is_no_folder_for_its_socket(server: Live) -> None:
    done = rota("operator", "--kubeconfig", str(server.kubeconfig), "--gateway", str(server.home))
    assert done.returncode != 0 and "is the home of a server" in done.stderr
    assert rota("get", "workspaces", "--home", str(server.home)).returncode == 0, "the server still answers there"


async def test_a_folder_that_another_operator_uses_stays_its_own(server: Live, tmp_path: Path) -> None:
    gateway = tmp_path / "g"
    arguments = ("--kubeconfig", str(server.kubeconfig), "--gateway", str(gateway))
    with operating(tmp_path / "one", *arguments) as one:
        await one.leads()
        with operating(tmp_path / "two", *arguments) as two:

            async def begun() -> bool:
                return "waits; " in two.said() or two.process.poll() is not None

            await until_async(begun, two.said, seconds=SOON_SECONDS)
            if two.process.poll() is None:
                await two.end()
        assert ask(gateway, "/healthz") == (200, "ok")


async def test_a_socket_that_a_killed_one_left_behind_is_in_nobodys_way(server: Live, tmp_path: Path) -> None:
    gateway = tmp_path / "g"
    arguments = ("--kubeconfig", str(server.kubeconfig), "--gateway", str(gateway))
    for name in ("one", "two"):
        with operating(tmp_path / name, *arguments) as operator:

            async def answers() -> bool:
                try:
                    return ask(gateway, "/healthz")[0] == 200
                except OSError:
                    return False

            await until_async(answers, operator.said, seconds=SOON_SECONDS)
            await operator.end(signal.SIGKILL)


# The controllers of `rota up`.


async def test_up_has_controllers_and_leads_at_once_after_it_was_killed(tmp_path: Path) -> None:
    with live(tmp_path / "home") as server:
        async with connected(server) as client:
            await client.create(workspace("w"))
            await settled(client, "w")
            first = await holder(client)
            assert first
        server.kill()
        server.start()
        async with connected(server) as client:
            await client.create(workspace("again"))
            # A lease of somebody else would have to expire first, which takes 30 s.
            await settled(client, "again", 10)
            assert await holder(client) == first


async def test_up_without_controllers_leaves_objects_and_lease_alone(server: Live) -> None:
    async with connected(server) as client:
        await client.create(workspace("w"))
        # Whatever acts on objects would have acted on the first by the time that the last of many is there.
        for i in range(50):
            await client.create(workspace(f"w{i}"))
        assert (await client.get(Workspace, "w")).status is None
        with pytest.raises(ApiError) as refused:
            await client.get(Lease, LEASE, namespace="rota-system")
        assert refused.value.code == 404
    done = rota("why", "workspace/w", "--home", str(server.home))
    assert done.returncode != 0 and "--no-controllers" in done.stderr


async def test_up_that_is_ended_well_releases_the_lease(tmp_path: Path) -> None:
    with live(tmp_path / "home") as server:
        async with connected(server) as client:
            await client.create(workspace("w"))
            await settled(client, "w")
        assert server.kill(signal.SIGTERM) == 0
        server.arguments = ("--no-controllers",)
        server.start()
        async with connected(server) as client:
            assert await holder(client) == ""
