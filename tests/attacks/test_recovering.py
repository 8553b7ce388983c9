"""By what is left in the home: records that were damaged, or written so that the next server would not start."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.keeper.client import Keeper
from rota.runtime.keeper.protocol import hash_of
from rota.runtime.keeper.records import SET_ASIDE
from rota.runtime.local import LocalRuntime
from rota.runtime.runner.journal import Journal
from rota.server import main

SECONDS_MAX = 30
OPENS = "from rota.runtime.runner.journal import Journal; Journal(Path(sys.argv[1])).close()"
KEY = "tenant/box/uid/q"


def stored(home: Path, key: str = KEY, name: str = "", **changes: Any) -> Path:
    """Write a record of something that has ended."""
    records = home / "keeper" / "records"
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    record: dict[str, Any] = {"key": key, "run": "0", "pid": 2**22 + 1, "pid_start": 1, "state": "exited"}
    record |= {"started": 1.0, "tree": "sweep", "owner": "", "uid": None, "gid": None, "limits_unmet": []}
    record |= {"log": {"path_prefix": str(home / "log"), "bytes_max": 1, "files_max": 1}}
    record |= {"exit": {"time": 1.0, "code": 0, "signal": None, "oom": False}}
    path = records / f"{name or hash_of(key)}.json"
    path.write_text(json.dumps(record | changes))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


async def recovered(home: Path) -> LocalRuntime:
    """A runtime that found what is in the home, and has left again."""
    keeper = Keeper.connect(home, ["--die-with", str(os.getpid())])
    runtime = LocalRuntime(home, keeper=keeper)
    async with asyncio.timeout(SECONDS_MAX):
        async with runtime:
            assert await runtime.answers(SECONDS_MAX)
        await runtime.shutdown()
    return runtime


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": "1"},
        {"pid": -1, "state": "running", "exit": None},
        {"run": None},
        {"state": "sleeping"},
        {"started": "then"},
        {"log": {"path_prefix": 5}},
        {"exit": {"time": {}}},
        {"exit": None},
        {"limits_unmet": [1]},
        {"closed": "yes"},
        {"started": 10**400},
        {"key": "another/key/than/its"},
        {"run": "\0"},
    ],
    ids=str,
)
async def test_to_keep_the_next_server_from_starting_by_a_damaged_record(
    home: Path, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(home, name=hash_of(KEY), **changes)
    runtime = await recovered(home)
    assert not path.exists()
    [aside] = (home / "keeper" / SET_ASIDE).iterdir()
    assert aside.name.endswith(path.name)
    assert str(aside) in caplog.text
    assert runtime.known("tenant", "box") == []


async def test_to_keep_it_from_starting_by_what_is_no_file(home: Path) -> None:
    records = stored(home).parent
    (records / "loop.json").symlink_to(records / "loop.json")
    (records / "passwords.json").symlink_to("/etc/passwd")
    (records / "folder.json").mkdir()
    (records / "folder.part").mkdir()
    os.mkfifo(records / "pipe.json")
    (records / "deep.json").write_text("[" * 200_000)
    (records / "bytes.json").write_bytes(b"\xff\0")
    (home / "keeper" / "cgroup").write_bytes(b"/sys/\0\xff")
    runtime = await recovered(home)
    assert len(list((home / "keeper" / SET_ASIDE).iterdir())) == 7
    assert [one.name for one in runtime.known("tenant", "box")] == ["box"]


@pytest.mark.parametrize(
    "key", ["tenant/box/uid/q/../../../../../victim", "tenant/box/uid/..", "tenant//uid/q", "one", "../b/c/d"]
)
async def test_to_have_the_next_server_follow_a_hostile_name(
    home: Path, tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("kept")
    stored(home, key)
    runtime = await recovered(home)
    assert "belongs to no instance" in caplog.text
    assert repr(key) in caplog.text
    assert not runtime.runs(("", "", ""))  # type: ignore[arg-type]
    assert list((home / "keeper" / "records").iterdir()) == []
    assert (victim / "file").read_text() == "kept"


async def test_to_read_a_file_of_the_host_as_the_end_of_a_log(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.log").write_text("a password")
    stored(home, log={"path_prefix": str(tmp_path / "secret"), "bytes_max": 1, "files_max": 1})
    runtime = await recovered(home)
    [subject] = runtime.known("tenant", "box")
    ended = runtime.runs(subject)["q"].exit
    assert ended is not None
    assert ended.lines == ""


async def test_to_make_a_server_deaf_to_being_stopped_while_it_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that takes connections and never says anything."""
    monkeypatch.setattr(main, "COME_UP_SECONDS_MAX", 0.2)
    monkeypatch.setattr(main, "ANSWER_SECONDS_MAX", 0.2)
    (home / "keeper").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(home / "keeper" / "keeper.sock"))
        mute.listen()
        was_ready = False

        def ready(_: main.Ready) -> None:
            nonlocal was_ready
            was_ready = True

        serving = asyncio.create_task(main.run(home, port=0, on_ready=ready))
        async with asyncio.timeout(SECONDS_MAX):
            # It has come as far as to wait for an answer.
            accepted, _ = await asyncio.to_thread(mute.accept)
            with accepted:
                os.kill(os.getpid(), signal.SIGTERM)
                await serving
        assert not was_ready


@pytest.mark.parametrize("name", ["log", "log.new"])
def test_to_have_a_runner_wait_for_ever_by_a_pipe_in_the_place_of_its_journal(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    opening = f"import sys; from pathlib import Path; {OPENS}"
    subprocess.run([sys.executable, "-c", opening, str(tmp_path)], check=True, timeout=SECONDS_MAX)
    assert (tmp_path / "log").is_file() and not (tmp_path / "log.new").exists()


@pytest.mark.parametrize("name", ["log", "log.new"])
def test_to_have_a_runner_read_or_write_another_file_by_a_link(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (folder := tmp_path / "journal").mkdir()
    (folder / name).symlink_to(other)
    with contextlib.suppress(OSError):
        Journal(folder).close()
    assert other.read_text() == "kept"
