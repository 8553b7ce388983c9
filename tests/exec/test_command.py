"""`rota exec` as people use it: a real server, real instances with a sandbox and without, real terminals."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.runtime import sandbox
from tests.server.live import ROTA, Live, die_with_parent
from tests.until import until

PATIENCE_SECONDS = 20.0
POOLS = ["bare", pytest.param("box", marks=pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox here"))]


def manifest(name: str, isolation: str, replicas: int) -> str:
    script = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
    containers = [{"name": "main", "command": ["sh", "-c", script]}, {"name": "side", "command": ["sleep", "100000"]}]
    template = {"containers": containers, "isolation": isolation, "terminationGracePeriodSeconds": 0}
    obj = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "template": template},
    }
    return msgspec.json.encode(obj).decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = Live(tmp_path_factory.mktemp("home"))
    try:
        names = ["bare", *(["box"] if sandbox.available().ok else [])]
        for name in names:
            text = manifest(name, "sandbox" if name == "box" else "none", 2)
            live.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        live.kubectl("apply", "--server-side", "-f", "-", stdin=manifest("empty", "none", 0))
        until(lambda: live.kubectl("get", "inst").count(" True ") == 2 * len(names))
        yield live
    finally:
        live.end()


def arguments(server: Live, *words: str) -> list[str]:
    return [ROTA, "exec", "--home", str(server.home), *words]


def rota(server: Live, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        arguments(server, *words), input=stdin, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )


def alive(mark: str) -> list[str]:
    """Commands of this host, in a sandbox or not, that have this word in them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in command:
                found.append(entry.name)
    return found


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_passed_through(server: Live, pool: str, script: str, code: int) -> None:
    assert rota(server, f"wp/{pool}", "--", "sh", "-c", script).returncode == code


@pytest.mark.parametrize("pool", POOLS)
def test_output_and_error_are_kept_apart_and_input_is_passed_on_to_its_end(server: Live, pool: str) -> None:
    done = rota(server, "-i", f"{pool}-1", "--", "sh", "-c", "cat; echo bad >&2", stdin=b"in\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"in\n", b"bad\n", 0)


def test_without_the_flag_no_input_is_passed_on(server: Live) -> None:
    assert rota(server, "inst/bare-0", "--", "cat", stdin=b"in\n").stdout == b""


def test_a_file_can_be_the_input(server: Live, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(300_000))
    with (tmp_path / "file").open("rb") as file:
        done = subprocess.run(
            arguments(server, "-i", "bare-0", "--", "sha256sum"),
            stdin=file,
            capture_output=True,
            timeout=20,
            check=True,
        )
    assert done.stdout.split()[0].decode() == hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()


@pytest.mark.parametrize("pool", POOLS)
def test_ten_megabytes_of_output_arrive_whole(server: Live, pool: str) -> None:
    script = "head -c 10485760 /dev/urandom > /tmp/ten; cat /tmp/ten; cat /tmp/ten >&2; rm /tmp/ten"
    done = rota(server, f"wp/{pool}", "--", "sh", "-c", script)
    assert len(done.stdout) == 10 * 1024 * 1024
    assert done.stdout == done.stderr


def test_an_output_that_is_closed_ends_the_command(server: Live) -> None:
    mark = "100001"
    words = " ".join(arguments(server, "bare-0", "--", "sh", "-c", f"'yes; sleep {mark}'"))
    done = subprocess.run(["sh", "-c", f"{words} | head -1"], capture_output=True, timeout=20, check=False)
    assert done.stdout == b"y\n" and b"Traceback" not in done.stderr
    until(lambda: not alive(mark))


def test_the_words_of_a_command_are_passed_on_as_they_are(server: Live) -> None:
    words = ["", "a b", "-x", "--", "&=%+#?", "ü", "*", *map(str, range(300))]
    done = rota(server, "bare-0", "--", "printf", "%s\\n", *words)
    assert done.stdout.decode().split("\n") == [*words, ""]


def test_a_container_can_be_named(server: Live) -> None:
    assert rota(server, "-c", "side", "bare-0", "--", "true").returncode == 0
    wrong = rota(server, "-c", "other", "bare-0", "--", "true")
    assert wrong.returncode == 1 and b"there are main, side" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none-0", "--", "true"], 1, 'instances.rota.dev "none-0" not found'),
        (["wp/none", "--", "true"], 1, 'workerpools.rota.dev "none" not found'),
        (["wp/empty", "--", "true"], 1, "it has no instances"),
        (["task/a", "--", "true"], 2, "name an instance or a pool"),
        (["bare-0"], 2, "exec bare-0 -- COMMAND`"),
        ([], 2, "name an instance or a pool"),
        (["-t", "bare-0", "--", "true"], 2, "standard output is none"),
    ],
    ids=range(7),
)
def test_what_is_wrong_is_said_in_words(server: Live, words: list[str], code: int, said: str) -> None:
    done = rota(server, *words)
    assert done.returncode == code and said in done.stderr.decode()


@pytest.mark.parametrize("pool", POOLS)
def test_a_program_that_is_not_there_is_named(server: Live, pool: str) -> None:
    done = rota(server, f"wp/{pool}", "--", "no-such-program")
    assert done.returncode == 127 and b"no-such-program" in done.stderr


