"""Pools of workers under `rota up`, with real runners, boxes and repositories."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.live import Live, execute
from tests.until import until

PATIENCE_SECONDS = 90.0
API = "rota.dev/v1alpha1"
HOLD = {"kind": "Function", "name": "c", "uid": "u", "since": "2026-01-01T00:00:00Z"}


class Farm(Live):
    """A server whose workers are held and entered by hand."""

    def apply(self, *objects: dict[str, Any]) -> None:
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(whole))

    def until(self, what: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Returns when something is so, and what it is."""
        return until(what, lambda: self.kubectl("get", "wp,inst,ws,events", "-o", "yaml"), seconds=seconds)

    def ready(self, pool: str, count: int) -> None:
        """Returns when so many of its instances are ready, and no others are there."""

        def is_so() -> bool:
            status = self.read("wp", pool).get("status", {})
            found = [status.get(name) for name in ("phase", "readyReplicas", "replicas", "updatedReplicas")]
            return found == ["Ready", *[count or None] * 3] or (count == 0 and found[0] == "Ready" and not found[2])

        self.until(is_so)

    def instance(self, name: str) -> Any:
        return self.read("inst", name)

    def hold(self, name: str, id_: str = "h") -> None:
        """Returns when its runner has taken it on."""
        self._assign(name, {**HOLD, "id": id_})
        self.until(lambda: self.instance(name)["status"].get("assignment") == {"id": id_, "phase": "Accepted"})

    def release(self, name: str) -> None:
        """Returns when it is as new."""
        self._assign(name, None)
        self.until(lambda: self._is_free(name))

    def _assign(self, name: str, held: dict[str, Any] | None) -> None:
        self.kubectl("patch", "inst", name, "--type", "merge", "-p", json.dumps({"spec": {"assignment": held}}))

    def _is_free(self, name: str) -> bool:
        found: Any = next((one for one in self.read("inst")["items"] if one["metadata"]["name"] == name), {})
        status = found.get("status", {})
        is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
        return is_ready and "assignment" not in status and status.get("phase") == "Idle"

    def execute(self, name: str, script: str, check: bool = True) -> str:
        """Return the output of a script that is run in an instance."""
        code, said = execute(self.home, name, script)
        assert not check or code == 0, said
        return said

    def storage(self, name: str) -> Path:
        return self.home / "storage" / "default" / name

    def runners(self) -> dict[str, int]:
        """The runner of each instance."""
        return runners_of(self.home)

    def whole(self) -> Iterator[tuple[str, bytes]]:
        """All names and contents of the home, but for the store, which holds what it is given to hold."""
        for folder, _, files in os.walk(self.home):
            for name in files:
                path = Path(folder, name)
                if not name.startswith("rota.db") and path.is_file() and not path.is_symlink():
                    yield str(path), path.read_bytes()


@contextmanager
def farm(home: Path) -> Iterator[Farm]:
    made = Farm(home)
    try:
        yield made
    finally:
        made.end()


def pool(name: str, *, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, **spec},
    }


def workspace(name: str, repo: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "Workspace",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"repo": repo, **spec},
    }


def secret(name: str, **values: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values}


def runners_of(home: Path) -> dict[str, int]:
    """The runner of each instance of a home."""
    return {
        text.partition("ROTA_INSTANCE=default/")[2].partition("\0")[0]: pid
        for pid, text in environments().items()
        if f"ROTA_HOME={home}\0" in text and "ROTA_RUN=" in text and "runner\0" in command_of(pid)
    }


def environments() -> dict[int, str]:
    """Return the environment of each process, as far as it can be read."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found[int(name)] = Path("/proc", name, "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def running(command: str) -> list[int]:
    """Every process of this host with this command."""
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return [pid for pid in pids if command_of(pid).replace("\0", " ").strip() == command]
