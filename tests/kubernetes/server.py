"""A real Kubernetes API server and its etcd, on loopback, for as long as a test session lasts."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 5
POLL_SECONDS = 0.1
IDLE_SECONDS_MAX = 30
"""A connection that has not been used for longer is opened anew: the server ends it after 90 s."""
PR_SET_PDEATHSIG = 1


class Response(NamedTuple):
    """An answer of the server."""

    code: int
    body: Any
    """JSON, or the text of anything else."""
    warnings: tuple[str, ...]
    headers: Mapping[str, str] = {}
    """By their names in lower case."""


class Client:
    """Speaks to the server over one connection that is kept open."""

    def __init__(self, port: int, certificate: Path, token: str) -> None:
        self.port, self.certificate, self.token = port, certificate, token
        self.pids: list[int] = []
        """The API server's process, and etcd's."""
        # Trusting its own certificate alone, it cannot be answered by another server that happens to be there.
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=30, context=ssl.create_default_context(cafile=str(certificate))
        )
        self._headers = {"Authorization": f"Bearer {token}"}
        self._used = time.monotonic()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Response:
        """One request. `body` is bytes, or JSON to be encoded."""
        if query:
            path += "&" if "?" in path else "?"
            path += "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {**self._headers, "Content-Type": content_type, "Accept": accept, **(headers or {})}
        if time.monotonic() - self._used > IDLE_SECONDS_MAX:
            self._connection.close()
        try:
            self._connection.request(method, path, data, sent)
            answer = self._connection.getresponse()
            text = answer.read()
        except BaseException:
            # The next request begins on a connection of its own, and does not fail for what became of this one.
            self._connection.close()
            raise
        self._used = time.monotonic()
        warnings = tuple(_warning_text(value) for value in answer.headers.get_all("Warning", []))
        received = {name.lower(): value for name, value in answer.headers.items()}
        is_json = answer.headers.get_content_type() == "application/json" and "watch" not in query
        decoded = msgspec.json.decode(text) if is_json and text else text.decode(errors="replace")
        return Response(answer.status, decoded, warnings, received)

    def close(self) -> None:
        self._connection.close()


def _warning_text(header: str) -> str:
    """`299 - "text"`, in UTF-8, whose quotes and backslashes are escaped."""
    quoted = header.split(" ", 2)[2].encode("latin-1").decode()
    return quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\")


@contextlib.contextmanager
def running(
    assets: Path,
    folder: Path,
    etcd_flags: tuple[str, ...] = ("--unsafe-no-fsync",),
    authorization: str = "AlwaysAllow",
) -> Iterator[Client]:
    """Start both processes, yield a client that may do everything, and end both whatever happens.

    Tests do without etcd's fsync, since they lose nothing but time by it; what measures speed must not.
    """
    with contextlib.ExitStack() as stack:
        etcd_port, peer_port, port = _free_ports(3)
        token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        key = folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        client_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        etcd = [
            str(assets / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--log-level=error",
            *etcd_flags,
        ]
        certificates = folder / "certificates"
        api_server = [
            str(assets / "kube-apiserver"),
            f"--etcd-servers={client_url}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={certificates}",
            f"--authorization-mode={authorization}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        ]
        storage = stack.enter_context(process_of(etcd, folder / "etcd.log"))
        process = stack.enter_context(process_of(api_server, folder / "kube-apiserver.log"))
        client = _ready_client(process, port, certificates / "apiserver.crt", token, folder / "kube-apiserver.log")
        stack.callback(client.close)
        client.pids = [process.pid, storage.pid]
        yield client


@contextlib.contextmanager
def process_of(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block lasts, and no longer than this one lives."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, preexec_fn=_die_with_parent)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _die_with_parent() -> None:
    """A test run that is killed leaves nothing behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _ready_client(process: subprocess.Popen[bytes], port: int, certificate: Path, token: str, log: Path) -> Client:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        # The server makes its certificate when it starts.
        if certificate.exists():
            with contextlib.suppress(OSError, http.client.HTTPException):
                client = Client(port, certificate, token)
                if client.send("GET", "/readyz").code == 200:
                    return client
                client.close()
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"kube-apiserver is not ready:\n{log.read_text()[-4000:]}")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
