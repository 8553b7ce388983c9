"""The network for fetching repositories, as the server's policy sets it."""

from __future__ import annotations

import ipaddress
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rota.api.egress import Network, allows, is_named, normal, written
from rota.client.heads import authority
from rota.runtime import egress, sandbox
from rota.runtime.egress import connect, inner
from rota.runtime.sandbox import system
from rota.runtime.workspace.failures import WorkspaceError

PORTS = {"https": 443, "ssh": 22}
DESCRIPTOR = 9
PROXY_KEY = "workspaces/proxy"
"""The key from which the uid of git's proxy is derived, if Rota is root."""


class GitNetwork(NamedTuple):
    """The network of git. With network egress it has targets, as written in --egress."""

    network: Network = "host"
    targets: tuple[str, ...] = ()

    def check(self, url: str) -> None:
        """Raise WorkspaceError for an address that the policy does not allow."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or self.network == "host":
            return
        if self.network == "none":
            why = "it is not fetched: this server was started with --network none"
            fix = f"an admin can start it with --network egress --egress {parts.hostname}"
            raise WorkspaceError("RepositoryUnavailable", f"{parts.hostname}: {why}; {fix}")
        available = sandbox.available()
        if not available.ok:
            why = f"it is not fetched: --network egress takes a sandbox: {available.why_not}"
            raise WorkspaceError("RepositoryUnavailable", f"{parts.hostname}: {why}")
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
        if not self._allows(host, port):
            why = f"port {port} of it is not on this server's list for egress"
            fix = f"an admin can add it with --egress {authority(host, port)}"
            raise WorkspaceError("RepositoryUnavailable", f"{host}: {why}; {fix}")

    def _allows(self, host: str, port: int) -> bool:
        targets = [written(one) for one in self.targets]
        try:
            return allows(targets, ipaddress.ip_address(host), port, named=False)
        except ValueError:
            return is_named(targets, normal(host), port)

    def around(self, argv: Sequence[str], scratch: Path) -> list[str]:
        """Return a command that runs `argv` with this network, and is otherwise the same."""
        if self.network != "egress":
            return list(argv)
        uid = sandbox.uid_of(PROXY_KEY) if os.geteuid() == 0 else None
        launch = egress.launched(scratch, [written(one) for one in self.targets], DESCRIPTOR, uid)
        bwrap = [system.program("bwrap"), "--dev-bind", "/", "/", "--unshare-net", "--die-with-parent", "--"]
        python = [os.path.realpath(sys.executable), "-I", "-S", inner.__file__]
        return [*launch, *bwrap, *python, f"{DESCRIPTOR}:{egress.PORT}", *argv]

    def environment(self) -> dict[str, str]:
        """Return the variables that make git use this network's proxy, and not the server's own."""
        return {**egress.environment(), "NO_PROXY": "", "no_proxy": ""} if self.network == "egress" else {}

    @property
    def proxy_command(self) -> str:
        """The ProxyCommand for ssh."""
        if self.network != "egress":
            return "none"
        python = [os.path.realpath(sys.executable), "-I", "-S", connect.__file__, str(egress.PORT)]
        return f"{shlex.join(python)} %h %p"
