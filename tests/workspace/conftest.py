"""Real repositories, made on the spot, and servers that offer them over HTTPS."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import os
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rota.runtime.workspace import Finished, Mirror

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
       for what, value in (("NAME", "a"), ("EMAIL", "a@example.org"))},
}  # fmt: skip
GIT_SECONDS_MAX = 60


class Repo:
    """A repository on the disk that others clone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "trunk")

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def git(self, *arguments: str, stdin: str = "") -> str:
        return subprocess.run(
            ["git", "-c", "safe.directory=*", *arguments],
            cwd=self.path, env=ENVIRONMENT, input=stdin, capture_output=True, text=True, check=True,
            timeout=GIT_SECONDS_MAX,
        ).stdout.strip()  # fmt: skip

    def commit(self, name: str = "file", content: str | bytes = "content\n") -> str:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", f"changes {name}")
        return self.git("rev-parse", "HEAD")


class Server:
    """A host of repositories that can ask for a password, send elsewhere and be silent; it notes what it sees."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.password = ""
        self.elsewhere = ""
        self.silent = threading.Event()
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.arguments_seen: set[bytes] = set()
        self._root = root
        self.authority = _certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._http.daemon_threads = True
        self.url = f"https://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self.silent.set()
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()

    def secret(self, **values: str) -> dict[str, str]:
        return {"ca.crt": self.authority, **values}

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                server.authorizations.append(self.headers["Authorization"])
                for path in Path("/proc").glob("[0-9]*/cmdline"):
                    with contextlib.suppress(OSError):
                        server.arguments_seen.add(path.read_bytes())
                if server.elsewhere:
                    self.send_response(302)
                    self.send_header("Location", server.elsewhere + self.path)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif server.password == "silence":
                    server.silent.wait(GIT_SECONDS_MAX)
                elif server.password and self.headers["Authorization"] != _basic(server.password):
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="git"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    self._answer()

            do_POST = do_GET  # noqa: N815

            def _answer(self) -> None:
                path, _, query = self.path.partition("?")
                done = subprocess.run(
                    ["git", "http-backend"], input=self.rfile.read(int(self.headers["Content-Length"] or 0)),
                    capture_output=True, timeout=GIT_SECONDS_MAX,
                    env={**ENVIRONMENT, "GIT_PROJECT_ROOT": str(server._root), "GIT_HTTP_EXPORT_ALL": "1",
                         "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                         "CONTENT_TYPE": self.headers["Content-Type"] or "",
                         "GIT_PROTOCOL": self.headers["Git-Protocol"] or "",
                         "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or ""},
                )  # fmt: skip
                head, _, body = done.stdout.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
                self.send_response(int(headers.pop("Status", "200").split()[0]))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _basic(userinfo: str) -> str:
    return "Basic " + base64.b64encode(userinfo.encode()).decode()


def _certificate(folder: Path) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return (folder / "cert.pem").read_text()


async def no_setup(argv: Sequence[str], cwd: Path) -> Finished:
    raise AssertionError("there is no set-up command")


def everything(folder: Path) -> Iterator[bytes]:
    """All names and contents below a folder."""
    for path in folder.rglob("*"):
        yield os.fsencode(path.name)
        if path.is_file() and not path.is_symlink():
            yield path.read_bytes()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "origin" / "repo")
    made.commit()
    return made


@pytest.fixture
async def mirror(tmp_path: Path) -> AsyncIterator[Mirror]:
    made = Mirror(tmp_path / "home")
    yield made
    await made.close()


@pytest.fixture
def make_server(tmp_path: Path, repo: Repo) -> Iterator[Callable[[], Server]]:
    made: list[Server] = []

    def make() -> Server:
        made.append(Server(repo.path.parent, tmp_path / f"server-{len(made)}"))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(make_server: Callable[[], Server]) -> Server:
    return make_server()