# The end of the client.


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_is_gone_with_its_client_and_so_is_all_that_it_started(
    server: Live, pool: str, how: signal.Signals
) -> None:
    mark = f"{100100 + how}{len(pool)}"
    script = f"sleep {mark} & sh -c 'sleep {mark}' & echo up; sleep {mark}; true"
    client = subprocess.Popen(
        arguments(server, f"wp/{pool}", "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    until(lambda: len(alive(mark)) == 3)
    client.send_signal(how)
    _, said = client.communicate(timeout=PATIENCE_SECONDS)
    assert client.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[how]
    assert said == b""
    until(lambda: not alive(mark))


# Terminals.


class Terminal:
    """A terminal with `rota exec` in it."""

    def __init__(self, server: Live, *words: str) -> None:
        self.near, self.far = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.far)
        self.screen = b""
        self.client = subprocess.Popen(
            arguments(server, *words),
            stdin=self.far,
            stdout=self.far,
            stderr=self.far,
            start_new_session=True,
            preexec_fn=_take_terminal,
            env={**os.environ, "TERM": "vt220"},
        )

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.near, text.encode())

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text.encode() not in self.screen:
            assert select.select([self.near], [], [], deadline - time.monotonic())[0], self.screen
            self.screen += os.read(self.near, 65536)

    def wait(self) -> int:
        code = self.client.wait(PATIENCE_SECONDS)
        assert termios.tcgetattr(self.far) == self.before, "the terminal is not as it was"
        return code

    def close(self) -> None:
        self.client.kill()
        self.client.wait()
        os.close(self.near)
        os.close(self.far)


def _take_terminal() -> None:
    die_with_parent()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(server: Live) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def make(*words: str) -> Terminal:
        made.append(Terminal(server, *words))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("pool", POOLS)
def test_a_shell_in_a_terminal_gets_also_what_was_typed_ahead(terminal: Callable[..., Terminal], pool: str) -> None:
    shell = terminal("-it", f"wp/{pool}", "--", "sh")
    shell.type("test -t 0 && test -t 2 && echo $TERM $(stty size)\n")
    shell.until("vt220 24 80")
    shell.resize(33, 111)
    shell.type("while [ \"$(stty size)\" = '24 80' ]; do :; done; echo now $(stty size)\n")
    shell.until("now 33 111")
    shell.type("exit 7\n")
    assert shell.wait() == 7


@pytest.mark.parametrize("pool", POOLS)
def test_control_c_is_for_the_command_and_not_for_the_client(terminal: Callable[..., Terminal], pool: str) -> None:
    shell = terminal(
        "-it", f"wp/{pool}", "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.1; done"
    )
    shell.until("up")
    shell.type("\x03")
    shell.until("caught")
    assert shell.wait() == 9


def test_the_terminal_is_as_it_was_after_an_error(terminal: Callable[..., Terminal]) -> None:
    shell = terminal("-it", "none-0", "--", "sh")
    shell.until("not found")
    assert shell.wait() == 1


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_terminal_is_as_it_was_after_a_signal(
    terminal: Callable[..., Terminal], how: signal.Signals, code: int
) -> None:
    shell = terminal("-it", "bare-0", "--", "sh", "-c", "echo up; sleep 100200")
    shell.until("up")
    shell.client.send_signal(how)
    assert shell.wait() == code
    until(lambda: not alive("100200"))


def test_a_terminal_without_input_stays_ones_own(terminal: Callable[..., Terminal]) -> None:
    shell = terminal("-t", "bare-0", "--", "sh", "-c", "test -t 1 && echo up; sleep 100201")
    shell.until("up")
    shell.type("\x03")
    assert shell.wait() == 130
    until(lambda: not alive("100201"))


def test_the_end_of_an_instance_ends_the_commands_in_it(server: Live, terminal: Callable[..., Terminal]) -> None:
    shell = terminal("-it", "bare-1", "--", "sh", "-c", "echo up; sleep 100202")
    shell.until("up")
    server.kubectl("delete", "inst", "bare-1", "--wait=false")
    assert shell.wait() in (1, 129, 137)
    until(lambda: not alive("100202"))


def test_a_command_goes_on_for_a_client_that_stops_for_a_while(server: Live) -> None:
    with subprocess.Popen(
        arguments(server, "bare-0", "--", "head", "-c", "30000000", "/dev/zero"),
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    ) as client:
        assert client.stdout is not None
        client.stdout.read(1)
        os.kill(client.pid, signal.SIGSTOP)
        os.kill(client.pid, signal.SIGCONT)
        assert len(client.stdout.read()) == 30_000_000 - 1
        assert client.wait(PATIENCE_SECONDS) == 0


def test_over_tls_it_is_the_same(server: Live) -> None:
    words: list[Any] = [
        ROTA,
        "exec",
        "--kubeconfig",
        server.kubeconfig,
        "-i",
        "bare-0",
        "--",
        "sh",
        "-c",
        "cat; exit 4",
    ]
    done = subprocess.run(words, input=b"x" * 3_000_000, capture_output=True, timeout=20, check=False)
    assert (done.returncode, len(done.stdout)) == (4, 3_000_000)
