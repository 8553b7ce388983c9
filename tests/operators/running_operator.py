"""An operator that runs instances: `rota operator` with a runtime and a gateway for runners, as a process of its own.

`rota operator` itself has no runtime: `rota up` alone runs processes today, and nobody can take over from it. This is
the same leadership, fence and wiring (`Controllers`) against a server elsewhere, with the runtime of `rota up`. The
home, and with it the keeper and what runs, is shared by all such operators of a site; only the leader uses it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from rota.api import Namespace
from rota.client import Client
from rota.control.schedule import Schedules
from rota.control.table import controllers
from rota.engine import CachedObjects, kinds_of
from rota.engine.leadership import Leadership
from rota.registry import ApiError
from rota.registry.system import SYSTEM_NAMESPACE
from rota.runtime.interface import Subject
from rota.runtime.local import LocalRuntime
from rota.runtime.runners import Runners
from rota.server.app import failed, refusal
from rota.server.controllers import MANAGER, Controllers, identity_of_process
from rota.server.home import Home
from rota.server.http import Request, Response
from rota.server.http_server import HttpServer
from rota.server.runners import stream
from rota.server.signed_tokens import SignedTokens
from rota.server.upgrade import Upgrade
from tests.server.live import die_with_parent

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3.0, 0.7, 0.3
"""Shorter than those of `rota operator`, so that more turns are taken in a test."""
BEARER = "Bearer "


class RunningOperator(Controllers):
    """The controllers, which have a runtime and runners for as long as they lead."""

    def __init__(self, client: Client, leadership: Leadership, home: Path) -> None:
        kinds = dict.fromkeys([*kinds_of([*controllers(self._runtime(home)), Schedules()]), Namespace.api])
        super().__init__(client, CachedObjects(client, list(kinds)), leadership, leadership.identity)
        self._site = home
        self._tokens = SignedTokens(Home(home).worker_key, "worker")

    def _runtime(self, home: Path) -> LocalRuntime:
        return LocalRuntime(home, introduce=self._introduce)

    def _introduce(self, subject: Subject) -> dict[str, str]:
        instance = f"{subject.namespace}/{subject.name}"
        token = self._tokens.of(subject)
        return {"ROTA_GATEWAY": str(self._site / "gateway"), "ROTA_INSTANCE": instance, "ROTA_TOKEN": token}

    async def _lead(self) -> None:
        self.runners = Runners(self._clock.now)
        http = HttpServer(self._answer, refusal)
        async with self._runtime(self._site) as self.runtime:
            own = self._site / f"{os.getpid()}.sock"
            own.unlink(missing_ok=True)
            await http.listen_unix(str(own))
            # Runners that come back find this one from now on, whoever was there before.
            own.rename(self._site / "gateway")
            try:
                await super()._lead()
            finally:
                await http.close(grace_seconds=0)

    def _answer(self, request: Request) -> Response | Upgrade:
        user = self._tokens.user(request.headers.get("authorization", "").removeprefix(BEARER))
        match request.path.strip("/").split("/"):
            case ["v1", "stream", namespace, name] if user is not None:
                try:
                    return stream(self.runners, self.objects, user, namespace, name, request.headers)
                except ApiError as error:
                    return failed(error)
        return refusal(403, "this is for runners")


async def operate(kubeconfig: Path, home: Path) -> None:
    client = Client.connect(kubeconfig=kubeconfig, manager=MANAGER)
    leadership = Leadership(
        client,
        identity_of_process(),
        namespace=SYSTEM_NAMESPACE,
        lease_seconds=LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
        retry_seconds=RETRY_SECONDS,
    )
    running = asyncio.create_task(RunningOperator(client, leadership, home).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        print("stopped")
    finally:
        await client.close()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(operate(Path(sys.argv[1]), Path(sys.argv[2])))
