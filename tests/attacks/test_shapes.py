"""By answers of a server that have another shape than those of Rota."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rota.cli.app import run

COMMANDS = (
    ("get", "tasks"),
    ("get", "task", "t", "-o", "yaml"),
    ("describe", "task", "t"),
    ("describe", "function", "f"),
    ("why", "task", "t"),
    ("why", "function", "f"),
    ("events",),
    ("map", "--once"),
    ("cell", "list"),
    ("quota",),
    ("schedule", "list"),
    ("schedule", "history", "s"),
    ("rollout", "history", "workload/w"),
    ("logs", "task/t"),
    ("token", "list"),
    ("delete", "task", "t"),
    ("placement", "w"),
)
ODD: tuple[Any, ...] = (None, 5, "x", [[]], {"a": 5})
FIELDS = ("apiVersion", "kind", "metadata", "spec", "status", "items", "step", "advice", "time")


def shapes() -> Iterator[Any]:
    """Answers of which one part, or all, is something else."""
    yield from ODD
    whole = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "t", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        "step": {"name": "t", "state": "Failed"},
    }
    for field in FIELDS:
        for odd in ODD:
            yield {**whole, field: odd}
            yield {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [{**whole, field: odd}]}
    for odd in ODD:
        named = {**whole, "metadata": {**whole["metadata"], "name": odd}}  # type: ignore[dict-item]
        conditioned = {**whole, "status": {"conditions": [odd], "nextRunTime": odd, "attempts": odd}}
        for one in (named, conditioned, odd):
            yield {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [one], "tokens": [one]}
        yield named
        yield conditioned
        yield {**whole, "step": {"name": odd, "state": odd, "reason": odd, "waits": [odd]}}


class Odd(ThreadingHTTPServer):
    """Answers everything with the same."""

    daemon_threads = True
    said = b""

    def handle_error(self, *_: Any) -> None:
        """A client that has heard enough may leave."""


class Answers(BaseHTTPRequestHandler):
    server: Odd
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.server.said)))
        self.end_headers()
        self.wfile.write(self.server.said)

    do_GET = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[tuple[Odd, Path]]:
    with Odd(("127.0.0.1", 0), Answers) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        named = {"server": f"http://127.0.0.1:{server.server_port}"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": named}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        try:
            yield server, tmp_path / "config"
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_to_break_a_command_of_rota_by_an_answer_of_another_shape(odd: tuple[Odd, Path], argv: tuple[str, ...]) -> None:
    server, config = odd
    failed = 0
    for shape in shapes():
        server.said = json.dumps(shape).encode()
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run([*argv, "--kubeconfig", str(config)], None)
        assert code in (0, 1), (shape, said.getvalue())
        assert "Traceback" not in said.getvalue(), shape
        failed += code == 1
    assert failed
