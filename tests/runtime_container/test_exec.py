"""Further commands in a container that runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from tests.runtime_container.conftest import SECONDS_MAX, Host, ended


@pytest.fixture
async def running(host: Host) -> AsyncIterator[Host]:
    process = await host.started("trap 'exit 0' TERM; while :; do sleep 0.01; done", env={"OWN": "1"})
    yield host
    assert await host.engine.ask_to_end(host.name)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)


def test_a_command_runs_where_the_container_does(running: Host) -> None:
    script = 'echo "$OWN $MORE"; pwd; cat /etc/hostname; exit 4'
    command = running.engine.exec_command(
        running.name, ["/bin/sh", "-c", script], tty=False, env={"MORE": "two\nlines"}, cwd="/bin"
    )
    done = ended(command)
    assert (done.stdout.rstrip("\n"), done.returncode) == ("1 two\nlines\n/bin\nweb-0", 4)


async def test_it_reads_what_it_is_given(running: Host) -> None:
    command = running.engine.exec_command(running.name, ["/bin/cat"], tty=False, env={})
    process = await asyncio.create_subprocess_exec(
        *command.argv, env=command.env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(process.communicate(b"given"), SECONDS_MAX)
    assert said == b"given"


async def test_with_a_terminal_it_has_one(running: Host) -> None:
    ours, theirs = os.openpty()
    command = running.engine.exec_command(
        running.name, ["/bin/sh", "-c", "tty; echo $TERM"], tty=True, env={"TERM": "vt100"}
    )
    process = await asyncio.create_subprocess_exec(
        *command.argv, env=command.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    assert await asyncio.wait_for(process.wait(), SECONDS_MAX) == 0
    said = os.read(ours, 4096).decode()
    os.close(ours)
    assert said.split() == ["/dev/pts/0", "vt100"]


def test_in_a_container_that_is_gone_it_says_so(host: Host) -> None:
    done = ended(host.engine.exec_command(host.name, ["/bin/cat"], tty=False, env={}))
    assert done.returncode == 125 and host.name in done.stderr
