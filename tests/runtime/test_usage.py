"""The processor time that instances have used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rota.runtime.interface import Subject
from rota.runtime.usage import cpu_seconds
from tests.until import until

ONE = Subject("default", "one", "uid-one")
BURNS_IN_A_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "while True: pass"])
"""


@pytest.fixture
def burning() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BURNS_IN_A_CHILD], start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_what_is_used_below_a_process_counts_and_only_grows(burning: subprocess.Popen[bytes]) -> None:
    before = 0.0

    def used() -> float:
        nonlocal before
        now = cpu_seconds({ONE: [burning.pid]})[ONE]
        assert now >= before
        before = now
        return now

    until(lambda: used() >= 0.5, lambda: f"{before} s are used")


def test_what_is_gone_is_left_out() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert cpu_seconds({ONE: [os.getpid(), gone.pid]}) == {}
    assert cpu_seconds({ONE: []}) == {}
