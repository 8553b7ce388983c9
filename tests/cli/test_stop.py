"""`rota stop`, with real servers, keepers and instances: whatever state they are in, nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.keeper import protocol
from rota.runtime.keeper.kernel import descendants_of
from rota.server.home import Home
from rota.server.stopping import STOP_SECONDS_MAX
from rota.store.file import FileLock
from tests.runtime.homes import groups_of
from tests.server.live import ROTA, Live

SLACK_SECONDS = 5.0
"""The start of the command, on a machine that does other things too."""
STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
OBEDIENT = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
DAEMON = "(setsid sh -c '{mark}; while :; do sleep 0.1; done' &); exec sleep 1000"


class Place(Live):
    """A home with a server, all of which is gone after the test."""

    def rota(self, *arguments: str) -> str:
        done = subprocess.run(
            [ROTA, *arguments, "--home", str(self.home)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, script: str, replicas: int = 2) -> list[int]:
        """Instances of this script. Returns when they are ready."""
        container = {"name": "main", "command": ["sh", "-c", f": {self.home}; {script}"]}
        template = {"isolation": "none", "containers": [container], "terminationGracePeriodSeconds": 30}
        pool: dict[str, Any] = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "box"}}
        file = self.home / "pool.json"
        file.write_text(json.dumps({**pool, "spec": {"replicas": replicas, "template": template}}))
        self.rota("apply", "-f", str(file))
        self.rota("wait", "wp/box", f"--for=jsonpath={{.status.readyReplicas}}={replicas}", "--timeout", "20s")
        found = self.processes()
        assert len(found) >= replicas
        return found

    def processes(self) -> list[int]:
        """Everything that has the home in its command, but for the server: instances, and the keeper."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (self.process.pid, os.getpid()):
                with contextlib.suppress(OSError):
                    if str(self.home).encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def keeper(self) -> int:
        return int((self.home / "keeper" / "lock").read_text())

    def stop(self, *arguments: str) -> str:
        """Return the output of `rota stop`, which leaves nothing behind and takes no longer than it may."""
        began = time.monotonic()
        said = self.rota("stop", *arguments)
        assert time.monotonic() - began < STOP_SECONDS_MAX + SLACK_SECONDS
        self.process.wait(0)
        assert self.processes() == []
        assert not (self.home / "keeper" / "cgroup").exists()  # which names the group of all processes
        return said


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    live = Place(tmp_path)
    try:
        yield live
    finally:
        live.kill()
        live.rota("stop", "--grace", "0")


def test_a_server_in_another_terminal_is_ended_with_all_that_it_runs(place: Place) -> None:
    place.run(OBEDIENT)
    server = place.process.pid
    assert place.stop() == f"stopped the server (process {server}) and 2 instances\n"
    assert place.process.returncode == 0
    assert not (place.home / "rota.sock").exists()


def test_a_server_that_runs_nothing_is_ended_once(place: Place) -> None:
    server = place.process.pid
    assert place.stop() == f"stopped the server (process {server})\n"
    assert place.stop() == f"nothing runs in {place.home}\n"


def test_a_home_that_never_was_is_not_made(tmp_path: Path) -> None:
    never = tmp_path / "never"
    assert _stop(never) == f"nothing runs in {never}\n"
    assert not never.exists()


def test_instances_that_do_not_listen_are_killed_before_their_own_grace_is_over(place: Place) -> None:
    place.run(STUBBORN)
    assert "2 of 2 had not ended by themselves in time and were killed" in place.stop()
    assert place.process.returncode == 0


def test_a_shorter_grace_is_enough_when_it_is_asked_for(place: Place) -> None:
    # By itself it ends within the ordinary grace, and leaves a file then.
    slow = protocol.STOP_GRACE_SECONDS - 0.5
    place.run(f"trap 'sleep {slow}; echo > {place.home}/had-its-time; exit 0' TERM; while :; do sleep 0.1; done")
    assert "2 of 2 had not ended" in place.stop("--grace", "0")
    assert not (place.home / "had-its-time").exists()


def test_a_longer_grace_is_given_when_it_is_asked_for(place: Place) -> None:
    slow = protocol.STOP_GRACE_SECONDS + 0.5
    place.run(f"trap 'sleep {slow}; exit 0' TERM; while :; do sleep 0.1; done", replicas=1)
    said = place.rota("stop", "--grace", "20")
    assert said.endswith("and 1 instance\n")
    assert place.processes() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_server_ends_all_as_soon(place: Place, how: signal.Signals) -> None:
    place.run(STUBBORN)
    began = time.monotonic()
    assert place.kill(how) == 0
    assert time.monotonic() - began < STOP_SECONDS_MAX
    assert place.processes() == []


def test_what_a_killed_server_has_left_is_ended(place: Place) -> None:
    place.run(OBEDIENT)
    place.kill()
    assert place.stop() == f"ended what was left running in {place.home}: 2 instances\n"


def test_what_a_killed_keeper_has_left_is_ended_too(place: Place) -> None:
    place.run(DAEMON.format(mark=f": {place.home}"), replicas=1)
    keeper, groups = place.keeper(), groups_of(place.home)
    place.kill()
    for pid in descendants_of(keeper):
        # Without cgroups, processes of Rota's own around the instances end them with the keeper, unless they cannot.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    assert place.stop() == f"ended what was left running in {place.home}\n"
    assert not [group for group in groups if Path(group).exists()]


def test_what_a_killed_keeper_runs_is_gone_when_stop_returns(place: Place) -> None:
    place.run(OBEDIENT)
    place.kill()
    os.kill(place.keeper(), signal.SIGKILL)
    place.stop()


def test_a_server_that_hangs_is_killed(place: Place) -> None:
    place.run(STUBBORN)
    os.kill(place.process.pid, signal.SIGSTOP)
    said = place.stop()
    assert "the server did not end by itself and was killed" in said
    assert place.process.returncode == -signal.SIGKILL


def test_a_keeper_that_hangs_is_killed(place: Place) -> None:
    place.run(STUBBORN)
    place.kill()
    os.kill(place.keeper(), signal.SIGSTOP)
    place.stop()


def test_who_holds_the_store_but_is_no_server_is_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    holding = FileLock(home.store)
    try:
        assert _stop(tmp_path) == f"nothing runs in {tmp_path}\n"
    finally:
        holding.release()


def test_the_server_is_found_by_its_lock_and_not_by_what_a_file_says(tmp_path: Path) -> None:
    home = Home(tmp_path)
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    argv = [sys.executable, "-c", script, str(home.lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        assert home.server_pid() == other.pid
        other.kill()
    assert home.server_pid() is None


def test_the_lock_is_held_for_as_long_as_a_home_is_served(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    assert _server_of(tmp_path) == str(os.getpid())
    del home
    assert _server_of(tmp_path) == "None"


def _server_of(home: Path) -> str:
    code = "import sys, pathlib, rota.server.home as h; print(h.Home(pathlib.Path(sys.argv[1])).server_pid())"
    argv = [sys.executable, "-c", code, str(home)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def _stop(home: Path) -> str:
    argv = [ROTA, "stop", "--home", str(home)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
