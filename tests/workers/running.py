"""A real runner, and a gateway in this process that it speaks to."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rota.api.pool import WorkspaceFile, WorkspaceSpec
from rota.client.websocket import Closed, WebSocket
from rota.runtime import composing
from rota.runtime.entering import JoinTarget, find, inside
from rota.runtime.interface import Order, Owner, Run, Subject
from rota.runtime.keeper.kernel import descendants_of
from rota.runtime.local import RUNNER
from rota.runtime.places import Entry, Places
from rota.runtime.runner.messages import (
    PROTOCOL,
    BoxPlace,
    Configure,
    Hold,
    Release,
    Report,
    ResetPolicy,
    WorkspaceSource,
)
from rota.runtime.runners import Runners
from rota.server.app import refusal
from rota.server.http import Request, Response
from rota.server.http_server import HttpServer
from rota.server.upgrade import Upgrade

SUBJECT = Subject("default", "w-0", "uid")
TOKEN = "a-token"
SECONDS_MAX = 30.0
Isolation = Literal["none", "sandbox"]


class Site:
    """A home with one worker's runner."""

    def __init__(self, home: Path, isolation: Isolation) -> None:
        self.home = home
        self.isolation: Isolation = isolation
        self.places = Places(home)
        self.runners = Runners()
        self.process: asyncio.subprocess.Process | None = None
        self.reports: list[Report] = []
        """All that was said of it."""
        self._run = 0
        self._socket = home / "gateway"
        self._http = HttpServer(self._answer, refusal)
        self._told = asyncio.Event()
        self.runners.listen(self._heard)
        self.log = home / "runner.log"

    def _answer(self, request: Request) -> Response | Upgrade:
        if request.headers.get("authorization") != f"Bearer {TOKEN}" or request.path != "/v1/stream/default/w-0":
            return refusal(403, "somebody else")
        return Upgrade(lambda stream: self.runners.serve(SUBJECT, stream), PROTOCOL)

    def _heard(self, subject: Subject) -> None:
        report = self.runners.report(subject)
        if report is not None and self.reports[-1:] != [report]:
            self.reports.append(report)
        self._told.set()

    # Its gateway.

    async def open(self) -> None:
        await self._http.listen_unix(str(self._socket))

    async def close(self) -> None:
        await self._http.close(grace_seconds=0)
        self._socket.unlink(missing_ok=True)

    async def reopen(self) -> None:
        """The server comes back, and knows nothing."""
        self.runners = Runners()
        self.runners.listen(self._heard)
        self._http = HttpServer(self._answer, refusal)
        await self.open()

    # Its process.

    async def start(self) -> None:
        self._run += 1
        folder = self.places.folder(SUBJECT)
        folder.mkdir(parents=True, exist_ok=True)
        self.places.box(SUBJECT).write_text("")
        env = {
            "PATH": os.environ["PATH"],
            "ROTA_GATEWAY": str(self._socket),
            "ROTA_INSTANCE": "default/w-0",
            "ROTA_TOKEN": TOKEN,
            "ROTA_RUN": str(self._run),
            "ROTA_HOME": str(self.home),
            "ROTA_BOX": str(self.places.box(SUBJECT)),
        }
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *RUNNER, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        """As a crash does, with everything below: that is what a keeper sees to."""
        assert self.process is not None
        tree: list[int] = []
        # Stopped first, until none is new: one that runs on could start another that would not be in the list.
        while tree != (tree := [self.process.pid, *descendants_of(self.process.pid)]):
            _send(tree, signal.SIGSTOP)
        _send(tree, signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            await self.kill()
        await self.close()

    # What it is told, and says.

    def configure(self, digest: str = "one", *, reset: ResetPolicy = "Clean", **more: Any) -> None:
        """`spec`: the workspace; `files`: of the home; `main`: what runs all the time; `env`: of the box."""
        order = Order(
            subject=SUBJECT,
            container="worker",
            number=0,
            argv=(),
            env=more.get("env", {}),
            has_runner=True,
            storage_name="w-0",
            storage_path="/workspace",
            storage_owner=Owner("w", "pool"),
            isolation=self.isolation,
        )
        digest = hashlib.sha256(digest.encode()).hexdigest()
        box = composing.box(self.places, order, digest)
        place = BoxPlace(box.argv, box.env, box.folder, box.inside, box.record, box.uid)
        spec = more.get("spec")
        source = WorkspaceSource(spec, "default/", more.get("secret")) if spec is not None else None
        files: Mapping[str, str] = more.get("files", {})
        told = Configure(digest, place, reset, source, files, tuple(more.get("main", ())), "")
        assert self.runners.send(SUBJECT, told)

    def hold(self, id_: str = "holder") -> None:
        assert self.runners.send(SUBJECT, Hold(id_))

    def release(self) -> None:
        assert self.runners.send(SUBJECT, Release())

    async def until(self, phase: str, also: Callable[[Report], bool] = lambda report: True) -> Report:
        """Returns when it is in this phase."""
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    self._told.clear()
                    report = self.runners.report(SUBJECT)
                    if report is not None and report.phase == phase and also(report):
                        return report
                    await self._told.wait()
        except TimeoutError:
            raise AssertionError(f"it is {self.runners.report(SUBJECT)}; {self.log.read_text()}") from None

    async def up(self, digest: str = "one", **more: Any) -> None:
        """Started and ready."""
        await self.start()
        await self.until("Waiting")
        self.configure(digest, **more)
        await self.until("Idle")

    async def held(self, id_: str = "holder") -> None:
        self.hold(id_)
        await self.until("Held", lambda report: report.holder == id_)

    async def released(self) -> None:
        self.release()
        await self.until("Idle", lambda report: not report.holder)

    # What is in its storage and its box.

    @property
    def storage(self) -> Path:
        return self.home / "storage" / "default" / "w-0"

    @property
    def tree(self) -> Path:
        return self.storage / "repo"

    @property
    def record(self) -> Path:
        return self.storage.with_name("w-0.prepared")

    def box(self) -> int:
        """The process that its box is."""
        return self._entry()[0].pid

    def _entry(self) -> tuple[JoinTarget, Entry]:
        entry = self.places.enter(SUBJECT, "worker")
        assert entry is not None
        return find(self.places, SUBJECT, Run(self._run, "", 0.0), entry), entry

    async def execute(self, *argv: str) -> str:
        """Return the output of a command that runs in the box, as `rota exec` has it."""
        made = inside(*self._entry(), argv, {})
        process = await asyncio.create_subprocess_exec(
            *made.argv, env=made.env, cwd=made.cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, (argv, said)
        return said.decode()

    def below(self, words: str) -> list[int]:
        """Return the processes below the runner that have these words in their command."""
        assert self.process is not None
        return [pid for pid in descendants_of(self.process.pid) if words in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


async def end_of(stream: WebSocket) -> Closed:
    """Read a stream to its end. Returns how it was closed."""
    while True:
        try:
            await stream.receive()
        except Closed as closed:
            return closed


def workspace(repo: str, *, setup: Sequence[str] = (), files: Mapping[str, str] | None = None) -> WorkspaceSpec:
    written = [WorkspaceFile(path=path, content=content) for path, content in (files or {}).items()]
    return WorkspaceSpec(repo=repo, files=written, setup=list(setup))
