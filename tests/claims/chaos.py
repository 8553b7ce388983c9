"""Pools under fire with many clients that claim, run commands, write files and release; and what each of them saw."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from rota import Client
from tests.control.running.chaos import API, World

WAIT_SECONDS = 20
LEASE_SECONDS = 8
"""The lease, after which a claim of a client that lost its server ends."""
ROUND_SECONDS_MAX = 60.0
PAUSE_SECONDS_MAX = 0.3
SETTLE_SECONDS = 150.0
SECRET = re.compile(r"secret-[0-9a-f]{32}")
LOOK = "cat mine .mine ~/mine ~/.mine /tmp/mine 2>/dev/null; env; ls -A . ~ /tmp 2>/dev/null; true"
WRITE = """\
for at in mine .mine ~/mine ~/.mine /tmp/mine; do echo $SECRET > $at; done
sleep 100700 > /dev/null 2>&1 &
cat mine
"""


class Rush(World):
    """Two pools with runners and a plain one, and clients that never rest until `settle`."""

    def __init__(self, folder: Path, seed: int, clients: int) -> None:
        super().__init__(folder, seed)
        self.replicas = {"plain": 3, "boxed": 3}
        self.turns = dict.fromkeys(self.replicas, "first")
        self.outcomes: Counter[str] = Counter()
        """The outcomes of the clients' rounds."""
        self.seen: list[str] = []
        """Leaks: the holder who found something, the place, and the holder whose it was."""
        self._whose: dict[str, str] = {}
        """By secret, who wrote it, where and when."""
        self._is_over = threading.Event()
        self._clients = clients
        self._thread = threading.Thread(target=lambda: asyncio.run(self._rush()), name="clients")

    def apply(self) -> None:
        env = [{"name": "CHAOS", "value": self.mark}]
        main = {"name": "main", "command": ["sh", "-c", "while :; do sleep 0.2; done"], "env": env}
        template = {"containers": [main], "terminationGracePeriodSeconds": 0}
        worker = {"type": "shell", "env": env, "workspaceRef": {"name": "code"}}
        storage = {"storage": {"size": "1Gi"}}
        items = [
            _object("Workspace", "code", {"repo": self.repo.url}),
            _object("WorkerPool", "plain", {"replicas": self.replicas["plain"], "template": template, **storage}),
            _object("WorkerPool", "boxed", {"replicas": self.replicas["boxed"], "worker": worker, **storage}),
        ]
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.live.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=whole)

    def delete_instance(self) -> None:
        names = sorted(self.instances())
        if names:
            with contextlib.suppress(AssertionError):
                self.live.kubectl("delete", "inst", self.chance.choice(names), "--wait=false")

    def rest(self) -> None:
        """Let the clients do something."""
        done = self.outcomes["done"]
        with contextlib.suppress(AssertionError):
            self.until(lambda: self.outcomes["done"] > done + 1, 3.0)

    # Clients.

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(2 * ROUND_SECONDS_MAX)
        assert not self._thread.is_alive()

    async def _rush(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(self._clients)))

    async def _client(self, number: int) -> None:
        while not self._is_over.is_set():
            try:
                async with asyncio.timeout(ROUND_SECONDS_MAX):
                    await self._round(("plain", "boxed")[number % 2])
                self.outcomes["done"] += 1
            except Exception as error:  # the server may just not be there, or the instance, or the lease
                self.outcomes[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_SECONDS_MAX)

    async def _round(self, pool: str) -> None:
        secret = f"secret-{uuid.uuid4().hex}"
        client = Client.connect(home=self.home)
        try:
            async with client.claim(pool, wait_seconds=WAIT_SECONDS, lease_seconds=LEASE_SECONDS) as box:
                whose = self._whose[secret] = f"{box.name} in {box.instance}, since {self.seconds:.2f} s"
                for step, command in (("before", LOOK), ("while", WRITE), ("after", LOOK)):
                    said = await box.exec(command, env={"SECRET": secret} if command is WRITE else {})
                    for found in {*SECRET.findall(said.stdout)} - {secret}:
                        self.seen.append(
                            f"{whose}: {step} its own writing, at {self.seconds:.2f}: {self._whose[found]}"
                        )
        finally:
            await client.close()

    # The end.

    def settle(self) -> None:
        self.end()
        self.until(lambda: self.phases()["Bound"] + self.phases()["Waiting"] == 0, SETTLE_SECONDS)
        self.until(self.is_settled, SETTLE_SECONDS)
        self.until(lambda: all(map(_is_idle, self.live.read("inst")["items"])), SETTLE_SECONDS)

    def phases(self) -> Counter[str]:
        return Counter(one.get("status", {}).get("phase", "") for one in self.live.read("claim")["items"])

    def leftovers(self) -> list[str]:
        """Files of holders that are still there, and what they had run."""
        found = [str(path) for path in (self.home / "storage").rglob("*") if path.is_file() and _has_secret(path)]
        return found + [one.command for one in self.processes() if "sleep 100700" in one.command]

    def told(self) -> str:
        said = self.live.kubectl("get", "claim,wp,inst", "-o", "wide")
        stuck = [json.dumps(one) for one in self.live.read("inst")["items"] if not _is_idle(one)]
        return "\n".join([said, str(self.outcomes), *stuck, *(f"{one.pid} {one.command}" for one in self.processes())])


def _has_secret(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return SECRET.search(path.read_bytes().decode(errors="replace")) is not None
    return False


def _is_idle(one: Any) -> bool:
    return one.get("status", {}).get("phase") == "Idle" and "assignment" not in one["spec"]


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
