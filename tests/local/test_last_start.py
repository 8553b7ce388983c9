"""A home remembers how its server was started: after a stop, a crash, and when its port is gone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket

from tests.local.place import Place


def test_after_a_stop_it_starts_as_it_was(place: Place) -> None:
    reach = ("--network", "egress", "--egress", "pypi.org:443", "--egress", "10.0.0.0/8")
    place.start("--edge-port", "0", "--allow-api", "https://git.example", *reach)
    before = place.found().state
    assert before is not None
    assert (before.options.network, before.options.egress) == ("egress", ("pypi.org:443", "10.0.0.0/8"))
    assert "egress to pypi.org:443, 10.0.0.0/8, for all that does not say otherwise" in place.says("status")
    place.says("stop")
    said = place.rota("start")
    assert before.url in said.stdout and before.edge in said.stdout and said.stderr == ""
    after = place.found().state
    assert after is not None and after.options == before.options
    place.says("restart", "--network", "none")
    after = place.found().state
    assert after is not None and (after.options.network, after.options.egress) == ("none", ())


def test_a_network_that_means_nothing_is_refused(place: Place) -> None:
    for options, why in (
        (("--network", "some"), "there are none, egress, host"),
        (("--egress", "a b"), "must be a name"),
        (("--egress", "a.example"), "--egress is for --network egress"),
        (("--network", "none", "--egress", "a.example"), "--egress is for --network egress"),
    ):
        said = place.rota("start", *options)
        assert said.returncode == 2 and why in said.stderr, said


def test_after_a_crash_it_starts_as_it_was(place: Place) -> None:
    pid = place.start("--edge-port", "0")
    before = place.found().state
    assert before is not None
    os.kill(pid, signal.SIGKILL)
    said = place.says("start")
    assert before.url in said and before.edge in said


def test_a_server_in_a_terminal_takes_the_same_address(place: Place) -> None:
    place.start("--edge-port", "0")
    state = place.found().state
    assert state is not None
    place.says("stop")
    with place.begin("up") as process:
        assert process.stdout is not None
        assert state.url in process.stdout.readline()
        process.terminate()


def test_where_somebody_else_has_its_port_meanwhile_it_takes_another_and_says_so(place: Place) -> None:
    place.start("--edge-port", "0")
    before = place.found().state
    assert before is not None
    place.says("stop")
    with socket.create_server(("127.0.0.1", int(before.url.rpartition(":")[2]))):
        said = place.rota("start")
    after = place.found().state
    assert said.returncode == 0 and after is not None and after.url != before.url
    assert f"it was at {before.url} before" in said.stderr


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(place: Place) -> None:
    port = _outside_of_those_that_the_system_hands_out()
    place.says("start", "--port", str(port), "--edge-port", "0")
    place.says("stop")
    with socket.create_server(("127.0.0.1", port)):
        said = place.rota("start")
    assert said.returncode == 1 and f"port {port} on 127.0.0.1 is taken" in said.stderr


def test_a_memory_that_cannot_be_read_is_as_none(place: Place) -> None:
    place.start()
    place.says("stop")
    (place.home / "last-start.json").write_text('{"options": 7')
    assert place.rota("start", "--port", "0").returncode == 0


def _outside_of_those_that_the_system_hands_out() -> int:
    """Return a free port that no other process is given by chance."""
    for port in random.sample(range(15_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")
