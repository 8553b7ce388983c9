"""Real containers to try things in. Everything that needs one is skipped, with the reason, where none can be had."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.container import Engine, Facts, available, container_name
from rota.runtime.container.availability import forget
from rota.runtime.container.dialect import base
from rota.runtime.interface import Order, Subject
from rota.runtime.sandbox import Command

SECONDS_MAX = 60
INSTALL_SECONDS_MAX = 100
PACKAGES = ("podman", "runc", "busybox-static")
APPLETS = ["sh", "cat", "echo", "env", "grep", "id", "ls", "pwd", "sleep", "tail", "true", "tty"]


@functools.cache
def found() -> Facts | str:
    """Return the engine of this host, or why there is none. As root, missing programs are installed first."""
    if shutil.which("podman") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES]
        subprocess.run(install, capture_output=True, timeout=INSTALL_SECONDS_MAX, check=False)
    if shutil.which("busybox") is None:
        return "images are made of busybox, which is not installed; install the package busybox-static"
    engine, why_not = asyncio.run(available())
    if engine is not None and engine.name != "podman":
        return "there is no podman, and docker is not what is tested"
    return engine.facts if engine is not None else why_not


@pytest.fixture
async def engine() -> Engine:
    facts = await asyncio.to_thread(found)
    if isinstance(facts, str):
        pytest.skip(facts)
    return Engine(facts)


@pytest.fixture
def asked_anew() -> Iterator[None]:
    forget()
    yield
    forget()


def make_image(engine: Engine, *changes: str) -> str:
    """An image with busybox, and nothing else."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(os.path.realpath(busybox), "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        name = f"localhost/rota-test-{uuid.uuid4().hex}"
        # No two share a layer: one that is being removed would take it from one that is being made.
        own = tarfile.TarInfo("own")
        own.size = len(name)
        tar.addfile(own, io.BytesIO(name.encode()))
    options = [f"--change={change}" for change in changes]
    podman(engine, "import", "--quiet", *options, "-", name, content=content.getvalue())
    return name


def podman(engine: Engine, *arguments: str, content: bytes = b"") -> str:
    done = subprocess.run(
        [*base(engine.facts), *arguments], input=content, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Host:
    """A home with containers, all of which are gone after the test."""

    def __init__(self, engine: Engine, image: str, folder: Path) -> None:
        self.engine = engine
        self.image = image
        self.folder = folder
        self.label = uuid.uuid4().hex
        self.subject = Subject("default", "web-0", uuid.uuid4().hex)
        self.name = container_name(self.subject, "main")

    def order(self, *argv: str, **more: Any) -> Order:
        return Order(
            subject=self.subject, container="main", number=1, argv=argv, **{"env": {}, "image": self.image, **more}
        )

    def command(self, order: Order, **more: Any) -> Command:
        return self.engine.command(order, name=self.name, home_label=self.label, **more)

    def run(self, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
        mounts = {key: more.pop(key) for key in ("storage", "volumes") if key in more}
        return ended(self.command(self.order(*argv, **more), **mounts))

    def shell(self, script: str, **more: Any) -> str:
        """Return the output of a script, on either stream."""
        done = self.run("/bin/sh", "-c", script, **more)
        return done.stdout + done.stderr

    async def started(self, script: str, **more: Any) -> asyncio.subprocess.Process:
        """A container that runs a script, which has to say that it runs."""
        mounts = {key: more.pop(key) for key in ("storage", "volumes") if key in more}
        process = await begun(self.command(self.order("/bin/sh", "-c", f"echo runs; {script}", **more), **mounts))
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), SECONDS_MAX) == b"runs\n"
        return process


def ended(command: Command) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:  # where the engine's monitor leaves its notes
        done = subprocess.run(
            command.argv,
            env=command.env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    # By hand: as text, a carriage return would be lost.
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


async def begun(command: Command) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command.argv,
        env=command.env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a client, all of it: that of an ordinary user is two processes."""
    os.killpg(process.pid, signal.SIGKILL)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)


@pytest.fixture
async def image(engine: Engine) -> AsyncIterator[str]:
    name = await asyncio.to_thread(make_image, engine)
    yield name
    await asyncio.to_thread(podman, engine, "rmi", "--force", name)


@pytest.fixture
async def host(engine: Engine, image: str, tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(engine, image, tmp_path)
    yield host
    for name in (host.name, *await engine.listed(host.label)):
        await engine.remove(name)
    assert await engine.listed(host.label) == []
