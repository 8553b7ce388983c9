"""A server from a container image: real podman, and an image that holds Rota."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.runtime.container import Engine
from rota.server.background_image import CannotRun, chosen, name_of
from tests.amount import LONG
from tests.local.image import make_rota_image
from tests.local.place import Place
from tests.local.test_background import NOT_RUNNING, kill
from tests.runtime_container.conftest import found, make_image, podman

MISSING = "localhost/rota-test-no-such-image"
WITHOUT_ENGINE = """\
import sys
from rota.runtime.container import availability
availability.PATH = ""
from rota.cli import main
sys.exit(main())
"""
"""The command, on a host where programs are looked for on its path alone."""

TAKES_LONG = pytest.mark.skipif(not LONG, reason="a server in a container, again and again: `make long`")


@pytest.fixture(scope="module")
def engine() -> Engine:
    facts = found()
    if isinstance(facts, str):
        pytest.skip(facts)
    return Engine(facts)


@pytest.fixture(scope="module")
def image(engine: Engine) -> Iterator[str]:
    name = make_rota_image(engine)
    yield name
    podman(engine, "rmi", "--force", name)


def containers_of(engine: Engine, home: Path) -> list[str]:
    return podman(engine, "ps", "--all", f"--filter=name={name_of(home)}", "--format={{.Names}}").split()


# Which image is meant.


@pytest.mark.parametrize(
    ("flag", "variable", "file", "meant"),
    [
        ("a:1", "b:1", "c:1", "a:1"),
        (None, "b:1", "c:1", "b:1"),
        (None, "", "c:1", "c:1"),
        (None, "", "", ""),
        ("", "b:1", "c:1", ""),
    ],
)
def test_the_flag_goes_before_the_environment_before_the_project_before_native(
    tmp_path: Path, flag: str | None, variable: str, file: str, meant: str
) -> None:
    (tmp_path / ".env.local").write_text(f"OTHER=1\nROTA_IMAGE={file}\n")
    assert chosen(flag, {"ROTA_IMAGE": variable}, tmp_path).image == meant


@pytest.mark.parametrize(
    "line", ["ROTA_IMAGE=c:1", 'export ROTA_IMAGE="c:1"', "ROTA_IMAGE='c:1' # ours", "  ROTA_IMAGE = c:1"]
)
def test_the_file_of_a_project_is_read_as_a_shell_would(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env.local").write_text(f"# ROTA_IMAGE=no\n{line}\nMY_ROTA_IMAGE=no\n")
    assert chosen(None, {}, tmp_path).image == "c:1"


def test_a_file_that_cannot_be_read_names_itself(tmp_path: Path) -> None:
    (tmp_path / ".env.local").write_text('ROTA_IMAGE="c:1\n')
    with pytest.raises(CannotRun, match=r"\.env\.local: ROTA_IMAGE"):
        chosen(None, {}, tmp_path)


def test_a_file_that_is_there_and_cannot_be_opened_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".env.local").mkdir()
    with pytest.raises(CannotRun, match=r"\.env\.local, which may name an image, cannot be read: Is a directory"):
        chosen(None, {}, tmp_path)


def test_a_mark_of_an_editor_is_no_part_of_the_name(tmp_path: Path) -> None:
    (tmp_path / ".env.local").write_text("ROTA_IMAGE=c:1\r\n", encoding="utf-8-sig")
    assert chosen(None, {}, tmp_path).image == "c:1"


def test_a_file_in_another_encoding_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".env.local").write_text("ROTA_IMAGE=c:1\n", encoding="utf-16")
    with pytest.raises(CannotRun, match=r"cannot be read: it is not UTF-8"):
        chosen(None, {}, tmp_path)


def test_without_any_file_it_is_native(tmp_path: Path) -> None:
    assert chosen(None, {}, tmp_path).image == ""


# What cannot be had leaves everything as it was.


@pytest.mark.parametrize(
    "source", ["flag", pytest.param("environment", marks=TAKES_LONG), pytest.param("project", marks=TAKES_LONG)]
)
def test_a_missing_image_leaves_the_running_server_up(place: Place, engine: Engine, source: str) -> None:
    pid = place.start()
    if source == "project":
        (place.folder / ".env.local").write_text(f"ROTA_IMAGE={MISSING}\n")
    flag = ["--image", MISSING] if source == "flag" else []
    refused = place.rota("restart", *flag, ROTA_IMAGE=MISSING if source == "environment" else "")
    assert refused.returncode == 1 and refused.stdout == ""
    assert "no such image" in refused.stderr and "never pulled" in refused.stderr
    assert {"flag": "--image", "environment": "ROTA_IMAGE", "project": ".env.local"}[source] in refused.stderr
    assert place.pid() == pid and place.found().condition == "running"


def test_a_missing_engine_is_told_apart_and_leaves_the_running_server_up(place: Place) -> None:
    pid = place.start()
    empty = place.folder / "bin"
    empty.mkdir()
    program = (sys.executable, "-c", WITHOUT_ENGINE)
    refused = place.rota("restart", "--image", MISSING, program=program, PATH=str(empty))
    assert refused.returncode == 1 and refused.stdout == ""
    assert "no container engine" in refused.stderr and "no such image" not in refused.stderr
    assert place.pid() == pid and place.found().condition == "running"


@TAKES_LONG
def test_an_image_of_something_else_leaves_the_running_server_up(place: Place, engine: Engine) -> None:
    pid = place.start()
    other = make_image(engine)
    try:
        refused = place.rota("restart", "--image", other)
    finally:
        podman(engine, "rmi", "--force", other)
    assert refused.returncode == 1 and "does not run `rota`" in refused.stderr
    assert place.pid() == pid and place.found().condition == "running"


@TAKES_LONG
def test_a_first_start_with_a_missing_image_starts_nothing(place: Place, engine: Engine) -> None:
    assert place.rota("start", "--port", "0", "--image", MISSING).returncode == 1
    assert place.rota("status").returncode == NOT_RUNNING


def test_what_is_no_name_of_an_image_is_refused(place: Place) -> None:
    refused = place.rota("start", "--image=--privileged")
    assert refused.returncode == 1 and "not the name of an image" in refused.stderr


# What can be had.


def test_a_server_moves_into_a_container_and_out_again(place: Place, engine: Engine, image: str) -> None:
    place.start()
    place.workers(1)
    state = place.found().state
    assert state is not None
    said = place.says("restart", "--image", image)
    assert "the server before ran natively" in said and "could not be taken along" in said and state.url in said
    assert containers_of(engine, place.home) == [name_of(place.home)]

    status = place.says("status")
    assert f"from the image {image}" in status and "none within the container" in status
    assert "begins, process 1\n" in place.says("logs", "--server")
    seen = place.says("run", "--pool", "crew", "-f", "--", "sh", "-c", "cat /proc/1/cmdline")
    assert "/usr/bin/rota" in seen
    assert "it is running already, from the image" in place.says("start", "--image", image)

    pid = place.pid()
    assert f"it runs from the image {image}" in place.says("restart"), "a restart keeps it"
    assert place.pid() != pid and place.found().condition == "running"
    place.says("stop")
    assert f"it runs from the image {image}" in place.says("start"), "and so does a start"

    assert f"the server before ran from the image {image}" in place.says("restart", "--image=")
    assert "natively" in place.says("status")
    assert containers_of(engine, place.home) == []
    assert "host" in place.says("run", "--pool", "crew", "-f", "--", "sh", "-c", f"test -d {Path.cwd()} && echo host")


@TAKES_LONG
def test_what_a_native_server_left_is_ended_before_one_starts_in_a_container(place: Place, image: str) -> None:
    pid = place.start()
    place.pool(1)
    before = place.runs()
    kill(pid)
    said = place.says("start", "--port", "0", "--image", image)
    assert "1 instance could not be taken along" in said
    assert not any(Path(f"/proc/{one}").exists() for one in before.values())


@TAKES_LONG
def test_a_server_in_a_container_is_stopped_with_it(place: Place, engine: Engine, image: str) -> None:
    pid = place.start("--image", image)
    assert f"stopped the server (process {pid})" in place.says("stop")
    assert containers_of(engine, place.home) == []
    assert place.rota("status").returncode == NOT_RUNNING


@TAKES_LONG
def test_a_server_that_is_killed_in_its_container_is_told_and_started_again(
    place: Place, engine: Engine, image: str
) -> None:
    kill(place.start("--image", image))
    status = place.rota("status")
    assert status.returncode == NOT_RUNNING and f"from the image {image}" in status.stdout
    assert "begins, process 1" in status.stderr
    place.start("--image", image)
    assert len(containers_of(engine, place.home)) == 1


@TAKES_LONG
def test_a_server_in_a_container_that_does_not_come_up_is_told_and_leaves_nothing(
    place: Place, engine: Engine, image: str
) -> None:
    place.home.mkdir()
    (place.home / "rota.db").write_bytes(b"no database\n" * 1000)
    refused = place.rota("start", "--port", "0", "--image", image)
    assert refused.returncode == 1 and "rota.db" in refused.stderr and "the end of" in refused.stderr
    assert containers_of(engine, place.home) == []
