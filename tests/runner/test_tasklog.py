"""The log of a task: all of it, or its beginning and its end; and whoever reads along sees everything once."""

from __future__ import annotations

import errno
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.runtime.runner import tasklog as module
from rota.runtime.runner.tasklog import LogReader, TaskLog

HEAD, TAIL, MAX = 1000, 800, 2500


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_BYTES", HEAD)
    monkeypatch.setattr(module, "TAIL_BYTES", TAIL)
    monkeypatch.setattr(module, "LOG_BYTES_MAX", MAX)
    monkeypatch.setattr(module, "COPY_BYTES", 300)


def lines(count: int, since: int = 0) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(since, since + count))


def all_of(reader: LogReader, size: int = 64) -> bytes:
    return b"".join(iter(lambda: reader.read(size), b""))


def test_a_log_within_its_bound_is_what_was_written(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "folder" / "log")
    log.write(b"one\n")
    log.write(b"\x00\xff two")
    assert (tmp_path / "folder" / "log").read_bytes() == b"one\n\x00\xff two"
    log.close()


def test_a_long_one_has_its_beginning_its_end_and_how_much_is_missing(tmp_path: Path) -> None:
    written = lines(1000)
    log = TaskLog(tmp_path / "log")
    log.write(written)
    log.close()
    kept = (tmp_path / "log").read_bytes()
    assert len(kept) <= MAX and kept.startswith(written[:HEAD])
    found = re.search(rb"\n\[rota: (\d+) bytes are missing here\]\n", kept)
    assert found is not None and found.start() == HEAD
    tail = kept[found.end() :]
    assert tail.startswith(b"line ") and written.endswith(tail) and len(tail) > TAIL - 20
    assert HEAD + int(found[1]) + len(tail) == len(written)


def test_it_never_has_more_than_its_bound(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "log")
    for number in range(500):
        log.write(lines(number % 37, number))
        assert (tmp_path / "log").stat().st_size <= MAX
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_one_line_without_end_is_cut_like_any_other(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "log")
    for _ in range(20):
        log.write(b"x" * 1000)
    log.close()
    assert MAX >= (tmp_path / "log").stat().st_size > HEAD + TAIL


def test_a_later_attempt_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    written = lines(1000)
    for begin in range(0, len(written), 3000):
        log = TaskLog(tmp_path / "log")
        log.write(written[begin : begin + 3000])
        log.close()
    found = re.search(rb"\[rota: (\d+) bytes are missing here\]\n", (tmp_path / "log").read_bytes())
    assert found is not None
    tail = (tmp_path / "log").read_bytes()[found.end() :]
    assert written.endswith(tail) and HEAD + int(found[1]) + len(tail) == len(written)


def test_who_reads_along_sees_everything_once_however_often_it_is_cut(tmp_path: Path) -> None:
    reader, seen = LogReader(tmp_path / "log"), b""
    log = TaskLog(tmp_path / "log")
    for number in range(0, 2000, 7):
        log.write(lines(7, number))
        seen += all_of(reader)
    assert seen == lines(2002)
    log.close()
    reader.close()


@given(steps=some.lists(some.tuples(some.integers(0, 60), some.booleans()), max_size=60))
def test_who_falls_behind_sees_what_there_is_and_where_something_is_missing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    reader, seen = LogReader(path), b""
    log, count = TaskLog(path), 0
    for more, is_read in [*steps, (1, True)]:
        log.write(lines(more, count))
        count += more
        if is_read:
            seen += all_of(reader)
    log.close()
    reader.close()
    numbers = [int(number) for number in re.findall(rb"line (\d{6})\n", seen)]
    assert numbers == sorted(set(numbers)) and numbers[-1:] == [count - 1]
    gaps = sum(1 for one, other in pairwise(numbers) if other != one + 1)
    assert gaps <= seen.count(b"bytes are missing here")


def test_a_reader_can_begin_anywhere_in_what_was_written(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "log")
    log.write(lines(1000))
    log.close()
    whole = lines(1000)
    for at in (len(whole) - 36, len(whole), 0, HEAD):
        reader = LogReader(tmp_path / "log", at)
        seen = all_of(reader)
        reader.close()
        if at > HEAD:
            assert seen == whole[at:]
        else:
            assert seen == (tmp_path / "log").read_bytes()[at:]


def test_a_log_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "log")
    assert reader.read(10) == b""
    log = TaskLog(tmp_path / "log")
    log.write(b"now")
    assert reader.read(10) == b"now"
    log.close()
    reader.close()


def test_it_never_writes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        TaskLog(tmp_path / "log")
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_not_the_tasks_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = TaskLog(tmp_path / "log")

    def write(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "write", write)
    log.write(b"one")
    log.write(b"two")
    monkeypatch.undo()
    log.write(b"three")
    log.close()
    missing = b"\n[rota: 6 bytes were not stored here: the disk was short of space]\n"
    assert (tmp_path / "log").read_bytes() == missing + b"three"
    assert [record.message for record in caplog.records] == [f"{tmp_path}/log: 3 bytes are not stored: no space"]
