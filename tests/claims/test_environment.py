"""The environment of commands in claims: exactly what the pool and the claim declare, however new the instance is."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import Client
from rota.api import Instance
from rota.runtime import sandbox
from rota.runtime.container import Engine
from tests.runtime_container.conftest import found, make_image, podman
from tests.server.live import ROTA, Live, execute
from tests.until import until_so

CLAIMS = 6
REPLICAS = 3
SECONDS_MAX = 120.0
DECLARED = {"PLAIN": "as it is", "SECRET": "from a Secret", "CONFIG": "from a ConfigMap"}
ENV = [
    {"name": "PLAIN", "value": DECLARED["PLAIN"]},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "given", "key": "k"}}},
    {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "given", "key": "k"}}},
]
OF_SANDBOX = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "USER": "worker",
    "LOGNAME": "worker",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
}
OF_HOST = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
OF_PODMAN = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "TERM": "xterm",
    "container": "podman",
}
needs_sandbox = pytest.mark.skipif(not sandbox.available().ok, reason=sandbox.available().why_not)


def pool(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"replicas": REPLICAS, **spec},
    }


def template(**more: Any) -> dict[str, Any]:
    container = {"name": "main", "command": ["sleep", "100000"], "env": ENV, **more.pop("container", {})}
    return {"containers": [container], "terminationGracePeriodSeconds": 0, **more}


def secret(text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"}, "stringData": {"k": text}}


def apply(live: Live, *objects: Mapping[str, Any]) -> None:
    text = b"\n---\n".join(map(msgspec.json.encode, objects))
    done = subprocess.run(
        [ROTA, "apply", "--home", str(live.home), "-f", "-"], input=text, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    server = Live(tmp_path)
    try:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given"}}
        apply(server, secret(DECLARED["SECRET"]), {**config, "data": {"k": DECLARED["CONFIG"]}})
        yield server
    finally:
        server.end()


def variables(said: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in said.splitlines())


async def claimed(live: Live, env: Mapping[str, str] | None) -> list[tuple[str, dict[str, str]]]:
    """Claims for instances that are only just being made: the instance of each, and what `env` says in it."""
    client = Client.connect(home=live.home)

    async def one() -> tuple[str, dict[str, str]]:
        async with client.claim("boxes", wait_seconds=SECONDS_MAX, env=env) as box:
            result = await box.exec(["env"])
            assert result.exit_code == 0, result.stderr
            return box.instance, variables(result.stdout)

    try:
        async with asyncio.timeout(SECONDS_MAX):
            return list(await asyncio.gather(*(one() for _ in range(CLAIMS))))
    finally:
        await client.close()


FOR_CLAIM = [None, {"PLAIN": "the claim's own", "MINE": "a=b  c"}]
"""Without variables of the claim's own, and with some, of which one covers the pool's."""


@needs_sandbox
@pytest.mark.parametrize("env", FOR_CLAIM)
async def test_commands_in_a_sandbox_that_is_only_just_up_have_its_environment(
    live: Live, env: dict[str, str] | None
) -> None:
    apply(live, pool("boxes", template=template(isolation="sandbox")))
    for _, seen in await claimed(live, env):
        assert seen == {**OF_SANDBOX, "HOME": "/workspace", **DECLARED, **(env or {})}


@pytest.mark.parametrize("env", FOR_CLAIM)
async def test_commands_beside_a_process_that_is_only_just_up_have_its_environment(
    live: Live, env: dict[str, str] | None
) -> None:
    apply(live, pool("boxes", template=template(isolation="none")))
    for instance, seen in await claimed(live, env):
        assert f"/{instance}-" in seen.pop("HOME")
        assert seen == {**OF_HOST, **DECLARED, **(env or {})}


@needs_sandbox
@pytest.mark.parametrize("env", FOR_CLAIM)
async def test_commands_in_the_box_of_a_worker_have_its_environment(live: Live, env: dict[str, str] | None) -> None:
    apply(live, pool("boxes", worker={"type": "shell", "isolation": "sandbox", "env": ENV}))
    for _, seen in await claimed(live, env):
        assert seen == {**OF_SANDBOX, "HOME": "/workspace/home", **DECLARED, **(env or {})}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("env", FOR_CLAIM)
async def test_commands_in_a_container_that_is_only_just_being_made_have_its_environment(
    live: Live, env: dict[str, str] | None
) -> None:
    facts = await asyncio.to_thread(found)
    if isinstance(facts, str):
        pytest.skip(facts)
    engine = Engine(facts)
    image = make_image(engine, "ENV IMAGES=own")
    try:
        container = {"image": image, "command": ["sleep", "100000"]}
        apply(live, pool("boxes", template=template(runtime="container", container=container)))
        for instance, seen in await claimed(live, env):
            wanted = {**OF_PODMAN, "IMAGES": "own", "HOSTNAME": instance, **DECLARED, **(env or {})}
            # Newer ones set no terminal where there is none.
            assert {"TERM": wanted["TERM"], **seen} == wanted
    finally:
        live.end()
        podman(engine, "rmi", "--force", image)


@needs_sandbox
@pytest.mark.parametrize(
    "spec",
    [{"template": template(isolation="sandbox")}, {"worker": {"type": "shell", "isolation": "sandbox", "env": ENV}}],
    ids=["process", "worker"],
)
async def test_a_server_that_starts_again_knows_the_environment_of_what_runs(live: Live, spec: dict[str, Any]) -> None:
    """It is that of what was started, whatever has become of the Secret since."""
    apply(live, {**pool("boxes", **spec), "spec": {"replicas": 1, **spec}})
    client = Client.connect(home=live.home)
    try:
        async with asyncio.timeout(SECONDS_MAX), client.claim("boxes", wait_seconds=SECONDS_MAX) as box:
            before = variables((await box.exec(["env"])).stdout)
            box.keep()
    finally:
        await client.close()
    assert before["SECRET"] == DECLARED["SECRET"]
    live.kill()
    live.start()
    apply(live, secret("changed"))
    code, after = await asyncio.to_thread(execute, live.home, box.instance, "exec env -u PWD")
    assert (code, variables(after)) == (0, before)


async def test_what_holds_an_environment_is_for_rota_alone(live: Live) -> None:
    apply(live, pool("boxes", template=template(isolation="none")))
    await claimed(live, None)
    client = Client.connect(home=live.home)
    try:

        async def look() -> tuple[set[str], dict[Path, int]]:
            names = {one.metadata.name for one in (await client.list(Instance)).items}
            return names, await asyncio.to_thread(_modes_of_secrets, live.home / "instances")

        def are_of_instances(found: tuple[set[str], dict[Path, int]]) -> bool:
            names, modes = found
            return bool(modes) and {path.parent.name.rsplit("-", 5)[0] for path in modes} <= names

        # The claimed instance is replaced, and its files go a moment later.
        _, modes = await until_so(look, are_of_instances, "secrets of instances that are there", seconds=SECONDS_MAX)
    finally:
        await client.close()
    assert set(modes.values()) == {0o600}


def _modes_of_secrets(folder: Path) -> dict[Path, int]:
    """The modes of files that hold the secret; none: some of them went meanwhile."""
    try:
        files = [path for path in folder.rglob("*") if path.is_file() and _holds_secret(path)]
        return {path: stat.S_IMODE(path.stat().st_mode) for path in files}
    except FileNotFoundError:
        return {}


def _holds_secret(path: Path) -> bool:
    try:
        return DECLARED["SECRET"].encode() in path.read_bytes()
    except OSError:
        return False
