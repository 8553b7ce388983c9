"""A server in the background: real processes, each home its own."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rota.runtime.keeper.client import dial
from rota.server import background
from rota.server.background_state import STATE, Options, find
from rota.server.home import Home
from tests.local.place import Place, processes_of
from tests.server.live import Live
from tests.until import until, until_async, until_so

NOT_RUNNING = 3
NEVER_READY = """
import asyncio, sys
from pathlib import Path
from rota.runtime.keeper.client import Keeper

async def main():
    async with Keeper.connect(Path(sys.argv[2].removeprefix("--home="))) as keeper:
        await keeper.list()
        await asyncio.Event().wait()

asyncio.run(main())
"""
"""A server that has a keeper, and nothing else as yet."""


def test_start_returns_when_the_server_answers(place: Place) -> None:
    said = place.says("start", "--port", "0")
    assert said.startswith("Rota is ready at https://127.0.0.1:")
    assert place.says("get", "ns", "-o", "name") == "namespace/default\nnamespace/rota-system\n"


def test_status_tells_where_it_is_and_what_it_does(place: Place) -> None:
    pid = place.start()
    place.pool(2)
    said = place.says("status")
    for wanted in (f"process {pid}", "https://127.0.0.1:", str(place.home), "kubeconfig", "natively", "2 (2 "):
        assert wanted in said
    told = json.loads(place.says("status", "-o", "json"))
    assert (told["server"], told["pid"], told["home"]) == ("running", pid, str(place.home))
    assert told["url"] in said and told["edge"] in said and told["work"]["instances"]["total"] == 2
    assert place.rota("stop").returncode == 0
    stopped = place.rota("status")
    assert stopped.returncode == NOT_RUNNING and "not running" in stopped.stdout
    told = json.loads(place.rota("status", "-o", "json").stdout)
    assert told == {
        "server": "stopped", "home": str(place.home), "log": str(place.home / "server.log"), "processes": 0
    }  # fmt: skip


def test_a_home_that_never_was_has_no_server_and_is_not_made(place: Place) -> None:
    assert place.rota("status").returncode == NOT_RUNNING
    assert not place.home.exists()


def test_the_home_is_that_of_the_flag_or_of_the_environment(place: Place) -> None:
    pid = place.start()
    other = place.rota("status", "--home", str(place.folder / "other"))
    assert other.returncode == NOT_RUNNING
    same = place.rota("status", "--home", str(place.home), ROTA_HOME=str(place.folder / "other"))
    assert f"process {pid}" in same.stdout


def test_starting_twice_says_that_it_runs(place: Place) -> None:
    pid = place.start()
    assert "it is running already" in place.says("start", "--port", "0")
    assert place.pid() == pid


def test_starting_with_other_options_says_how_to_have_them(place: Place) -> None:
    place.start()
    for said, port in ((place.rota("start", "--port", "7999"), "7999"), (place.rota("start", "--port", "0"), "0")):
        assert ("it runs with other options than these" in said.stderr) == (port == "7999")


def test_of_two_starts_at_once_one_starts_the_server_and_the_other_finds_it(place: Place) -> None:
    starts = [place.begin("start", "--port", "0") for _ in range(2)]
    said = sorted(start.communicate(timeout=60)[0] for start in starts)
    assert [start.returncode for start in starts] == [0, 0], said
    assert said[0].startswith("Rota is ready") and "it is running already" in said[1]
    assert len(processes_of(place.home)) == 1


def test_a_server_in_a_terminal_is_found_too(place: Place) -> None:
    live = Live(place.home)
    try:
        assert f"process {live.process.pid}" in place.says("status")
        assert "it is running already" in place.says("start", "--port", "0")
    finally:
        live.end()
    assert place.rota("status").returncode == NOT_RUNNING


def test_another_server_cannot_be_meant(place: Place) -> None:
    for command in ("start", "restart", "status"):
        refused = place.rota(command, "--context", "prod")
        assert refused.returncode == 2 and "the server of a home is meant" in refused.stderr


# One that does not come up.


def test_a_taken_port_is_told_with_the_end_of_the_log(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = place.rota("start", "--port", str(port))
    assert refused.returncode == 1
    assert "ended with exit code 1 before it was ready" in refused.stderr
    assert f"the end of {place.home / 'server.log'}" in refused.stderr and f"port {port} " in refused.stderr
    assert processes_of(place.home) == []
    assert place.rota("status").returncode == NOT_RUNNING


def test_a_damaged_store_is_told_with_the_end_of_the_log(place: Place) -> None:
    place.home.mkdir()
    (place.home / "rota.db").write_bytes(b"this is no database at all, whatever it may look like\n" * 100)
    refused = place.rota("start", "--port", "0")
    assert refused.returncode == 1 and "rota.db" in refused.stderr and "the end of" in refused.stderr
    assert processes_of(place.home) == []


def test_of_the_log_only_what_this_start_wrote_is_shown(place: Place) -> None:
    place.home.mkdir()
    (place.home / "server.log").write_text("of another time\n")
    (place.home / "rota.db").write_bytes(b"no database\n" * 1000)
    assert "of another time" not in place.rota("start", "--port", "0").stderr


async def test_a_start_that_is_given_up_leaves_no_keeper_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PROGRAM", NEVER_READY)
    starting = asyncio.create_task(background.start(Home(tmp_path), Options("127.0.0.1", 0, None), None))

    def dialled() -> socket.socket | None:
        assert not starting.done()
        return dial(tmp_path)

    (await until_async(dialled, "no keeper", poll_seconds=0)).close()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert dial(tmp_path) is None
    # The process that had started it may be on its way out.
    await until_so(lambda: processes_of(tmp_path), lambda there: not there, "no processes")


def test_a_home_that_cannot_be_one_is_refused_with_what_to_do(place: Place) -> None:
    place.home.write_text("a file")
    for command in ("start", "restart", "up"):
        refused = place.rota(command, "--port", "0")
        assert refused.returncode == 1 and f"{place.home} cannot be a home" in refused.stderr
        assert "choose another with --home" in refused.stderr
    place.home.unlink()


def test_a_start_that_is_interrupted_leaves_a_whole_server_or_none(place: Place) -> None:
    starting = place.begin("start", "--port", "0")
    until(lambda: processes_of(place.home) or starting.poll() is not None, "nothing has started", poll_seconds=0)
    starting.send_signal(signal.SIGINT)
    starting.communicate(timeout=60)
    assert (place.found().condition == "running") == (starting.returncode == 0)
    assert len(processes_of(place.home)) == (starting.returncode == 0)


# One that is killed.


def test_a_killed_server_is_told_with_the_end_of_its_log_and_its_work_goes_on(place: Place) -> None:
    pid = place.start()
    place.pool(2)
    before = place.runs()
    kill(pid)
    status = place.rota("status")
    assert status.returncode == NOT_RUNNING
    assert "did not end in good order" in status.stdout and "2 processes of its instances go on" in status.stdout
    assert f"begins, process {pid}" in status.stderr
    place.start()
    assert place.runs() == before


def test_what_a_killed_server_wrote_is_not_believed_of_another_process_with_its_number(place: Place) -> None:
    kill(place.start())
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    argv = [sys.executable, "-c", script, str(Home(place.home).lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        assert find(Home(place.home)).condition == "starting"
        assert place.rota("status").returncode == NOT_RUNNING
        other.kill()
    assert find(Home(place.home)).condition == "crashed"


def test_who_only_has_the_number_of_a_dead_server_is_never_ended(place: Place) -> None:
    kill(place.start())
    state = place.home / STATE
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        (place.home / "server.lock").write_text(str(bystander.pid))
        assert state.exists()
        place.says("stop")
        assert bystander.poll() is None and not state.exists()
    finally:
        bystander.kill()
        bystander.wait(10)


def test_the_socket_of_a_dead_server_is_no_hindrance(place: Place) -> None:
    kill(place.start())
    assert (place.home / "rota.sock").exists()
    place.start()
    assert place.says("get", "ns", "-o", "name") == "namespace/default\nnamespace/rota-system\n"


def kill(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        assert select.select([descriptor], [], [], 10)[0]
    finally:
        os.close(descriptor)


# Its log.


def test_the_log_of_the_server_is_shown(place: Place) -> None:
    pid = place.start()
    assert f"begins, process {pid}" in place.says("logs", "--server")
    assert place.says("logs", "--server", "--tail", "1").startswith("Rota is ready at")
    place.says("stop")
    assert place.says("logs", "--server", "--tail", "1").endswith("ended\n")


def test_the_log_of_the_server_is_followed_across_its_end(place: Place) -> None:
    place.start()
    following = place.begin("logs", "--server", "-f", "--tail", "1")
    try:
        assert following.stdout is not None and following.stdout.readline().startswith("Rota is ready")
        place.says("stop")
        assert following.stdout.readline().endswith("ended\n")
        place.start()
        assert "begins" in following.stdout.readline()
    finally:
        following.kill()
        following.communicate(timeout=60)


def test_names_do_not_go_with_the_log_of_the_server(place: Place) -> None:
    assert place.rota("logs", "--server", "wp/box").returncode == 2


def test_a_log_that_is_too_large_is_put_aside(place: Place) -> None:
    place.home.mkdir()
    log: Path = place.home / "server.log"
    with log.open("wb") as file:
        file.truncate((4 << 20) + 1)
    place.start()
    assert log.stat().st_size < 10_000 and (place.home / "server.log.1").stat().st_size == (4 << 20) + 1


def test_the_line_for_kubectl_can_be_pasted_into_a_shell_whatever_the_home_is_called(place: Place) -> None:
    home = place.folder / "ho me"
    try:
        said = place.says("--home", str(home), "start", "--port", "0", "--edge-port", "0")
        pasted = said.partition("for kubectl: ")[2].splitlines()[0]
        shell = ["bash", "-c", f'{pasted} && printf %s "$KUBECONFIG"']
        ran = subprocess.run(shell, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == (str(home / "kubeconfig"), "")
    finally:
        place.says("--home", str(home), "stop")


def test_who_opens_a_server_to_the_network_is_told_so(place: Place) -> None:
    alone = place.rota("start", "--port", "0", "--edge-port", "0")
    assert "it listens on" not in alone.stdout + alone.stderr + place.says("status")
    opened = place.rota("restart", "--host", "0.0.0.0")
    assert "it listens on all addresses of this machine (0.0.0.0" in opened.stderr
    status = place.says("status")
    assert "reach       it listens on all addresses of this machine (0.0.0.0" in status
    assert json.loads(place.says("status", "-o", "json"))["host"] == "0.0.0.0"
