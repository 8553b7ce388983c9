"""A port in a network of its own, which nobody but the instance can reach."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota.api.egress import Network
from rota.engine import RealClock
from rota.runtime.interface import Subject
from rota.runtime.probes import PASSED
from rota.runtime.probes.attempt import Attempts, ProbeTarget
from rota.runtime.sandbox import Bind, available, command, enter, own, uid_of
from tests.probes.probing import connecting, getting, subject

PORT, OTHER_PORT = 8080, 8081
SERVER = f"""
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/good" else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", {PORT}), Answer)
print("listening", flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize("network", ["none", "egress"])
async def test_the_port_of_an_instance_with_its_own_network_is_probed_from_inside(
    tmp_path: Path, network: Network
) -> None:
    if not available().ok:
        pytest.skip(available().why_not)
    storage = tmp_path / "storage"
    storage.mkdir()
    uid = uid_of("one") if os.geteuid() == 0 else None
    if uid is not None:
        own(storage, uid)
    argv = [os.path.realpath(sys.executable), "-c", SERVER]
    made = command(argv, scratch=tmp_path / "scratch", storage=Bind(storage, "/workspace"), uid=uid, network=network)
    started = await asyncio.create_subprocess_exec(*made.argv, env=made.env, stdout=subprocess.PIPE)

    async def run_inside(one: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
        entered = enter(started.pid, argv, env={}, cwd="/", uid=uid)
        return await (await asyncio.create_subprocess_exec(*entered.argv, env=entered.env)).wait()

    attempts, place = Attempts(run_inside, RealClock()), ProbeTarget(subject(), "main", network)
    try:
        assert started.stdout is not None
        assert await started.stdout.readline() == b"listening\n"
        assert await attempts.make(connecting(PORT), place) == PASSED
        assert await attempts.make(getting(PORT, "/good"), place) == PASSED
        assert (await attempts.make(getting(PORT, "/bad"), place)).why.endswith("was answered with a status of 5xx")
        assert (await attempts.make(connecting(OTHER_PORT), place)).why.endswith("nothing listens there")
        with socket.create_server(("127.0.0.1", 0)) as outside:
            of_the_host = outside.getsockname()[1]
            assert (await attempts.make(connecting(of_the_host), place)).outcome == "Failed"
    finally:
        started.kill()
        await started.communicate()
