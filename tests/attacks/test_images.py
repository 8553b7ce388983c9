"""To keep others' containers from starting, by images that take for ever to be had."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime import containers
from rota.runtime.container import Engine, Facts
from rota.runtime.container.availability import EngineAvailability
from rota.runtime.container.images import PULLS_MAX
from rota.runtime.containers import Containers
from rota.runtime.interface import Order, Refused, Subject
from rota.runtime.places import Places
from tests.until import until_so

SECONDS_MAX = 20.0
# It has what was pulled; what comes from a slow registry is never had.
PODMAN = """#!/bin/sh
for last; do :; done
case "$*" in
  *"image exists"*) [ -e "$0.d/$(basename "$last")" ] ;;
  *pull*slow*) exec sleep 60 ;;
  *pull*) echo "$last" >> "$0.pulls"; touch "$0.d/$(basename "$last")" ;;
esac
"""


class Host:
    """A home whose engine only pulls."""

    def __init__(self, home: Path, program: Path) -> None:
        self.program = program
        self.containers = Containers(Places(home))
        self.told = asyncio.Event()

    async def order(self, namespace: str, image: str) -> str:
        """Ask for a container once; return why it is not there."""
        subject = Subject(namespace, "box-0", uuid.uuid4().hex)
        order = Order(subject, "main", 1, ("true",), {}, runtime="container", image=image)
        try:
            await self.containers.command(order, self.told.set)
        except Refused as refused:
            return refused.reason
        return ""

    async def starts(self, namespace: str, image: str) -> None:
        """Ask for a container until it can be started."""
        async with asyncio.timeout(SECONDS_MAX):
            while await self.order(namespace, image):
                await self.told.wait()
                self.told.clear()


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    program = tmp_path / "podman"
    program.write_text(PODMAN)
    program.chmod(0o755)
    program.with_name("podman.d").mkdir()
    engine = Engine(Facts("podman", str(program), "0"))

    async def available(home: Path) -> EngineAvailability:
        return EngineAvailability(engine, "")

    monkeypatch.setattr(containers, "available", available)
    monkeypatch.setattr(containers, "FETCH_NOTICE_SECONDS", 0.1)
    home = tmp_path / "home"
    home.mkdir()
    host = Host(home, program)
    yield host
    await host.containers.close()
    pulls = [task for task in asyncio.all_tasks() if task.get_name().startswith("pull ")]
    for pull in pulls:
        pull.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)


async def test_images_that_never_come_do_not_keep_others_from_theirs(host: Host) -> None:
    for number in range(2 * PULLS_MAX):
        assert await host.order("tenant", f"slow.example/image-{number}") == "Provisioning"
    await host.starts("other", "registry.example/image")


async def test_an_image_behind_those_that_never_come_is_had_by_whoever_else_wants_it(host: Host) -> None:
    for number in range(2 * PULLS_MAX):
        await host.order("tenant", f"slow.example/image-{number}")
    assert await host.order("tenant", "registry.example/image") == "Provisioning"
    await host.starts("other", "registry.example/image")


async def test_an_image_that_several_want_is_pulled_once(host: Host) -> None:
    await asyncio.gather(*(host.starts(f"tenant-{number}", "registry.example/image") for number in range(4)))
    assert host.program.with_name("podman.pulls").read_text().splitlines() == ["registry.example/image"]


async def test_fetches_that_nobody_asks_about_again_are_forgotten(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "FETCH_KEPT_SECONDS", 0.1)
    monkeypatch.setattr(containers, "FETCH_NOTICE_SECONDS", 0.0)
    for number in range(5):
        assert await host.order("tenant", f"registry.example/image-{number}") == "Provisioning"
    await until_so(lambda: host.containers._fetches, lambda fetches: not fetches, "no fetches")
