"""Two operators on one server, whose leader is killed, or stopped and continued, again and again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.api import Event, ObjectMeta, Secret, Workspace
from rota.client import Cache, Client, Update
from tests.conformance.cluster import cluster
from tests.operators.processes import Operator, holder, kubeconfig_of
from tests.server.live import ROTA, live
from tests.until import until_async

ROUNDS = int(os.environ.get("ROTA_HAND_OVERS", "2"))
"""More of them: `make chaos`."""
HAND_OVER_SECONDS_MAX = 20.0
"""Generous, for busy machines; a lease lasts 6 s."""
OBJECTS_A_ROUND = 8


@pytest.fixture(params=["rota", "kubernetes"])
def planes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, list[Path], Path | None]]:
    """A server's kubeconfig, one for each operator, and the audit trail where there is one."""
    with (_rota if request.param == "rota" else _kubernetes)(tmp_path) as plane:
        yield plane


@contextmanager
def _rota(folder: Path) -> Iterator[tuple[Path, list[Path], Path | None]]:
    with live(folder / "home", "--no-controllers") as server:
        own = [kubeconfig_of(server.kubeconfig, _token(server.home, name), folder / name) for name in ("one", "two")]
        yield server.kubeconfig, own, server.home / "audit.log"


def _token(home: Path, name: str) -> str:
    made = [ROTA, "token", "create", name, "--scope", "admin", "--home", str(home)]
    return subprocess.run(made, check=True, capture_output=True, text=True).stdout.split()[-1]


@contextmanager
def _kubernetes(folder: Path) -> Iterator[tuple[Path, list[Path], Path | None]]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    with cluster(Path(assets), folder) as started:
        yield started.kubeconfig, [started.kubeconfig] * 2, None


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client.connect(kubeconfig=kubeconfig, manager="tester")
    try:
        yield client
    finally:
        await client.close()


def workspace(name: str, secret: str) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"repo": "https://git.example/app", "secretRef": {"name": secret}},
    }


async def declare(client: Client, round_: int) -> None:
    """Workspaces whose Secret is there before, and some whose Secret comes after."""
    for i in range(OBJECTS_A_ROUND):
        name = f"round-{round_}-{i}"
        secret = Secret(metadata=ObjectMeta(name=name, namespace="default"))
        if i % 2:
            await client.create(secret)
            await client.create(workspace(name, name))
        else:
            await client.create(workspace(name, name))
            await client.create(secret)


def said(obj: Workspace) -> tuple[str, str]:
    ready = obj.status.condition("Ready") if obj.status else None
    return (ready.status, ready.reason) if ready else ("", "")


@pytest.mark.timeout(60 + 60 * ROUNDS)
async def test_when_the_leader_is_killed_or_stopped_another_takes_over_and_nothing_happens_twice(
    planes: tuple[Path, list[Path], Path | None], tmp_path: Path
) -> None:
    kubeconfig, own, audit = planes
    versions: dict[str, list[tuple[str, str]]] = {}

    def note(update: Update[Workspace]) -> None:
        if update.new is not None:
            versions.setdefault(update.key.name, []).append(said(update.new))

    operators = [Operator(path, tmp_path / f"operator-{i}.log") for i, path in enumerate(own)]

    async def leader(client: Client) -> Operator | None:
        now = await holder(client)
        return next((one for one in operators if one.leads(now)), None)

    def logs() -> str:
        return "\n\n".join(one.said()[-4000:] for one in operators)

    try:
        async with connected(kubeconfig) as client, Cache(client, Workspace) as cache:
            cache.subscribe(note)

            async def all_ready() -> bool:
                return all(said(obj)[0] == "True" for obj in cache.list()) and len(cache) > 0

            async def somebody_leads() -> bool:
                return await leader(client) is not None

            await until_async(somebody_leads, logs, seconds=HAND_OVER_SECONDS_MAX)
            for round_ in range(ROUNDS):
                first = await leader(client)
                assert first is not None
                declaring = asyncio.create_task(declare(client, round_))
                first.send(signal.SIGKILL if round_ % 2 == 0 else signal.SIGSTOP)

                async def another_leads(first: Operator = first) -> bool:
                    return await leader(client) not in (None, first)

                await until_async(another_leads, logs, seconds=HAND_OVER_SECONDS_MAX)
                await declaring
                if round_ % 2 == 0:
                    first.process.wait(60)
                    first.start()
                else:
                    first.send(signal.SIGCONT)
                await until_async(all_ready, logs, seconds=HAND_OVER_SECONDS_MAX)
            await asyncio.gather(*(_ends_well(one) for one in operators))
            await until_async(all_ready, logs, seconds=0.1)
            events = (await client.list(Event, namespace="default")).items
    finally:
        for one in operators:
            if one.process.poll() is None:
                one.kill()

    assert len(versions) == ROUNDS * OBJECTS_A_ROUND
    for name, seen in versions.items():
        assert seen == sorted(set(seen), key=seen.index), f"{name}: the same was said twice: {seen}"
        assert len(seen) <= 3 and seen[-1] == ("True", "Ready"), f"{name}: {seen}"
    assert all((event.count or 1) == 1 for event in events), [event for event in events if (event.count or 1) > 1]
    if audit is not None:
        check_audit(audit, versions)


async def _ends_well(operator: Operator) -> None:
    operator.send(signal.SIGCONT)
    operator.send(signal.SIGTERM)
    code = await asyncio.to_thread(operator.process.wait, 20)
    assert code == 0, operator.said()


def check_audit(audit: Path, versions: dict[str, list[tuple[str, str]]]) -> None:
    """Every status that was written is one that was seen, and both operators had their turns."""
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    written: dict[str, set[int]] = {}
    for line in lines:
        if line["resource"] == "workspaces.rota.dev" and line.get("subresource") == "status" and line["code"] < 300:
            written.setdefault(line["name"], set()).add(line["revision"])
    for name, revisions in written.items():
        told = [one for one in versions[name] if one != ("", "")]
        assert len(revisions) == len(told), f"{name}: written at {sorted(revisions)}, seen {told}"
    leaders = {line["user"] for line in lines if line["resource"].startswith("leases") and line["code"] < 300}
    assert leaders == {"one", "two"}
