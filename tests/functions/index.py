"""A package index of one package, on a real socket: what pip is pointed at."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Index:
    """What was asked for, and where it is."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def index() -> Iterator[Index]:
    made, content = Index(), wheel()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            if self.path == f"/{NAME}/":
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
