"""To stop the server by what is written, or said, in a box: it is read by a process that has all others to serve."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.files import inside
from rota.runtime.files.program import ProgramFiles
from rota.runtime.files.shell import ToolFiles
from rota.runtime.instance_log import last_lines
from rota.runtime.interface import Reach, Subject
from rota.runtime.runner.tasklog import LogReader, TaskLog
from rota.server.function_logs import SHOWN_BYTES_MAX, TURN_BYTES_MAX, Merged, Open, PastLog, _last
from rota.server.function_position import Progress
from rota.server.logs import READ_BYTES
from rota.trees.bounds import ANSWER_BYTES_MAX, ENTRIES_MAX
from rota.trees.failing import FileFailed
from tests.attacks.liar import Liar

MANY = 10**15
"""Lines, as many as can be asked for."""
SMALL_BYTES = 80 * 1024
SUBJECT = Subject("tenant", "box", "1")
ENTRY = b'{"type":"file","size":1,"mode":1,"modified":1.0,"name":"a"}'


# Logs.


def test_to_keep_the_server_busy_with_a_log_of_empty_lines() -> None:
    log = b"\n" * 10_000_000
    began = time.process_time()
    for lines in (MANY, len(log) - 1, 100):
        assert len(last_lines(log, lines)) == min(lines, len(log))
    # One after the other they take some seconds each time.
    assert time.process_time() - began < 1.0


def test_the_last_lines_are_the_same_as_when_they_are_looked_for_one_by_one() -> None:
    for text in (
        b"",
        b"\n",
        b"a",
        b"a\n",
        b"a\nb",
        b"a\nb\n",
        b"\n\na\n\n",
        b"long line\n" * 5000,
        b"x" * 40000 + b"\ny",
    ):
        lines = text.removesuffix(b"\n").split(b"\n") if text else []
        for count in (0, 1, 2, 3, 4999, 5000, MANY):
            kept = b"\n".join(lines[-count:] if count else [])
            assert last_lines(text, count).removesuffix(b"\n") == kept, (text[:20], count)


def test_to_fill_the_memory_of_the_server_with_what_it_puts_before_each_line(tmp_path: Path) -> None:
    logs = []
    for number in range(12):
        path = tmp_path / f"call-{number}.log"
        path.write_bytes(b"\n" * 1_000_000)
        logs.append(PastLog(float(number), f"call-{number:02}", "worker-of-a-long-name", partial(LogReader, path)))
    answer = _last(logs, MANY)
    assert len(answer) < SHOWN_BYTES_MAX + 1_000_000
    # The newest are there, and it is said that others are not.
    assert answer.endswith(b"call-11 worker-of-a-long-name \n")
    assert answer.startswith(b"- rota [rota: what was written before is not shown")


def test_to_fill_the_memory_of_the_server_with_one_line_of_each_call(tmp_path: Path) -> None:
    logs = []
    for number in range(40):
        path = tmp_path / f"call-{number}.log"
        path.write_bytes(b"x" * 1_000_000)
        logs.append(PastLog(float(number), f"call-{number:02}", "w", partial(LogReader, path)))
    assert len(_last(logs, MANY)) < SHOWN_BYTES_MAX + 2_000_000


class Endless:
    """A log that is written to faster than it is read."""

    def read(self, size: int) -> bytes:
        return b"\n" * size

    def position(self, behind: int = 0) -> int:
        return 0

    def close(self) -> None: ...


def test_to_fill_the_memory_of_the_server_with_many_logs_that_are_followed() -> None:
    merged = Merged.__new__(Merged)
    merged._open = {str(n): Open(str(n), f"call-{n} worker ", Endless(), lambda: True) for n in range(24)}
    merged._progress = Progress("epoch", lambda key: True)
    # All have their turn.
    seen: set[bytes] = set()
    for _ in range(24):
        said = merged._read()
        assert sum(map(len, said)) < TURN_BYTES_MAX + 32 * READ_BYTES
        seen |= {one.partition(b" ")[0] for one in said}
    assert len(seen) == 24


def test_the_lines_of_a_log_that_is_followed_come_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = TaskLog(path)
    one = Open("k", "c w ", LogReader(path), lambda: True)
    for written, said in ((b"a", b""), (b"b\n\nc", b"c w ab\nc w \n"), (b"", b""), (b"\n", b"c w c\n")):
        log.write(written)
        assert one.read() == said
    log.write(b"rest")
    assert (one.read(), one.end()) == (b"", b"c w rest\n")
    log.close()


# Files.


@pytest.mark.parametrize(
    "said",
    [
        b'{"truncated":false,"entries":[' + b",".join([ENTRY] * (ENTRIES_MAX + 1)) + b"]}\n",
        b"x" * (ANSWER_BYTES_MAX + 1),
        b"[" * 1_000_000 + b"\n",
        b'{"entries":{}}\n',
        b'{"entries":[],"truncated":"no"}\n',
    ],
    ids=["many", "long", "deep", "object", "type"],
)
async def test_to_answer_in_place_of_the_program_that_lists_files(said: bytes) -> None:
    files = ProgramFiles(Liar(said), SUBJECT, "main", Reach(sys.executable, "/", "/"))
    with pytest.raises(FileFailed):
        await files.list("/")


@pytest.mark.parametrize(
    "said", [b"x" * (1 << 20), b"//\n" * 10, b"f" * 500 + b" 1 1 a//\n"], ids=["long", "empty", "mode"]
)
async def test_to_answer_without_an_end_as_the_tools_of_an_image(said: bytes) -> None:
    with pytest.raises(FileFailed):
        await ToolFiles(Liar(said, is_endless=True), SUBJECT, "main").list("/")


async def test_as_much_as_can_be_said_of_a_folder_is_said_and_that_there_is_more(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "ANSWER_BYTES_MAX", SMALL_BYTES)
    for number in range(100):
        (tmp_path / (f"{number:04}" + "\u00e9" * 120)).symlink_to("\u00e9" * 20)
    assert inside.main([json.dumps({"op": "list", "root": "/", "start": "/", "path": str(tmp_path)})]) == 0
    said = capfd.readouterr().out.encode()
    assert len(said) <= SMALL_BYTES
    listing = await ProgramFiles(Liar(said), SUBJECT, "main", Reach(sys.executable, "/", "/")).list("/")
    assert listing.truncated and len(listing.entries) > 10
