"""The static agent as the first process of a container: no capability, an own uid, a root that cannot be written to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.runtime.container import Engine
from rota.runtime.runner import connected_box
from rota.runtime.runner.agent import is_running
from rota.runtime.runner.box import BoxLost
from rota.runtime.runner.connected_box import ConnectedBox
from rota.runtime.runner.executor import Executor
from rota.runtime.runner.jobs import Job
from rota.runtime.runner.journal import Journal
from tests.agent.containers import (
    IMPOSTER,
    LEAVER,
    STORM,
    UID,
    Pod,
    appears,
    processes_with,
    said,
    sh,
    with_a_shell,
    with_the_agent,
)
from tests.amount import LONG
from tests.runtime_container.conftest import found, podman
from tests.until import until_async

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def engine() -> Engine:
    facts = found()
    if isinstance(facts, str):
        pytest.skip(facts)
    if os.geteuid() != 0:
        pytest.skip("a folder for the uid of a container is made as root")
    return Engine(facts)


@pytest.fixture(scope="module")
def images(engine: Engine) -> Iterator[tuple[str, str]]:
    """An image with a shell, and one with nothing but the agent."""
    made = (with_a_shell(engine), with_the_agent(engine))
    yield made
    podman(engine, "rmi", "--force", *made)


@pytest.fixture
def bare(engine: Engine, images: tuple[str, str], tmp_path: Path) -> Iterator[Pod]:
    """A pod whose agent is installed, and whose container is not started."""
    pod = Pod(engine, tmp_path)
    pod.install(images[1])
    yield pod
    pod.close()


@pytest.fixture
def pod(bare: Pod, images: tuple[str, str]) -> Pod:
    bare.start(images[0])
    return bare


@pytest.fixture
async def box(pod: Pod) -> AsyncIterator[ConnectedBox]:
    box = ConnectedBox(pod.agents)
    await box.start()
    yield box
    await box.stop()


async def test_commands_run_in_an_image_with_nothing_in_it(bare: Pod, images: tuple[str, str]) -> None:
    bare.start(images[1])
    box = ConnectedBox(bare.agents)
    await box.start()
    assert await said(box, "/rota/agent", "--install", "/storage/copy") == (0, "")
    assert (bare.storage / "copy").read_bytes() == (bare.shared / "agent").read_bytes()
    code, text = await said(box, "/rota/agent", "--unknown")
    assert code == 64 and "rota agent: it takes" in text
    await box.stop()


async def test_a_task_has_its_outcome_and_leaves_nothing(pod: Pod, box: ConnectedBox, tmp_path: Path) -> None:
    journal = Journal(pod.private / "journal")
    executor = Executor(journal)
    script = "(setsid sleep 1000 &); cat; echo $KEY > /dev/stdout; echo ::rota output a=1; kill -SEGV $$"
    job = Job(
        id="job",
        kind="command",
        argv=("sh", "-c", script),
        env={"KEY": "of the job"},
        cwd="/storage",
        stdin="given\n",
        log=str(tmp_path / "log"),
    )
    outcome = await executor.run(box, job, home="/storage")
    assert (outcome.reason, outcome.exit_code, outcome.outputs) == ("Failed", 128 + signal.SIGSEGV, {"a": "1"})
    assert (tmp_path / "log").read_text() == "given\nof the job\n::rota output a=1\n"
    first = pod.first()
    assert processes_with(first) == [first] and journal.pending() == [outcome]
    executor.close()
    journal.close()


async def test_commands_have_the_users_uid_no_capability_and_no_way_to_gain_one(box: ConnectedBox) -> None:
    code, text = await sh(box, "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; touch /x || touch /rota/x")
    assert code == 1 and text.splitlines()[:3] == [str(UID), "CapEff:\t0000000000000000", "NoNewPrivs:\t1"]
    assert text.count("Read-only file system") == 2


async def test_the_agent_survives_every_signal_from_inside(box: ConnectedBox) -> None:
    assert (await sh(box, "for s in 9 19 15 11 6 1 2 17 20; do kill -$s 1; done"))[0] == 0
    assert await sh(box, "echo lives") == (0, "lives\n")
    assert not box.stopping.is_set()


async def test_the_agent_can_neither_be_looked_into_nor_be_replaced_from_inside(box: ConnectedBox) -> None:
    ways = (
        "cat /proc/1/environ", "cat /proc/1/mem", "ls /proc/1/fd", "ls /proc/1/map_files", "cat /proc/1/syscall",
        "echo 0 > /proc/1/oom_score_adj", "rm /rota/agent", "echo x > /rota/agent", "touch /rota/agent.sock",
        "chmod 777 /rota",
    )  # fmt: skip
    for way in ways:
        code, text = await sh(box, way)
        assert code != 0, (way, text)


async def test_a_fork_storm_is_cleared_and_that_is_verified(pod: Pod, box: ConnectedBox) -> None:
    storm = pod.add(STORM)
    first = pod.first()
    for _ in range(3 if LONG else 1):
        nothing = os.open(os.devnull, os.O_RDWR)
        await box.run([storm], env={}, cwd="/", streams=(nothing, nothing, nothing))
        os.close(nothing)
        await until_async(lambda: len(processes_with(first)) > 5)
        await box.clear(alone=True)
        assert processes_with(first) == [first]
    assert await sh(box, "echo lives") == (0, "lives\n")


async def test_what_entered_from_outside_ends_when_the_box_is_to_be_alone(pod: Pod, box: ConnectedBox) -> None:
    pod.enter("sleep", "1000")
    first = pod.first()
    assert len(processes_with(first)) == 2
    await box.clear()
    assert len(processes_with(first)) == 2
    await box.clear(alone=True)
    assert processes_with(first) == [first]


async def test_what_is_kept_goes_on_while_the_rest_ends(pod: Pod, box: ConnectedBox) -> None:
    reading, writing = os.pipe()
    streams = (reading, writing, writing)
    script = "sleep 1000 & sleep 1000 & echo > /storage/up; read x"
    kept, command = await box.run(["sh", "-c", script], env={}, cwd="/", streams=streams)
    _, other = await box.run(["sleep", "1000"], env={}, cwd="/", streams=streams)
    pod.enter("sleep", "1000")
    await appears(pod.storage / "up")
    await box.clear([kept], alone=True)
    assert await other.ended == -9 and not command.ended.done()
    # Those below it are dead, and lie there until it takes them away.
    assert len(list(filter(is_running, processes_with(pod.first())))) == 2
    for descriptor in (reading, writing):
        os.close(descriptor)


async def test_a_reset_leaves_nothing_for_the_next_box(pod: Pod) -> None:
    first = pod.first()
    for number in range(3):
        box = ConnectedBox(pod.agents)
        await box.start()
        assert (await sh(box, f"(setsid sleep 1000 &); echo {number} > /storage/n"))[0] == 0
        began = time.perf_counter()
        await box.stop()
        print(f"reset in {(time.perf_counter() - began) * 1000:.1f} ms")
        assert processes_with(first) == [first]


DEEP = """
cd /dev/shm
for number in $(seq 400); do mkdir d && echo > d/file && cd d || exit 1; done
cd /dev/shm
mkdir other locked locked/inner && echo > locked/inner/file && ln -s /storage link && chmod 0 locked/inner locked
"""


async def test_what_outlives_processes_is_gone_for_the_next_box(pod: Pod) -> None:
    leaver = pod.add(LEAVER)
    (pod.storage / "kept").touch()
    shown = "cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem | grep -v key; ls -A /dev/shm /dev/mqueue"
    box = ConnectedBox(pod.agents)
    await box.start()
    assert await sh(box, DEEP) == (0, "")
    assert await sh(box, leaver) == (0, "")
    assert len((await sh(box, shown))[1].split()) > 9
    await box.stop()
    box = ConnectedBox(pod.agents)
    await box.start()
    assert (await sh(box, shown))[1].split() == ["/dev/mqueue:", "/dev/shm:"]
    assert (pod.storage / "kept").exists()
    await box.stop()


async def test_an_imposter_is_not_taken_for_the_agent_when_the_runner_restarts(pod: Pod) -> None:
    imposter = pod.add(IMPOSTER)
    box = ConnectedBox(pod.agents)
    await box.start()
    script = f"for i in 1 2 3 4; do setsid {imposter} /rota/agent.sock /storage/got & done"
    assert (await sh(box, script))[0] == 0
    await appears(pod.storage / "got")
    first = pod.first()
    # As the kernel does when a runner is killed; the next one is quicker than any could be.
    assert box._control is not None and box._reading is not None
    box._reading.cancel()
    pod.agents.close()
    pod.agents = pod.new_runner()
    pod.agents.listen()
    box._control.close()
    box = ConnectedBox(pod.agents)
    await box.start()
    assert await sh(box, "echo it") == (0, "it\n")
    assert processes_with(first) == [first]
    got = (pod.storage / "got").read_text()
    assert set(got.split()) <= {"begun", "connected"}
    await box.stop()


async def test_a_container_that_was_killed_and_started_again_has_another_box(pod: Pod) -> None:
    box = ConnectedBox(pod.agents)
    await box.start()
    await sh(box, "(setsid sleep 1000 &)")
    pod.kill("KILL")
    await box.lost.wait()
    await box.stop()
    assert pod.exit_code() == 137
    pod.again()
    box = ConnectedBox(pod.agents)
    await box.start()
    assert await sh(box, "echo again") == (0, "again\n")
    await box.stop()


async def test_a_container_that_is_stopped_says_so_and_ends_as_its_runner_wants(pod: Pod) -> None:
    box = ConnectedBox(pod.agents)
    await box.start()
    pod.kill("TERM")
    await box.stopping.wait()
    assert await sh(box, "echo last") == (0, "last\n")
    await box.end(5)
    assert pod.exit_code() == 5
    await box.stop()


async def test_an_agent_that_was_slowed_down_for_the_next_box_is_not_used_any_more(pod: Pod) -> None:
    box = ConnectedBox(pod.agents)
    await box.start()
    assert (await sh(box, "renice -n 19 -p 1"))[0] == 0
    await box.stop()
    assert pod.exit_code() == 3


async def test_a_container_of_which_another_user_is_known_has_to_be_replaced(
    bare: Pod, images: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected_box, "START_SECONDS_MAX", 1.0)
    bare.agents._uid = UID + 1
    bare.start(images[0])
    with pytest.raises(BoxLost, match="replaced"):
        await ConnectedBox(bare.agents).start()


def test_an_agent_with_the_uid_of_its_runner_does_not_begin(bare: Pod, images: tuple[str, str]) -> None:
    bare.start(images[1], uid=os.getuid())
    assert bare.exit_code() == 64
