"""`rota operator` as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from rota.api import Lease
from rota.client import Client
from rota.registry import ApiError
from tests.server.live import ROTA, die_with_parent

LEASE = "rota-controllers"


class Operator:
    """One operator, which may be killed, stopped, continued and started again."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [ROTA, "operator", "--kubeconfig", str(self._kubeconfig)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def send(self, signal_: int) -> None:
        os.kill(self.process.pid, signal_)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(60)

    def leads(self, holder: str) -> bool:
        """Return whether this is the holder of the lease, which has the process's number in its name."""
        return f"-{self.process.pid}-" in holder

    def said(self) -> str:
        return self._log.read_text()


def kubeconfig_of(kubeconfig: Path, token: str, path: Path) -> Path:
    """The same server, with another token."""
    config = json.loads(kubeconfig.read_text())
    config["users"][0]["user"]["token"] = token
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


async def holder(client: Client) -> str:
    """Return the holder of the lease: of a Rota in its system namespace, of a cluster in `default`."""
    for namespace in ("rota-system", "default"):
        try:
            lease = await client.get(Lease, LEASE, namespace=namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            continue
        return (lease.spec.holder_identity or "") if lease.spec else ""
    return ""
