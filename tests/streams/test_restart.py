"""`rota run -f`, `rota logs -f` and `rota get -w`, whose server is killed and started again."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.live import ROTA, Live
from tests.until import until

PATIENCE_SECONDS = 60.0
COUNT = "import itertools, time\nfor number in {numbers}:\n    print('line', number, flush=True)\n    time.sleep(0.02)"
TASK_LINES = 300


def counting(numbers: str) -> list[str]:
    return [sys.executable, "-c", COUNT.format(numbers=numbers)]


class Command:
    """A command that runs, and what it has written until now."""

    def __init__(self, live: Live, *words: str) -> None:
        self.process = subprocess.Popen(
            [ROTA, words[0], "--home", str(live.home), *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        streams = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        self._readers = [threading.Thread(target=self._read, args=both) for both in streams]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))  # noqa: PERF401 - seen as it comes

    def until(self, line: str) -> None:
        until(lambda: line in self.out or self.process.poll() is not None, self._said, seconds=PATIENCE_SECONDS)
        assert line in self.out, self._said()

    def _said(self) -> str:
        return "\n".join([*self.out[-5:], *self.err])

    def end(self) -> int:
        code = self.process.wait(PATIENCE_SECONDS)
        self._close()
        return code

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    server = Live(tmp_path, "--edge-port", "0")
    try:
        yield server
    finally:
        server.end()


def apply(live: Live, name: str, **spec: Any) -> None:
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": name}, "spec": spec}
    run(live, "apply", "-f", "-", stdin=msgspec.json.encode(body).decode())
    run(live, "wait", f"wp/{name}", "--for", "condition=Ready", "--timeout", "60s")


def run(live: Live, *words: str, stdin: str = "") -> None:
    command = [ROTA, words[0], "--home", str(live.home), *words[1:]]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_task_is_followed_across_the_end_of_its_server(live: Live) -> None:
    apply(live, "shells", replicas=1, worker={"type": "shell", "isolation": "none"})
    command = Command(live, "run", "-f", "--pool", "shells", "--", *counting(f"range({TASK_LINES})"))
    command.until("line 20")
    live.kill()
    live.start()
    assert command.end() == 0, command.err
    assert command.out == [f"line {number}" for number in range(TASK_LINES)]
    assert any("the server is away, and is waited for" in line for line in command.err)


def test_an_instance_and_a_watch_are_followed_across_the_end_of_their_server(live: Live) -> None:
    container = {"name": "main", "command": counting("itertools.count()")}
    template = {"containers": [container], "isolation": "none", "terminationGracePeriodSeconds": 0}
    apply(live, "boxes", replicas=1, template=template)
    log, watch = Command(live, "logs", "-f", "--tail", "1", "inst/boxes-0"), Command(live, "get", "inst", "-w")
    try:
        until(lambda: log.out and len(watch.out) == 2, seconds=PATIENCE_SECONDS)
        live.kill()
        live.start()
        until(lambda: any("the server is back" in line for line in watch.err), seconds=PATIENCE_SECONDS)
        apply(live, "boxes", replicas=2, template=template)
        until(lambda: any(line.startswith("boxes-1 ") for line in watch.out), seconds=PATIENCE_SECONDS)
        first = int(log.out[0].split()[1])
        log.until(f"line {first + 300}")
    finally:
        log.stop()
        watch.stop()
    numbers = [int(line.split()[1]) for line in log.out]
    assert numbers == list(range(first, first + len(numbers)))
    # The server knows it again before it is told of: nothing of it has changed.
    assert len([line for line in watch.out if line.startswith("NAME")]) == 1
