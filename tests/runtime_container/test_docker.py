"""Docker, by a stand-in that says what docker's documentation says it says. There is none here to try."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.runtime.container import Engine, EngineFailed, availability, available, container_name
from rota.runtime.interface import Order, Refused, Subject

pytestmark = pytest.mark.usefixtures("asked_anew")

INFO = '{"ServerVersion":"28.2.2","MemoryLimit":true,"CpuCfsQuota":false,"SecurityOptions":["name=rootless"]}'
NO_DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
SUBJECT = Subject("default", "web-0", "uid")


class StandIn:
    """A program called docker that says what it is told to, and keeps what it was asked."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "docker"
        self._asked = folder / "asked"
        self.says(f"echo '{INFO}'")

    def says(self, script: str) -> None:
        self._program.write_text(f'#!/bin/sh\necho "$*" >> {self._asked}\n{script}\n')
        os.chmod(self._program, 0o755)

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().splitlines()


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr(availability, "PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return StandIn(tmp_path)


async def found() -> Engine:
    engine, why_not = await available()
    assert engine is not None, why_not
    return engine


async def test_it_is_taken_where_there_is_no_podman_and_asked_what_it_can(docker: StandIn) -> None:
    facts = (await found()).facts
    assert (facts.engine, facts.version, facts.is_rootless) == ("docker", "28.2.2", True)
    assert (facts.holds_memory, facts.holds_cpus, facts.limits) == (True, False, "memory")
    assert docker.asked == ["info --format={{json .}}"]


async def test_a_daemon_that_does_not_run_is_told_in_its_own_words(docker: StandIn) -> None:
    docker.says(f"echo '{{\"ServerVersion\":\"\"}}'; echo '{NO_DAEMON}' >&2; exit 1")
    assert await available() == (None, f"docker cannot run a container: {NO_DAEMON}")


async def test_its_containers_are_asked_for_in_its_own_terms(docker: StandIn, tmp_path: Path) -> None:
    engine = await found()
    order = Order(SUBJECT, "main", 1, ("sleep", "1"), {}, image="alpine", memory_bytes=1 << 20, cpus=1)
    argv = engine.command(order, name="a", home_label="b", storage=(tmp_path, "/data")).argv
    assert argv[:2] == [str(tmp_path / "docker"), "run"]
    assert argv[-4:] == ["--entrypoint=", "alpine", "sleep", "1"]
    assert f"--mount=type=bind,source={tmp_path},target=/data" in argv and "--memory=1048576" in argv
    of_podman_alone = ("--http-proxy", "--log-level", "--cgroup-manager", "--runtime", "--replace", "--cpus")
    assert not [argument for argument in argv if argument.startswith(of_podman_alone)]


async def test_an_image_that_is_not_there_is_pulled(docker: StandIn) -> None:
    engine = await found()
    docker.says('case "$1" in image) echo "Error: No such image: alpine" >&2; exit 1;; esac')
    await engine.ensure_image("alpine")
    looked = "image inspect --format={{.Id}} alpine"
    # Once more when its turn has come: somebody else may have pulled it meanwhile.
    assert docker.asked[1:] == [looked, looked, "pull --quiet docker.io/library/alpine"]


async def test_a_daemon_that_is_gone_is_not_taken_for_an_image_that_is_not_there(docker: StandIn) -> None:
    engine = await found()
    docker.says(f"echo '{NO_DAEMON}' >&2; exit 1")
    with pytest.raises(Refused, match="Cannot connect to the Docker daemon") as refused:
        await engine.ensure_image("alpine")
    assert refused.value.reason == "Provisioning"


async def test_that_there_is_nothing_to_remove_is_seen_in_its_list(docker: StandIn) -> None:
    engine = await found()
    name = container_name(SUBJECT, "main")
    docker.says('case "$1" in rm) echo "Error response from daemon: No such container" >&2; exit 1;; esac')
    await engine.remove(name)
    looked = f"ps --all --no-trunc --filter=name=^{name}$ --format={{{{.ID}}}}"
    assert docker.asked[1:] == [looked, f"rm --force --volumes {name}", looked]


async def test_one_that_does_not_go_away_is_a_failure(docker: StandIn) -> None:
    engine = await found()
    docker.says('case "$1" in rm) echo "Error: device or resource busy" >&2; exit 1;; ps) echo stuck;; esac')
    with pytest.raises(EngineFailed, match="docker does not remove the container stuck: Error: device or resource"):
        await engine.remove("stuck")


async def test_that_it_cannot_list_is_a_failure_and_not_an_empty_list(docker: StandIn) -> None:
    engine = await found()
    docker.says(f"echo '{NO_DAEMON}' >&2; exit 1")
    with pytest.raises(EngineFailed, match="Cannot connect"):
        await engine.listed("home")
