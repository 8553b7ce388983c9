"""Containers with a kernel of their own, where the host has gVisor."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from rota.runtime.composing import is_sandboxed
from rota.runtime.container import Engine, Facts, available
from rota.runtime.container.availability import forget
from rota.runtime.container.trial import NO_RUNSC
from rota.runtime.interface import Refused
from tests.runtime_container.conftest import INSTALL_SECONDS_MAX, SECONDS_MAX, Host, ended, found, kill

HOSTS = Path("/proc/version").read_text()


@functools.cache
def with_gvisor() -> Facts | str:
    """Return the engine of this host if it has gVisor, too. As root, it is installed if it is missing."""
    facts = found()
    if isinstance(facts, str):
        return facts
    if shutil.which("runsc") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "runsc"]
        subprocess.run(install, capture_output=True, timeout=INSTALL_SECONDS_MAX, check=False)
        forget()
    engine, why_not = asyncio.run(available())
    if engine is None:
        return why_not
    return engine.facts if engine.facts.gvisor else engine.facts.no_gvisor


@pytest.fixture
async def engine() -> Engine:
    facts = await asyncio.to_thread(with_gvisor)
    if isinstance(facts, str):
        pytest.skip(facts)
    return Engine(facts)


@pytest.mark.parametrize("network", ["none", "host"])
def test_it_has_another_kernel_than_the_host(host: Host, network: str) -> None:
    done = host.run("/bin/sh", "-c", "cat /proc/version; exit 7", isolation="gvisor", network=network)
    assert done.returncode == 7 and done.stdout.startswith("Linux version") and done.stdout != HOSTS
    assert host.run("/bin/cat", "/proc/version", network=network).stdout == HOSTS


def test_without_network_it_has_its_own_loopback_and_nothing_more(host: Host) -> None:
    seen = host.shell("cat /proc/net/dev | grep -o '[a-z0-9]*:'", isolation="gvisor", network="none")
    assert seen.split() == ["lo:"]


def test_what_it_writes_to_its_storage_stays(host: Host, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    mounted = host.shell("echo line > /data/file; cat /data/file", isolation="gvisor", storage=(storage, "/data"))
    assert mounted == "line\n" and (storage / "file").read_text() == "line\n"


def test_more_memory_than_its_limit_is_its_end(host: Host) -> None:
    if not host.engine.facts.holds_memory:
        pytest.skip("limits of memory are not held here")
    assert host.run("/bin/sh", "-c", "tail /dev/zero", isolation="gvisor", memory_bytes=128 << 20).returncode != 0


@pytest.fixture
async def running(host: Host) -> tuple[Host, asyncio.subprocess.Process]:
    return host, await host.started("trap 'exit 5' TERM; while :; do sleep 0.01; done", isolation="gvisor")


async def test_commands_run_in_it_and_it_ends_when_asked(running: tuple[Host, asyncio.subprocess.Process]) -> None:
    host, process = running
    said = ended(host.engine.exec_command(host.name, ["/bin/cat", "/proc/version"], tty=False, env={}))
    assert said.returncode == 0 and said.stdout.startswith("Linux version") and said.stdout != HOSTS
    assert await host.engine.is_running(host.name)
    assert await host.engine.ask_to_end(host.name)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert process.returncode == 5 and await host.engine.listed(host.label) == []


async def test_nothing_of_it_is_left_when_its_client_was_killed(
    running: tuple[Host, asyncio.subprocess.Process],
) -> None:
    host, process = running
    await kill(process)
    await host.engine.remove(host.name)
    assert await host.engine.listed(host.label) == []
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in left.splitlines() if "runsc" in line and host.name in line]


def test_a_host_without_it_refuses_what_asks_for_it(tmp_path: Path) -> None:
    facts = Facts("podman", "/usr/bin/podman", "4", no_gvisor=NO_RUNSC)
    host = Host(Engine(facts), "localhost/x", tmp_path)
    with pytest.raises(Refused, match="there is no runsc; install gVisor") as refused:
        host.command(host.order("true", isolation="gvisor"))
    assert refused.value.reason == "NotIsolated"
    assert "--runtime" not in " ".join(host.command(host.order("true")).argv)
    # What was remembered before anybody looked for it is as good as that.
    old = msgspec.json.decode(b'{"engine":"podman","program":"p","version":"4"}', type=Facts)
    with pytest.raises(Refused):
        Host(Engine(old), "localhost/x", tmp_path).command(host.order("true", isolation="gvisor"))


def test_a_process_that_asks_for_it_is_not_started_with_less(tmp_path: Path) -> None:
    host = Host(Engine(Facts("podman", "p", "4")), "", tmp_path)
    with pytest.raises(Refused, match="takes runtime container") as refused:
        is_sandboxed(host.order("true", isolation="gvisor"))
    assert refused.value.reason == "NotIsolated"
