"""Images: there, pulled, or not to be had."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.runtime.container import Engine, images
from rota.runtime.container.images import qualified
from rota.runtime.interface import Refused
from tests.runtime_container.conftest import podman
from tests.runtime_container.registry import Registry
from tests.until import until_async

WANTING = 5


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with Registry().serving() as registry:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
        yield registry


async def test_an_image_that_is_there_is_fine(engine: Engine, image: str) -> None:
    await engine.ensure_image(image)
    await engine.ensure_image(image.removeprefix("localhost/"))


async def test_one_that_is_local_by_its_name_is_never_pulled(engine: Engine, registry: Registry) -> None:
    with pytest.raises(Refused, match="never pulled: make it with `podman build`") as refused:
        await engine.ensure_image("localhost/nosuch")
    assert refused.value.reason == "ImageUnavailable" and registry.asked == []


async def test_without_a_network_for_it_none_is_pulled(engine: Engine, registry: Registry, image: str) -> None:
    await engine.ensure_image(image, pulls=False)
    with pytest.raises(Refused, match="not started with --network host; an admin can fetch it") as refused:
        await engine.ensure_image(f"{registry.address}/some/image:nosuch", pulls=False)
    assert refused.value.reason == "ImageUnavailable" and registry.asked == []


async def test_one_that_cannot_be_pulled_is_told_in_the_engines_own_words(engine: Engine, registry: Registry) -> None:
    with pytest.raises(Refused) as refused:
        await engine.ensure_image(f"{registry.address}/some/image:nosuch")
    assert refused.value.reason == "ImageUnavailable"
    message = str(refused.value)
    assert message.startswith(
        f"the image {registry.address}/some/image:nosuch is not on this host and cannot be pulled"
    )
    assert "reading manifest nosuch" in message


async def test_without_a_way_to_the_registry_that_is_what_it_says(engine: Engine) -> None:
    with pytest.raises(Refused, match=r"nosuch\.invalid") as refused:
        await engine.ensure_image("nosuch.invalid/image")
    assert refused.value.reason == "ImageUnavailable"


async def test_many_that_want_an_image_wait_for_one_pull(engine: Engine, registry: Registry) -> None:
    name = f"{registry.address}/some/image"
    try:
        await asyncio.gather(*(engine.ensure_image(name) for _ in range(WANTING)))
        assert len([path for path in registry.asked if "/manifests/" in path]) == 1
        await engine.ensure_image(name)
        assert len([path for path in registry.asked if "/manifests/" in path]) == 1
    finally:
        await asyncio.to_thread(podman, engine, "rmi", "--force", name)


async def test_who_gives_up_does_not_end_the_pull_for_the_others(engine: Engine, registry: Registry) -> None:
    name = f"{registry.address}/some/image"
    registry.may_answer.clear()
    try:
        first, second = (asyncio.create_task(engine.ensure_image(name)) for _ in range(2))
        await until_async(lambda: registry.asked, "the registry was not asked")
        first.cancel()
        registry.may_answer.set()
        await second
        assert first.cancelled()
    finally:
        await asyncio.to_thread(podman, engine, "rmi", "--force", name)


async def test_a_pull_that_takes_too_long_is_ended(
    engine: Engine, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "PULL_SECONDS_MAX", 0.5)
    registry.may_answer.clear()
    with pytest.raises(Refused, match=r"it took longer than 0\.5 s") as refused:
        await engine.ensure_image(f"{registry.address}/some/image")
    assert refused.value.reason == "ImageUnavailable"


@pytest.mark.parametrize("name", ["--all-tags", "", "with space", "line\nbreak"])
async def test_what_is_no_name_is_refused(engine: Engine, name: str) -> None:
    with pytest.raises(Refused, match="is not the name of an image") as refused:
        await engine.ensure_image(name)
    assert refused.value.reason == "ConfigurationError"


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("alpine", "docker.io/library/alpine"),
        ("alpine:3.20", "docker.io/library/alpine:3.20"),
        ("some/image", "docker.io/some/image"),
        ("quay.io/some/image", "quay.io/some/image"),
        ("host:5000/image", "host:5000/image"),
        ("localhost/image", "localhost/image"),
    ],
)
def test_a_name_without_a_registry_is_the_hubs_as_on_a_cluster(name: str, whole: str) -> None:
    assert qualified(name) == whole
