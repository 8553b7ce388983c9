"""`$ROTA_HOME`: the folder of one server, and what is in it."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

import msgspec

from rota.server.auth import HomeDamaged, Tokens, write_private

ADMIN = "rota-admin"
SOCKET_PATH_BYTES_MAX = 107
"""What the system takes for a Unix socket."""


class Home:
    """The folder. Nobody but its user may look into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "rota.db"
        self.tokens = path / "tokens.json"
        self.kubeconfig = path / "kubeconfig"
        self.socket = path / "rota.sock"
        self.audit = path / "audit.log"
        self.ca = path / "ca.crt"

    def prepare(self) -> None:
        if len(os.fsencode(self.socket)) > SOCKET_PATH_BYTES_MAX:
            raise HomeDamaged(f"{self.socket} is too long for a socket's path; choose a shorter home with --home")
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.path.stat().st_mode & 0o077:
            self.path.chmod(0o700)

    def remove_stale_socket(self) -> None:
        """A socket that a killed server left behind. The store's lock says that no server is alive."""
        self.socket.unlink(missing_ok=True)

    def write_kubeconfig(self, tokens: Tokens, url: str) -> None:
        """A kubeconfig with an admin token; the one that is there is kept when it still serves."""
        known = self._token(tokens)
        secret = known or tokens.create(ADMIN, "admin")[0]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rota",
            "clusters": [{"name": "rota", "cluster": {"server": url, "certificate-authority-data": _data(self.ca)}}],
            "users": [{"name": ADMIN, "user": {"token": secret}}],
            "contexts": [{"name": "rota", "context": {"cluster": "rota", "user": ADMIN, "namespace": "default"}}],
        }
        # JSON is YAML: this spares loading a YAML writer on every start.
        write_private(self.kubeconfig, msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")

    def _token(self, tokens: Tokens) -> str:
        try:
            text = self.kubeconfig.read_bytes()
        except OSError:
            return ""
        # kubectl writes YAML when it changes the file; the token is the one thing that is looked for in it.
        found = re.search(rb'token"?: *"?(rota-[-_A-Za-z0-9]+)', text)
        secret = found[1].decode() if found else ""
        user = tokens.user(secret)
        return secret if user is not None and user.scope == "admin" else ""


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
