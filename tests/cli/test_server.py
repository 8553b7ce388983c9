"""The command line and a server, as a user has them: real processes, a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.server.addresses import DEFAULT_HOST
from tests.until import until

COMMAND = str(Path(sys.executable).parent / "rota")
STOP_SECONDS_MAX = 20
POOL = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: agents}
spec: {worker: {type: shell}, replicas: 2}
"""


class Server:
    """`rota up`, as a process."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self._environment = {**os.environ, "ROTA_HOME": str(home)}
        self._process = subprocess.Popen(
            [COMMAND, "up", *(arguments or ("--port", "0"))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self._process.stdout is not None
        self.ready = self._process.stdout.readline()

    def rota(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**self._environment, **more}
        return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, env=environment)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Returns its exit code, and what it said after it was ready."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            out, err = self._process.communicate(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode, out + err

    def watch(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
        )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "home")
    try:
        yield started
    finally:
        started.stop()


def test_up_says_in_one_line_where_it_is(server: Server) -> None:
    assert server.ready.startswith("Rota is ready at https://127.0.0.1:")
    assert str(server.home / "kubeconfig") in server.ready
    assert server.stop() == (0, "")


def test_ctrl_c_stops_it_quietly(server: Server) -> None:
    assert server.stop(signal.SIGINT) == (0, "")


def test_one_that_is_told_to_end_while_it_comes_up_ends_what_it_finds_running(server: Server, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    assert server.rota("apply", "-f", str(tmp_path / "pool.yaml")).returncode == 0
    assert server.rota("wait", "wp/agents", "--for=condition=Ready").returncode == 0
    keeper = int((server.home / "keeper" / "lock").read_text())
    server.stop(signal.SIGKILL)
    again = subprocess.Popen([COMMAND, "up", "--port", "0", "--home", str(server.home)], stdout=subprocess.DEVNULL)

    def holder() -> str:
        assert again.poll() is None
        return (server.home / "rota.db.lock").read_text().strip()

    until(lambda: holder() == str(again.pid), lambda: f"the store is held by {holder()}", poll_seconds=0.001)
    again.send_signal(signal.SIGTERM)
    assert again.wait(STOP_SECONDS_MAX) == 0
    assert not is_alive(keeper)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_taken_port_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((DEFAULT_HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = Server(tmp_path, "--port", str(port))
        code, said = refused.stop()
    assert code == 1 and refused.ready == ""
    assert said.startswith(f"error: port {port} ") and "--port" in said and len(said.splitlines()) == 1


def test_a_home_that_is_served_is_refused(server: Server) -> None:
    refused = server.rota("up", "--port", "0")
    assert refused.returncode == 1 and "is running already, at https://" in refused.stderr
    assert "`rota restart` replaces it, `rota stop` ends it" in refused.stderr


def test_an_object_from_its_manifest_to_its_end(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    assert server.rota("diff", "-f", str(file)).returncode == 1
    assert server.rota("apply", "-f", str(file)).stdout == "workerpool.rota.dev/agents created\n"
    assert server.rota("diff", "-f", str(file)).returncode == 0
    assert server.rota("get", "wp").stdout.splitlines()[1].startswith("agents ")
    assert "replicas: 2" in server.rota("describe", "wp/agents").stdout
    assert server.rota("wait", "wp/agents", "--for=jsonpath={.spec.replicas}=2").returncode == 0
    assert server.rota("edit", "wp/agents", VISUAL="", EDITOR="sed -i s/as:.2/as:\\ 3/").returncode == 0
    assert server.rota("get", "wp", "agents", "-o", "jsonpath={.spec.replicas}").stdout == "3\n"
    assert server.rota("delete", "wp/agents").stdout == "workerpool.rota.dev/agents deleted\n"
    assert server.rota("get", "wp").stderr == "nothing found in namespace default\n"


def test_an_edit_does_not_write_over_a_change_of_someone_else_unseen(server: Server, tmp_path: Path) -> None:
    file, editor = tmp_path / "pool.yaml", tmp_path / "editor"
    file.write_text(POOL)
    server.rota("apply", "-f", str(file))
    file.write_text(POOL.replace("replicas: 2", "replicas: 9"))
    editor.write_text(
        "#!/bin/sh\n"
        f'if grep -q "changed meanwhile" "$1"; then exit 0; fi\n'
        f"{COMMAND} apply -f {file} >&2\n"
        'sed -i "s/replicas: 2/replicas: 3/" "$1"\n'
    )
    editor.chmod(0o700)
    edited = server.rota("edit", "wp/agents", VISUAL="", EDITOR=str(editor))
    assert (edited.returncode, edited.stdout) == (0, "workerpool.rota.dev/agents edited\n")
    assert server.rota("get", "wp", "agents", "-o", "jsonpath={.spec.replicas}").stdout == "3\n"


def test_a_watch_shows_changes_as_they_happen(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    watching = server.watch("get", "ns,wp", "-w", "-o", "name")
    assert watching.stdout is not None
    assert [watching.stdout.readline() for _ in range(2)] == ["namespace/default\n", "namespace/rota-system\n"]
    server.rota("apply", "-f", str(file))
    assert watching.stdout.readline() == "workerpool.rota.dev/agents\n"
    watching.send_signal(signal.SIGINT)
    assert watching.communicate(timeout=STOP_SECONDS_MAX) == ("", "")
    assert watching.returncode == 130


def test_a_token_from_its_making_to_its_end(server: Server) -> None:
    made = server.rota("token", "create", "visitor", "--scope", "viewer", "--expires", "1h")
    assert made.stdout.startswith("rota-") and len(made.stdout.split()) == 1
    (line,) = [line.split() for line in server.rota("token", "list").stdout.splitlines() if "visitor" in line]
    assert line[1:3] == ["visitor", "viewer"] and line[-2] == "in"
    assert server.rota("token", "revoke", line[0]).stdout == f"token {line[0]} revoked\n"
    assert "visitor" not in server.rota("token", "list").stdout
    again = server.rota("token", "revoke", line[0])
    assert again.returncode == 1 and again.stderr == f'error: token "{line[0]}" not found\n'


def test_a_context_of_a_kubeconfig_is_another_way_to_the_server(server: Server) -> None:
    shown = server.rota("get", "ns", "-o", "name", "--kubeconfig", str(server.home / "kubeconfig"), ROTA_HOME="")
    assert shown.stdout == "namespace/default\nnamespace/rota-system\n", shown.stderr


def test_a_backup_is_put_back(server: Server, tmp_path: Path) -> None:
    file, backup = tmp_path / "pool.yaml", tmp_path / "backup.db"
    file.write_text(POOL)
    server.rota("apply", "-f", str(file))
    assert server.rota("backup", str(backup)).returncode == 0
    assert backup.stat().st_mode & 0o077 == 0
    refused = server.rota("backup", str(backup))
    assert refused.returncode == 1 and "--overwrite" in refused.stderr
    server.rota("delete", "wp/agents")
    held = server.rota("restore", str(backup), "--yes")
    assert held.returncode == 1 and "stop that process first" in held.stderr
    server.stop()
    asked = server.rota("restore", str(backup))
    assert asked.returncode == 1 and "--yes" in asked.stderr
    assert server.rota("restore", str(backup), "--yes").returncode == 0
    again = Server(server.home)
    try:
        assert again.rota("get", "wp", "-o", "name").stdout == "workerpool.rota.dev/agents\n"
    finally:
        again.stop()
