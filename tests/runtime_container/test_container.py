"""A container: its command, its view, its limits and its rights."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rota.runtime.container import Engine
from rota.runtime.container.engine import CAPABILITIES
from rota.runtime.interface import Refused
from tests.runtime_container.conftest import SECONDS_MAX, Host, ended, make_image, podman


def test_its_output_and_its_exit_code_are_those_of_the_command(host: Host) -> None:
    done = host.run("/bin/sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)


async def test_without_a_command_it_runs_what_the_image_says(host: Host) -> None:
    own = await asyncio.to_thread(make_image, host.engine, 'ENTRYPOINT ["/bin/echo", "own"]', 'CMD ["words"]')
    assert host.run(image=own).stdout == "own words\n"
    await asyncio.to_thread(podman, host.engine, "rmi", own)


async def test_a_command_takes_the_place_of_the_images_entrypoint(host: Host) -> None:
    own = await asyncio.to_thread(make_image, host.engine, 'ENTRYPOINT ["/bin/echo", "own"]', 'CMD ["words"]')
    assert host.run("/bin/echo", "mine", image=own).stdout == "mine\n"
    await asyncio.to_thread(podman, host.engine, "rmi", own)


def test_a_program_that_is_not_in_the_image_is_named(host: Host) -> None:
    done = host.run("nosuch")
    assert done.returncode == 127 and '"nosuch"' in done.stderr


def test_it_starts_where_it_is_told_to_and_is_called_like_its_instance(host: Host) -> None:
    assert host.shell("pwd; cat /etc/hostname", working_dir="/bin").split() == ["/bin", "web-0"]


def test_what_it_writes_to_its_storage_stays(host: Host, tmp_path: Path) -> None:
    for _ in range(2):
        said = host.shell("echo line >> /data/deep/file; cat /data/deep/file", storage=(storage(tmp_path), "/data"))
    assert said == "line\nline\n"
    assert (tmp_path / "storage" / "deep" / "file").read_text() == "line\nline\n"


async def test_an_image_with_a_user_of_its_own_can_write_to_its_storage(host: Host, tmp_path: Path) -> None:
    own = await asyncio.to_thread(make_image, host.engine, "USER 1234:1234")
    script = "id -u; echo x > /data/file && cat /data/file"
    assert host.shell(script, image=own, storage=(storage(tmp_path), "/data")) == "1234\nx\n"
    await asyncio.to_thread(podman, host.engine, "rmi", own)


def test_volumes_are_read_only_wherever_they_are(host: Host, tmp_path: Path) -> None:
    place = "/etc/a, b:c=d"
    folder = tmp_path / "with, comma"
    folder.mkdir()
    (folder / "file").write_text("content")
    said = host.shell(f"cat '{place}/file'; echo x > '{place}/file'", volumes=[(folder, place)])
    assert said.startswith("content") and "Read-only file system" in said


@pytest.mark.parametrize("place", ["/", "relative", "/a/../../b", "/a\0b"])
def test_a_place_that_is_none_is_refused(host: Host, place: str) -> None:
    with pytest.raises(Refused, match="must be an absolute path") as refused:
        host.command(host.order("true"), volumes=[(host.folder, place)])
    assert refused.value.reason == "ConfigurationError"


def test_without_network_it_has_its_own_loopback_and_nothing_more(host: Host) -> None:
    interfaces = "cat /proc/net/dev | grep -o '[a-z0-9]*:'"
    assert host.shell(interfaces, network="none").split() == ["lo:"]
    names = Path("/proc/net/dev").read_text()
    assert all(name in names for name in host.shell(interfaces).split())


def test_more_memory_than_its_limit_is_its_end(host: Host) -> None:
    if not host.engine.facts.holds_memory:
        pytest.skip("limits of memory are not held here")
    assert host.run("/bin/sh", "-c", "tail /dev/zero", memory_bytes=32 << 20).returncode == 137


def test_its_share_of_the_cpus_is_set(host: Host) -> None:
    if not host.engine.facts.holds_cpus:
        pytest.skip("limits of CPU are not held here")
    seen = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null"
    assert host.shell(seen, cpus=0.25).split()[0] == "25000"


def test_it_has_the_few_capabilities_of_entrypoints_and_gains_none(host: Host) -> None:
    status = dict(line.split(":\t", 1) for line in host.shell("cat /proc/self/status").splitlines())
    assert int(status["CapBnd"], 16).bit_count() == len(CAPABILITIES)
    assert status["CapEff"] == status["CapBnd"] and status["NoNewPrivs"] == "1"


async def test_a_signal_to_the_command_is_the_containers(host: Host, tmp_path: Path) -> None:
    script = "trap 'echo asked > /data/asked; exit 5' TERM; while :; do sleep 0.01; done"
    process = await host.started(script, storage=(storage(tmp_path), "/data"))
    # In the moment in which it starts a container, a signal is the client's own.
    assert ended(host.engine.exec_command(host.name, ["/bin/true"], tty=False, env={})).returncode == 0
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert (tmp_path / "storage" / "asked").read_text() == "asked\n"
    # An ordinary user's podman is two processes, and the first loses the code when it passes a signal on to the second.
    # `ask_to_end` goes another way.
    assert process.returncode in ((0, 5) if host.engine.facts.is_rootless else (5,))


async def test_it_is_asked_to_end_with_the_signal_that_its_image_wants(host: Host) -> None:
    own = await asyncio.to_thread(make_image, host.engine, "STOPSIGNAL SIGUSR1")
    process = await host.started("trap 'exit 6' USR1; while :; do sleep 0.01; done", image=own)
    assert await host.engine.ask_to_end(host.name)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert process.returncode == 6
    await asyncio.to_thread(podman, host.engine, "rmi", own)


async def test_it_is_gone_when_its_command_has_ended(host: Host) -> None:
    host.shell("true")
    assert await host.engine.listed(host.label) == []


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "", "a b"])
def test_an_image_that_could_be_an_option_is_refused(engine: Engine, image: str, tmp_path: Path) -> None:
    host = Host(engine, image, tmp_path)
    with pytest.raises(Refused, match="is not the name of an image"):
        host.command(host.order("true"))


def test_limits_that_the_host_does_not_hold_are_said_and_not_asked_for(engine: Engine, tmp_path: Path) -> None:
    import msgspec

    facts = msgspec.structs.replace(engine.facts, holds_memory=False, holds_cpus=True)
    host = Host(Engine(facts), "localhost/x", tmp_path)
    order = host.order("true", memory_bytes=1 << 20, cpus=1.5)
    assert host.engine.unmet(order) == ["memory"]
    argv = host.command(order).argv
    assert "--cpus=1.5" in argv and not any(argument.startswith("--memory") for argument in argv)


def storage(folder: Path) -> Path:
    path = folder / "storage"
    (path / "deep").mkdir(parents=True, exist_ok=True)
    os.chmod(path / "deep", 0o777)
    return path
