"""The end of containers, above all of those whose client was killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from rota.runtime.container import container_name
from rota.runtime.container.monitors import Monitor, monitors_of
from rota.runtime.interface import Subject
from tests.runtime_container.conftest import SECONDS_MAX, Host, begun, kill, podman
from tests.until import until_async

HALF_MADE_TIMES = 5
FOR_EVER = "while :; do sleep 0.01; done"


async def test_a_container_whose_client_is_killed_goes_on_until_it_is_removed(host: Host) -> None:
    process = await host.started(FOR_EVER)
    main = int(podman(host.engine, "inspect", "--format={{.State.Pid}}", host.name))
    await kill(process)
    assert is_there(main)
    await host.engine.remove(host.name)
    assert not is_there(main)
    assert traces(host, []) == []


async def test_one_that_was_killed_half_way_leaves_nothing_either(host: Host) -> None:
    for _ in range(HALF_MADE_TIMES):
        process = await begun(host.command(host.order("/bin/sleep", "1000")))
        held = await until_async(lambda: monitors_of(host.name, host.engine.facts.monitor))
        await kill(process)
        await host.engine.remove(host.name)
        assert traces(host, held) == []


async def test_a_name_is_free_for_the_next_when_it_was_removed(host: Host) -> None:
    process = await host.started(FOR_EVER)
    await kill(process)
    await host.engine.remove(host.name)
    assert host.shell("echo next") == "next\n"


async def test_to_remove_what_is_not_there_is_fine(host: Host) -> None:
    await host.engine.remove(host.name)


async def test_all_of_a_home_are_listed_and_no_other(host: Host) -> None:
    other = Host(host.engine, host.image, host.folder)
    processes = [await each.started(FOR_EVER) for each in (host, other)]
    assert await host.engine.listed(host.label) == [host.name]
    assert await host.engine.listed(host.label[:-1]) == []
    for each, process in zip((host, other), processes, strict=True):
        await each.engine.remove(each.name)
        await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert await host.engine.listed(host.label) == []


async def test_its_client_ends_when_a_container_is_removed(host: Host) -> None:
    process = await host.started(FOR_EVER)
    await host.engine.remove(host.name)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert process.returncode == 137


def test_what_only_looks_like_a_monitor_is_not_believed(host: Host) -> None:
    script = host.folder / "conmon"
    script.write_text("print(flush=True); input()")
    program = [sys.executable, str(script), "-c", "0" * 64, "-n", host.name]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert monitors_of(host.name, host.engine.facts.monitor) == []
        assert [one.pid for one in monitors_of(host.name, sys.executable)] == [process.pid]
        process.communicate(b"\n")


def test_a_name_is_short_and_tells_all_apart() -> None:
    long = Subject("default", "a" * 250, "uid")
    names = [
        container_name(Subject("default", "a", "1"), "b"),
        container_name(Subject("default", "a", "2"), "b"),
        container_name(Subject("other", "a", "1"), "b"),
        container_name(Subject("default", "a-b", "1"), "c"),
        container_name(Subject("default", "a", "1"), "b-c"),
        container_name(long, "b"),
        container_name(long._replace(name="a" * 251), "b"),
    ]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 and name.startswith("rota-a") for name in names)


def is_there(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def traces(host: Host, held: list[Monitor]) -> list[str]:
    """All that is left of containers, found without asking the engine."""
    ids = {monitor.container_id for monitor in held}
    left = [f"monitor {monitor.pid}" for monitor in monitors_of(host.name, host.engine.facts.monitor)]
    left += [path for path, _, _ in os.walk("/sys/fs/cgroup") if any(id_ in path for id_ in ids)]
    listed = podman(host.engine, "ps", "--all", "--external", "--no-trunc", "--format={{.ID}} {{.Names}}")
    left += [line for line in listed.splitlines() if host.name in line or any(id_ in line for id_ in ids)]
    if os.geteuid() == 0:
        known = subprocess.run(
            [host.engine.facts.oci_runtime, "list", "--quiet"], capture_output=True, text=True, timeout=SECONDS_MAX
        )
        left += [f"record {id_}" for id_ in ids & {*known.stdout.split()}]
    return left
