"""Credentials of a client: a fixed token, a token in a file that is replaced, or the output of a plugin."""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rota.client.failures import CredentialsFailed

TOKEN_FILE_SECONDS = 60.0
"""Time for which a token that was read from a file is used. Kubernetes replaces tokens well before they expire."""
PLUGIN_SECONDS_MAX = 60.0
PLUGIN_OUTPUT_SHOWN_MAX = 1000
EXPIRY_MARGIN_SECONDS = 10.0
EXEC_GROUP = "client.authentication.k8s.io"


class Credential(msgspec.Struct, frozen=True):
    """A token, a client certificate, or headers that prove who the client is."""

    token: str = ""
    certificate: str = ""
    """A client certificate with its key, as PEM."""
    headers: tuple[tuple[str, str], ...] = ()


class Credentials(Protocol):
    """A source of credentials."""

    async def current(self) -> Credential:
        """Return the credential to use now."""

    def refuse(self, credential: Credential) -> bool:
        """Report that the server refused a credential. Returns whether another one may be available."""


class Fixed:
    """A credential that never changes."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    def refuse(self, credential: Credential) -> bool:
        return False


class TokenFile:
    """A token in a file that something else keeps up to date, as in every pod."""

    def __init__(self, path: Path, base: Credential) -> None:
        self._path = path
        self._base = base
        self._credential: Credential | None = None
        self._read_at = 0.0

    async def current(self) -> Credential:
        if self._credential is None or time.monotonic() - self._read_at > TOKEN_FILE_SECONDS:
            try:
                token = self._path.read_text().strip()
            except OSError as error:
                raise CredentialsFailed(f"cannot read the token in {self._path}: {error}") from None
            self._credential = msgspec.structs.replace(self._base, token=token)
            self._read_at = time.monotonic()
        return self._credential

    def refuse(self, credential: Credential) -> bool:
        self._credential = None
        return True


@dataclass(frozen=True)
class Plugin:
    """A program that prints an ExecCredential."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = f"{EXEC_GROUP}/v1"
    cluster: Mapping[str, Any] | None = None
    """Information about the server for the plugin, if it wants it."""
    install_hint: str = ""


class FromPlugin:
    """Runs a plugin, and again when its credential has expired or was refused. It never runs twice at once."""

    def __init__(self, plugin: Plugin, base: Credential, seconds_max: float = PLUGIN_SECONDS_MAX) -> None:
        self._plugin = plugin
        self._base = base
        self._seconds_max = seconds_max
        self._credential: Credential | None = None
        self._expires: datetime.datetime | None = None
        self._running = asyncio.Lock()

    async def current(self) -> Credential:
        if self._credential is None or self._expired():
            async with self._running:
                if self._credential is None or self._expired():
                    self._credential = await self._ask()
        return self._credential

    def refuse(self, credential: Credential) -> bool:
        # An earlier request may be refused after another one has fetched a new credential.
        if credential is self._credential:
            self._credential = None
        return True

    def _expired(self) -> bool:
        if self._expires is None:
            return False
        left = self._expires - datetime.datetime.now(datetime.UTC)
        return left.total_seconds() < EXPIRY_MARGIN_SECONDS

    async def _ask(self) -> Credential:
        try:
            answer = msgspec.json.decode(await self._output(), type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise self._failed(f"does not print an ExecCredential: {error}") from None
        if answer.api_version != self._plugin.api_version:
            raise self._failed(f"speaks {answer.api_version!r}, but the kubeconfig says {self._plugin.api_version!r}")
        said = answer.status
        if not said.token and not (said.certificate and said.key):
            raise self._failed("printed neither a token nor a certificate with its key")
        self._expires = said.expires
        certificate = f"{said.certificate}\n{said.key}\n" if said.certificate else self._base.certificate
        return msgspec.structs.replace(self._base, token=said.token, certificate=certificate)

    async def _output(self) -> bytes:
        plugin = self._plugin
        spec: dict[str, Any] = {"interactive": False}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env={**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
            raise self._failed(f"cannot be run: {error}{hint}") from None
        try:
            async with asyncio.timeout(self._seconds_max):
                out, errors = await process.communicate()
        except TimeoutError:
            raise self._failed(f"took longer than {self._seconds_max:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            shown = errors.decode(errors="replace").strip()[-PLUGIN_OUTPUT_SHOWN_MAX:]
            raise self._failed(f"ended with exit status {process.returncode}: {shown}")
        return out

    def _failed(self, what: str) -> CredentialsFailed:
        return CredentialsFailed(f"the credential plugin {self._plugin.command} of the kubeconfig {what}")


class _ExecStatus(msgspec.Struct):
    token: str = ""
    certificate: str = msgspec.field(default="", name="clientCertificateData")
    key: str = msgspec.field(default="", name="clientKeyData")
    expires: datetime.datetime | None = msgspec.field(default=None, name="expirationTimestamp")


class _ExecCredential(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    status: _ExecStatus = msgspec.field(default_factory=_ExecStatus)
