"""The promises of every archive: that of a home, and that of tests."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.archive import ITEM_BYTES_MAX, Archive, Item, TooLarge, log_of, result_of
from rota.runtime.home_archive import PUTS_AT_ONCE_MAX, HomeArchive
from rota.runtime.interface import Subject
from rota.runtime.paths import UnsafeName
from rota.runtime.places import Places
from rota.runtime.runner.tasklog import TaskLog
from rota.testing.archive import MemoryArchive
from tests.until import until_so

RESULT = result_of("default", "build", "u-1")
LOG = log_of("default", "build", "u-1")
HOSTILE = [
    *(("namespace", name) for name in ("", ".", "..")),
    *((field, name) for field in ("namespace", "name", "uid") for name in ("../up", "a/b", "/etc", "a\0b", "x" * 300)),
]
"""Dots alone are a part of a file's name where a task or a uid is called so, and lead nowhere."""


class Case:
    """An archive, and what is done to it from outside."""

    def __init__(self, archive: HomeArchive | MemoryArchive, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive: Archive = archive
        self._made = archive
        self._home = home
        self._monkeypatch = monkeypatch

    def write(self, item: Item, data: bytes) -> None:
        """As a runner writes a log."""
        if isinstance(self._made, MemoryArchive):
            self._made.items[item] = self._made.items.get(item, b"") + data
            return
        log = TaskLog(Path(self._made.place(item)))
        log.write(data)
        log.close()

    def fill(self) -> None:
        """From now on there is no space."""
        if isinstance(self._made, MemoryArchive):
            self._made.space_bytes = 0
            return

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._monkeypatch.setattr(os, "fsync", full)

    def files(self) -> list[Path]:
        return sorted(path for path in self._home.rglob("*") if path.is_file())


@pytest.fixture(params=["home", "memory"])
async def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    archive = HomeArchive(Places(tmp_path)) if request.param == "home" else MemoryArchive()
    yield Case(archive, tmp_path, monkeypatch)
    if isinstance(archive, HomeArchive):
        await archive.close()


async def test_what_is_put_is_got(case: Case) -> None:
    assert await case.archive.get(RESULT) is None
    await case.archive.put(RESULT, b"first")
    await case.archive.put(RESULT, b"second")
    assert await case.archive.get(RESULT) == b"second"


async def test_what_is_kept_is_its_owners_alone(case: Case) -> None:
    await case.archive.put(RESULT, b"mine")
    for other in (RESULT._replace(uid="u-2"), RESULT._replace(namespace="other"), RESULT._replace(name="build2"), LOG):
        assert await case.archive.get(other) is None


async def test_what_is_kept_of_an_owner_is_listed_and_removed(case: Case) -> None:
    await case.archive.put(RESULT, b"result")
    case.write(LOG, b"log")
    await case.archive.put(RESULT._replace(uid="u-2"), b"of a namesake")
    assert await case.archive.kept("default", "build", "u-1") == [LOG, RESULT]
    await case.archive.remove("default", "build", "u-1")
    await case.archive.remove("default", "build", "u-1")
    assert await case.archive.kept("default", "build", "u-1") == []
    assert await case.archive.get(RESULT._replace(uid="u-2")) == b"of a namesake"


async def test_what_is_left_of_a_task_that_is_gone_goes_soon(case: Case) -> None:
    await case.archive.put(RESULT, b"result")
    await case.archive.put(RESULT._replace(uid="u-2"), b"of a namesake")
    case.archive.drop("default", "build", lambda namespace, name: "u-2")
    await until_so(lambda: case.archive.get(RESULT), lambda found: found is None, "no result of the task")
    assert await case.archive.get(RESULT._replace(uid="u-2")) == b"of a namesake"


async def test_a_log_is_read_while_it_is_written_and_from_any_byte(case: Case) -> None:
    reader = case.archive.stream(LOG)
    assert reader.read(100) == b"" and case.archive.written_bytes(LOG) == 0
    case.write(LOG, b"one\n")
    assert reader.read(100) == b"one\n" and reader.position() == 4
    case.write(LOG, b"two\n")
    assert reader.read(2) == b"tw" and reader.position(behind=1) == 5
    reader.close()
    again = case.archive.stream(LOG, 4)
    assert again.read(100) == b"two\n" and case.archive.written_bytes(LOG) == 8
    again.close()


async def test_the_log_of_an_instance_that_wrote_nothing_is_empty(case: Case) -> None:
    subject = Subject("default", "box", "u-1")
    reader = case.archive.instance_log(subject, "main", 10)
    assert reader.read(100) == b"" and case.archive.instance_mark(subject, "main") is None
    reader.close()


@pytest.mark.parametrize(("field", "name"), HOSTILE)
async def test_a_name_that_would_lead_elsewhere_is_refused(case: Case, field: str, name: str) -> None:
    change: Any = {field: name}
    item = RESULT._replace(**change)
    with pytest.raises(UnsafeName):
        await case.archive.put(item, b"x")
    with pytest.raises(UnsafeName):
        await case.archive.get(item)
    with pytest.raises(UnsafeName):
        await case.archive.remove(*item[:3])
    with pytest.raises(UnsafeName):
        await case.archive.kept(*item[:3])
    for act in (case.archive.place, case.archive.stream, case.archive.written_bytes):
        with pytest.raises(UnsafeName):
            act(item)
    assert case.files() == []


async def test_an_item_has_a_bound(case: Case) -> None:
    await case.archive.put(RESULT, b"small")
    with pytest.raises(TooLarge, match="at most"):
        await case.archive.put(RESULT, bytes(ITEM_BYTES_MAX + 1))
    assert await case.archive.get(RESULT) == b"small"
    await case.archive.put(RESULT, bytes(ITEM_BYTES_MAX))
    assert len(await case.archive.get(RESULT) or b"") == ITEM_BYTES_MAX


async def test_a_full_disk_is_an_error_and_leaves_what_was_there(case: Case) -> None:
    await case.archive.put(RESULT, b"before")
    before = case.files()
    case.fill()
    with pytest.raises(OSError, match=r"[Nn]o space"):
        await case.archive.put(RESULT, b"after")
    assert await case.archive.get(RESULT) == b"before" and case.files() == before


# Of a home.


async def test_a_home_syncs_what_is_put_before_it_says_so_and_not_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    under_way, most, lock, fsync = 0, 0, threading.Lock(), os.fsync

    def counted(descriptor: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        fsync(descriptor)
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), threading.get_ident()))
        with lock:
            under_way -= 1

    monkeypatch.setattr(os, "fsync", counted)
    archive = HomeArchive(Places(tmp_path))
    items = [RESULT._replace(uid=f"u-{number}") for number in range(40)]
    await asyncio.gather(*(archive.put(item, b"x") for item in items))
    folder = str(tmp_path / "tasks" / "default")
    assert {path for path, _ in synced} >= {folder, str(tmp_path / "tasks")}
    assert len([path for path, _ in synced if path.startswith(f"{folder}/")]) == len(items)
    assert threading.get_ident() not in {thread for _, thread in synced} and most <= PUTS_AT_ONCE_MAX
    assert len([*(tmp_path / "tasks" / "default").iterdir()]) == len(items), "nothing half is left"
    await archive.close()


async def test_a_home_follows_no_link_that_is_in_the_place_of_a_result(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    archive = HomeArchive(Places(tmp_path))
    place = Path(archive.place(RESULT))
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    with pytest.raises(OSError):
        await archive.get(RESULT)
    await archive.put(RESULT, b"own")
    assert await archive.get(RESULT) == b"own" and secret.read_text() == "secret"
    await archive.close()
