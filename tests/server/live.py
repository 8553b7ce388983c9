"""`rota up` as a process of its own, as people run it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import KINDS
from rota.client import channels, paths
from rota.client.http import HttpBackend

ROTA = str(Path(sys.executable).parent / "rota")
PR_SET_PDEATHSIG = 1
_KIND_BY_NAME = {name: kind for kind in KINDS.values() for name in (kind.singular, kind.plural, *kind.short_names)}


class _SocketConnection(http.client.HTTPConnection):
    """A connection to the socket in the home of a server, which takes no credential."""

    socket_path = Path()

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.socket_path))


class Live:
    """A running server and its home."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self.arguments = arguments
        self.kubeconfig = home / "kubeconfig"
        self.start()

    def start(self) -> None:
        self._close()
        self.process = subprocess.Popen(
            [ROTA, "up", "--home", str(self.home), "--port", "0", *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # The signal comes when the thread ends that started the server, not when its process does.
            preexec_fn=die_with_parent if threading.current_thread() is threading.main_thread() else None,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"https://\S+:\d+", line):
                self.url = found[0].rstrip(".,")
                return
        raise AssertionError(f"rota up ended without being ready: {''.join(said)}")

    def kill(self, how: int = signal.SIGKILL) -> int:
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
        code = self.process.wait(60)
        self._close()
        return code

    def _close(self) -> None:
        before: subprocess.Popen[str] | None = getattr(self, "process", None)
        if before is not None and before.stdout is not None:
            before.stdout.close()

    __del__ = _close

    def end(self) -> None:
        """In good order: what it runs ends with it. If it was killed, what it ran is still there."""
        if self.process.poll() is not None and (self.home / "keeper").exists():
            self.start()
        self.kill(signal.SIGTERM)

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, **environment: str) -> str:
        """Return what kubectl prints on both its outputs. Skips the test where there is no kubectl."""
        if shutil.which("kubectl") is None:
            pytest.skip("there is no kubectl on this machine")
        done = subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            # What kubectl remembers of a server is in the home of its user.
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": f"{self.home}-user", **environment},
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode == 0) == check, said
        return said

    def json(self, *arguments: str) -> Any:
        return json.loads(self.kubectl(*arguments, "-o", "json"))

    def read(self, kind: str, name: str = "") -> Any:
        """Return an object of the default namespace, or the list of all, by any name that kubectl knows the kind by.

        Without a process of its own: whoever looks again and again would take a processor with kubectl.
        """
        api = _KIND_BY_NAME[kind]
        namespace = "default" if api.namespaced else ""
        where = paths.item(api, namespace, name) if name else paths.collection(api, namespace)
        connection = _SocketConnection("localhost", timeout=60)
        try:
            connection.socket_path = self.home / "rota.sock"
            connection.request("GET", where)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise AssertionError(f"{kind} {name}: {error!r}") from None
        finally:
            connection.close()
        assert answer.status == 200, said.decode()
        return json.loads(said)


def die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def live(home: Path, *arguments: str) -> Iterator[Live]:
    server = Live(home, *arguments)
    try:
        yield server
    finally:
        server.end()


def execute(home: Path, instance: str, script: str, seconds: float = 60.0) -> tuple[int, str]:
    """The exit code of a script that is run in an instance, and what it says on both its outputs.

    As `rota exec` does it, but without a process of its own.
    """

    async def run() -> tuple[int, str]:
        backend = HttpBackend.connect(home=home)
        said = bytearray()

        async def show(_: int, data: bytes) -> None:
            said.extend(data)

        path = channels.path("default", instance, ["sh", "-c", script], stdin=False)
        try:
            async with asyncio.timeout(seconds), backend.websocket(path, protocols=(channels.PROTOCOL,)) as websocket:
                return await channels.carry(websocket, show), said.decode()
        finally:
            await backend.close()

    return asyncio.run(run())
