"""The engine of a host: found by trying, remembered, and reported with what it lacks."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from rota.runtime.container import Engine, availability, available
from rota.runtime.container.availability import MISSING, REMEMBERED, forget
from rota.runtime.container.client import environment
from tests.runtime_container.conftest import podman

pytestmark = pytest.mark.usefixtures("asked_anew")


@pytest.fixture
def only(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has all programs there are, from now on."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setattr(availability, "PATH", str(folder))
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.usefixtures("only")
async def test_without_any_it_says_what_to_install() -> None:
    assert await available() == (None, MISSING)


async def test_what_cannot_run_is_told_in_its_own_words(only: Path) -> None:
    write_program(only / "podman", "echo 'Error: cannot clone: Operation not permitted' >&2; exit 125")
    found = await available()
    assert found.engine is None
    assert found.why_not == "podman cannot run a container: Error: cannot clone: Operation not permitted"


async def test_an_engine_that_is_installed_meanwhile_is_found(only: Path, engine: Engine) -> None:
    assert (await available()).engine is None
    (only / "podman").symlink_to(engine.facts.program)
    found = await available()
    assert found.engine is not None and found.engine.facts.version == engine.facts.version


async def test_it_is_found_out_once(engine: Engine) -> None:
    assert (await available()).engine is (await available()).engine


async def test_what_was_found_is_remembered_in_the_home(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await available(tmp_path)).engine
    assert first is not None and first.facts == engine.facts
    forget()
    monkeypatch.setattr(availability, "ENGINES", ())
    second = (await available(tmp_path)).engine
    assert second is not None and second is not first and second.facts == first.facts


async def test_what_is_remembered_counts_only_for_the_programs_it_was_found_with(
    engine: Engine, only: Path, tmp_path: Path
) -> None:
    (only / "podman").symlink_to(engine.facts.program)
    assert (await available(tmp_path)).engine is not None
    (only / "podman").unlink()
    write_program(only / "podman", "echo broken >&2; exit 1")
    assert (await available(tmp_path)).why_not == "podman cannot run a container: broken"


async def test_a_damaged_memory_is_as_good_as_none(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / REMEMBERED).write_text("{")
    found = await available(tmp_path)
    assert found.engine is not None and found.engine.facts == engine.facts


async def test_without_a_home_nothing_is_written(engine: Engine, tmp_path: Path) -> None:
    await available()
    assert list(tmp_path.iterdir()) == []


async def test_a_default_oci_runtime_that_does_not_work_is_passed_over(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    write_program(broken, 'echo \'{"level":"error","msg":"it is broken"}\' >&2; exit 1')
    settings = tmp_path / "containers.conf"
    settings.write_text(f'[engine]\nruntime = "broken"\n[engine.runtimes]\nbroken = ["{broken}"]\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    found = (await available()).engine
    assert found is not None, (await available()).why_not
    chosen = [option for option in found.facts.options if option.startswith("--runtime=")]
    assert chosen and found.facts.oci_runtime in chosen[0]


async def test_trials_leave_nothing_behind(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tried = []

    def number() -> uuid.UUID:
        tried.append(made := uuid.UUID(bytes=os.urandom(16)))
        return made

    # Other tests try engines, too, at the same time.
    monkeypatch.setattr("rota.runtime.container.trial.uuid.uuid4", number)
    # Without XDG_RUNTIME_DIR, an ordinary user's podman has its folders here.
    own = sorted(tmp_path.iterdir())
    assert (await available()).engine is not None
    assert sorted(tmp_path.iterdir()) == own
    there = podman(engine, "ps", "--all", "--format={{.Names}}")
    assert tried and not [each for each in tried if each.hex in there]


def test_what_an_engine_is_told_of_rotas_environment_is_where_its_things_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    monkeypatch.setenv("ROTA_SECRET", "x")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    assert environment()["XDG_RUNTIME_DIR"] == "/run/user/1"
    assert not {"ROTA_SECRET", "HTTPS_PROXY"} & environment().keys()
    assert environment("HTTPS_PROXY")["HTTPS_PROXY"] == "http://proxy.example"


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)
