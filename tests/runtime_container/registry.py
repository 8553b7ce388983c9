"""A registry with one image in it, for real pulls."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """A registry of images, with the requests that it got."""

    def __init__(self) -> None:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("file"))
        layer = gzip.compress(content.getvalue())
        diff = _digest(content.getvalue())
        config = json.dumps(
            {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
        ).encode()
        self.blobs = {_digest(blob): blob for blob in (layer, config)}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": CONFIG, "size": len(config), "digest": _digest(config)},
                "layers": [{"mediaType": LAYER, "size": len(layer), "digest": _digest(layer)}],
            }
        ).encode()
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.address = ""

    @contextmanager
    def serving(self) -> Iterator[Registry]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.may_answer.wait()
                kind, body = registry.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.may_answer.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, path: str) -> tuple[str, bytes | None]:
        kind, _, last = path.rpartition("/")
        if path == "/v2/":
            return "application/json", b"{}"
        if kind.endswith("/manifests") and last == "latest":
            return MANIFEST, self.manifest
        return "application/octet-stream", self.blobs.get(last)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
