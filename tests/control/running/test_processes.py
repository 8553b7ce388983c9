"""Pools under `rota up`, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.homes import keepers_of
from tests.server.live import ROTA, Live
from tests.until import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    try:
        yield live
    finally:
        live.end()
    assert processes(tmp_path) == {}


def processes(home: Path) -> dict[int, str]:
    """The processes of a test's instances, by what is in their environment or command."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(home) in command and "rota.runtime.keeper" not in command and "bin/rota up" not in command:
                found[int(entry.name)] = command
    return found


def pool(home: Path, replicas: int, marks: str = "one", **template: Any) -> str:
    """A pool whose processes can be told by their command."""
    script = f"trap 'exit 0' TERM; : {home} {marks}; while :; do sleep 0.2; done"
    container = {"name": "main", "command": ["sh", "-c", script], **template.pop("container", {})}
    spec = {
        "replicas": replicas,
        "template": {"containers": [container], "terminationGracePeriodSeconds": 2, **template},
    }
    obj = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "box", "namespace": "default"},
        "spec": spec,
    }
    return msgspec.json.encode(obj).decode()


def mains(home: Path, marks: str = "one") -> list[int]:
    """The shells of the instances, and not the sandboxes around them."""
    return sorted(pid for pid, command in processes(home).items() if is_main(command) and f" {marks};" in command)


def is_main(command: str) -> bool:
    """In a sandbox or without one."""
    return command.startswith(("sh -c", "/usr/bin/sh -c", "/bin/sh -c")) and "bwrap" not in command


def apply(server: Live, manifest: str) -> None:
    server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)


def ready(server: Live, count: int) -> bool:
    status = server.read("wp", "box").get("status", {})
    return (status.get("phase"), status.get("readyReplicas")) == ("Ready", count)


def all_of(server: Live, count: int, marks: str = "one") -> list[int]:
    """The main processes of a pool that is ready, once there are so many."""
    found = mains(server.home, marks)
    # A shell that is about to start something is two of the same name for a moment.
    return found if len(found) == count and ready(server, count) and mains(server.home, marks) == found else []


def told(server: Live) -> Callable[[], str]:
    return lambda: server.kubectl("get", "wp,inst", "-o", "yaml")


def test_a_pool_comes_up_scales_rolls_and_goes(server: Live) -> None:
    home = server.home
    apply(server, pool(home, 3))
    until(lambda: ready(server, 3) and len(mains(home)) == 3, told(server))
    server.kubectl("scale", "wp/box", "--replicas=1")
    until(lambda: ready(server, 1) and len(mains(home)) == 1, told(server))
    apply(server, pool(home, 2, "two"))
    until(lambda: ready(server, 2) and len(mains(home, "two")) == 2 and not mains(home), told(server))
    server.kubectl("delete", "wp", "box")
    until(lambda: not processes(home) and not server.read("inst")["items"], told(server))
    assert not list((home / "instances" / "default").iterdir())


def test_what_is_killed_comes_back(server: Live) -> None:
    home = server.home
    apply(server, pool(home, 2))
    before = until(lambda: all_of(server, 2), told(server))
    os.kill(before[0], signal.SIGKILL)
    after = until(lambda: before[0] not in mains(home) and all_of(server, 2), told(server))
    assert before[1] in after
    until(lambda: sum(one["status"].get("restarts", 0) for one in server.read("inst")["items"]) == 1)
    restarts = sorted(one["status"].get("restarts", 0) for one in server.read("inst")["items"])
    assert restarts == [0, 1]


def test_a_killed_server_finds_what_it_ran(server: Live) -> None:
    home = server.home
    apply(server, pool(home, 3))
    before = until(lambda: all_of(server, 3), told(server))
    server.kill()
    assert mains(home) == before
    os.kill(before[0], signal.SIGKILL)
    server.start()
    after = until(lambda: all_of(server, 3), told(server))
    assert set(before[1:]) <= set(after) and before[0] not in after


def test_a_killed_keeper_takes_everything_with_it_and_everything_comes_back(server: Live) -> None:
    home = server.home
    apply(server, pool(home, 2))
    before = until(lambda: all_of(server, 2), told(server))
    [keeper] = keepers_of(home)
    os.kill(keeper, signal.SIGKILL)
    after = until(
        lambda: ready(server, 2) and len(mains(home)) == 2 and mains(home) != before and mains(home), told(server)
    )
    assert not set(before) & set(after)


