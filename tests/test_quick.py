"""`make quick` runs what its list names, and nothing of that starts a process or opens a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.quick import NEEDS_MORE, QUICK, TAKES_LONG, NotInMemoryError, in_memory, is_quick

ROOT = Path(__file__).parent.parent


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of this machine at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("path", [*QUICK, *NEEDS_MORE, *TAKES_LONG])
def test_what_the_list_names_is_there(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


@pytest.mark.parametrize("path", [*NEEDS_MORE, *TAKES_LONG])
def test_what_is_left_out_would_be_quick_otherwise(path: str) -> None:
    assert path.startswith(QUICK) and not is_quick(path)


def test_make_quick_runs_what_is_marked() -> None:
    rule = (ROOT / "Makefile").read_text().partition("\nquick: setup\n")[2].partition("\n\n")[0]
    assert "-m pytest -m quick " in rule
    assert "make quick" in (ROOT / "CONTRIBUTING.md").read_text()


def test_only_quick_tests_are_marked(request: pytest.FixtureRequest) -> None:
    marked = {one.nodeid for one in request.session.items if one.get_closest_marker("quick") is not None}
    assert marked == {one.nodeid for one in request.session.items if is_quick(one.nodeid)}


def _connect(port: int) -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", port))


def _bind(_: int) -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))


async def _start(*_: object) -> None:
    await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()


WAYS: dict[str, Callable[[int], object]] = {
    "subprocess.run": lambda _: subprocess.run([sys.executable, "-c", ""], check=True),
    "asyncio.create_subprocess_exec": lambda _: asyncio.run(_start()),
    "os.system": lambda _: os.system("true"),
    "a connection": _connect,
    "a server": _bind,
    "a name": lambda _: socket.getaddrinfo("localhost", 80),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_quick_test_that_starts_a_process_or_opens_a_connection_fails(way: str, listening: int) -> None:
    with pytest.raises(NotInMemoryError, match="a quick test does no such thing"), in_memory():
        WAYS[way](listening)
    WAYS[way](listening)  # It is refused while a quick test runs, and at no other time.


def test_a_refusal_that_the_code_under_test_catches_fails_the_test_too() -> None:
    expected = r"subprocess\.Popen: this test belongs in NEEDS_MORE"
    with pytest.raises(NotInMemoryError, match=expected), in_memory(), suppress(Exception):
        subprocess.run([sys.executable, "-c", ""], check=True)


def test_event_loops_and_files_are_allowed(tmp_path: Path) -> None:
    with in_memory():
        asyncio.run(asyncio.sleep(0))
        (tmp_path / "a").write_text("b")
