"""Packages, in folders and in an index on a real socket: what pip is pointed at."""

from __future__ import annotations

import base64
import hashlib
import io
import ssl
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

NAME, VERSION = "tinything", "1.0"
WHEEL = f"{NAME}-{VERSION}-py3-none-any.whl"


def wheel() -> bytes:
    files = {
        f"{NAME}.py": "VALUE = 'from the index'\n",
        f"{NAME}-{VERSION}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
        f"{NAME}-{VERSION}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{NAME}-{VERSION}.dist-info/RECORD"] = record + f"{NAME}-{VERSION}.dist-info/RECORD,,\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


BROKEN = "brokenthing"
"""A package that has no wheel, and that cannot be built."""
BACKEND = """\
def build_wheel(*_, **__):
    raise RuntimeError("needs libfoo")
"""
PYPROJECT = f"""\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{BROKEN}"
version = "{VERSION}"
"""


def broken_source() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in {"backend.py": BACKEND, "pyproject.toml": PYPROJECT, "PKG-INFO": "Name: x\n"}.items():
            member = tarfile.TarInfo(f"{BROKEN}-{VERSION}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def folder(at: Path) -> Path:
    """A folder with both packages, which anybody may read."""
    at.mkdir()
    for name, content in {WHEEL: wheel(), f"{BROKEN}-{VERSION}.tar.gz": broken_source()}.items():
        (at / name).write_bytes(content)
        (at / name).chmod(0o644)
    at.chmod(0o755)
    return at


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Server(ThreadingHTTPServer):
    """One that says nothing of clients who do not trust it."""

    def handle_error(self, *_: object) -> None:
        pass


class Index:
    """A package index, with the requests that it got."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def index(secured: ssl.SSLContext | None = None, login: str = "") -> Iterator[Index]:
    """An index of one package; with a certificate, or for those who know `user:password`."""
    made, content = Index(), wheel()
    wanted = f"Basic {base64.b64encode(login.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            if login and self.headers.get("Authorization") != wanted:
                self._say(401, b"", "text/html")
            elif self.path == f"/{NAME}/":
                self._say(200, f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode(), "text/html")
            elif self.path == f"/files/{WHEEL}":
                self._say(200, content, "application/zip")
            else:
                self._say(404, b"", "text/html")

        def _say(self, code: int, body: bytes, content_type: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if secured is not None:
        # The handshake is made when the first byte is read, in the thread of the connection.
        server.socket = secured.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    user = f"{login}@" if login else ""
    made.url = f"http{'s' if secured is not None else ''}://{user}127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