def test_a_command_that_is_not_there_is_said_and_a_good_one_takes_its_place(server: Live) -> None:
    home = server.home
    apply(server, pool(home, 1, container={"command": ["no-such-program"]}))
    until(lambda: "no-such-program" in server.kubectl("get", "wp", "box", "-o", "yaml"), told(server))
    until(lambda: server.read("wp", "box")["status"].get("phase") == "Degraded", told(server))
    apply(server, pool(home, 1))
    until(lambda: ready(server, 1) and len(mains(home)) == 1, told(server))


def test_storage_survives_the_instance(server: Live) -> None:
    home = server.home
    script = f": {home} one; echo x >> /data/seen; while :; do sleep 0.2; done"
    template: dict[str, Any] = {
        "container": {"command": ["sh", "-c", script]},
        "storage": {"size": "1Gi", "path": "/data"},
        "isolation": "sandbox",
    }
    apply(server, pool(home, 1, **template))
    until(lambda: "sandbox was asked for" in told(server)() or ready(server, 1), told(server))
    if "sandbox was asked for" in told(server)():
        pytest.skip("this host cannot make a sandbox")
    [seen] = until(lambda: list((home / "storage" / "default").glob("*/seen")))
    server.kubectl("delete", "inst", "box-0")
    until(lambda: seen.read_text().count("x") == 2 and ready(server, 1), told(server))


def rota(server: Live, *arguments: str) -> str:
    done = subprocess.run([ROTA, *arguments, "--home", str(server.home)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_logs_are_shown_of_an_instance_and_of_a_pool(server: Live) -> None:
    script = f": {server.home} one; echo hello from $(hostname); echo oops >&2; while :; do sleep 0.2; done"
    apply(server, pool(server.home, 2, container={"command": ["sh", "-c", script]}))
    until(lambda: all_of(server, 2), told(server))
    shown = until(lambda: (text := rota(server, "logs", "inst/box-0")).count("\n") == 2 and text)
    assert shown.splitlines()[0].startswith("hello from") and shown.splitlines()[1] == "oops"
    assert rota(server, "logs", "inst/box-0", "--tail", "1") == "oops\n"
    both = until(lambda: (text := rota(server, "logs", "wp/box")).count("\n") == 4 and text)
    assert {line.split()[0] for line in both.splitlines()} == {"box-0", "box-1"}


def test_a_log_is_followed_until_its_instance_is_gone(server: Live) -> None:
    script = f": {server.home} one; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done"
    apply(server, pool(server.home, 1, container={"command": ["sh", "-c", script]}))
    until(lambda: all_of(server, 1), told(server))
    command = [ROTA, "logs", "-f", "inst/box-0", "--home", str(server.home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        numbers = [int(following.stdout.readline().split()[1]) for _ in range(10)]
        assert numbers == list(range(numbers[0], numbers[0] + 10))
        server.kubectl("delete", "wp", "box")
        following.communicate(timeout=20)
        assert following.returncode == 0


def test_who_may_not_read_an_instance_may_not_read_its_log(server: Live) -> None:
    apply(server, pool(server.home, 1))
    until(lambda: all_of(server, 1), told(server))
    said = server.kubectl("get", "--raw", "/v1/logs/default/box-0?container=other", check=False)
    assert "there are main" in said
    assert "not found" in server.kubectl("get", "--raw", "/v1/logs/default/box-7", check=False)
    token = rota(server, "token", "create", "elsewhere", "--scope", "viewer", "-n", "other").split()[-1]
    said = server.kubectl("--token", token, "get", "--raw", "/v1/logs/default/box-0", check=False)
    assert "cannot get" in said or "forbidden" in said.lower()


def test_a_pool_is_scaled_and_started_anew_from_the_command_line(server: Live) -> None:
    home = server.home
    apply(server, pool(home, 1))
    assert "1 of 1 are of the newest template, 1 ready: done" in rota(server, "rollout", "status", "wp/box")
    assert "scaled to 2" in rota(server, "scale", "wp/box", "--replicas", "2")
    rota(server, "rollout", "status", "wp/box")
    before = all_of(server, 2)
    assert before
    assert "restarts" in rota(server, "rollout", "restart", "wp/box")
    rota(server, "rollout", "status", "wp/box")
    after = until(lambda: all_of(server, 2), told(server))
    assert not set(before) & set(after)
