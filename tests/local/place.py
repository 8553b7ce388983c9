"""A home, and what people type to have a server in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from rota.server.background_state import Found, find
from rota.server.home import Home
from tests.server.live import ROTA

SECONDS_MAX = 60
Ran = subprocess.CompletedProcess[str]


class Place:
    """A home of its own. `close` leaves nothing that runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("ROTA_")}
        self.environment["ROTA_HOME"] = str(self.home)

    def rota(self, *arguments: str, program: tuple[str, ...] = (ROTA,), **environment: str) -> Ran:
        return subprocess.run(
            [*program, *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            cwd=self.folder,
            env={**self.environment, **environment},
        )

    def says(self, *arguments: str) -> str:
        """Return the output of a command that succeeds."""
        done = self.rota(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [ROTA, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
        )

    def start(self, *arguments: str) -> int:
        """A server on a free port; returns its process."""
        self.says("start", "--port", "0", *arguments)
        return self.pid()

    def found(self) -> Found:
        return find(Home(self.home))

    def pid(self) -> int:
        pid = self.found().pid
        assert pid is not None
        return pid

    def pool(self, replicas: int, script: str = "while :; do sleep 0.1; done") -> None:
        """Instances of a script, in a pool named box. Returns when they are ready."""
        container = {"name": "main", "command": ["sh", "-c", script]}
        template = {"isolation": "none", "containers": [container]}
        self._apply("box", {"replicas": replicas, "template": template}, replicas)

    def workers(self, replicas: int) -> None:
        """Workers without a sandbox, in a pool named crew. Returns when they are ready."""
        worker = {"type": "shell", "isolation": "none"}
        self._apply("crew", {"replicas": replicas, "worker": worker, "reset": "Keep"}, replicas)

    def _apply(self, name: str, spec: dict[str, Any], replicas: int) -> None:
        pool = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": name}, "spec": spec}
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(pool))
        self.says("apply", "-f", str(file))
        self.says("wait", f"wp/{name}", f"--for=jsonpath={{.status.readyReplicas}}={replicas}", "--timeout", "30s")

    def objects(self, kind: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self.says("get", kind, "-o", "json"))["items"]
        return listed

    def runs(self) -> dict[str, int]:
        """Return the process of each instance, as the keeper recorded it."""
        records = [json.loads(file.read_text()) for file in (self.home / "keeper" / "records").iterdir()]
        return {record["key"]: record["pid"] for record in records if record.get("exit") is None}

    def close(self) -> None:
        done = self.rota("stop", "--grace", "0")
        assert done.returncode == 0, done.stderr
        assert self.found().condition == "stopped"
        assert processes_of(self.home) == []


def processes_of(home: Path) -> list[str]:
    """Everything that has the home in its command."""
    found = []
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(home).encode() in command:
                found.append(f"{entry.name}: {command!r}")
    return found
