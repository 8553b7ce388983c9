"""Positions in the log of a container, whose files are put aside when they are full."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.registry import ApiError
from rota.runtime.instance_log import MISSING, InstanceLog, place_in


class Log:
    """A log as its keeper writes it, with at most three files."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "main.log"

    def write(self, text: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text)

    def put_aside(self) -> None:
        for older, newer in ((2, 1), (1, 0)):
            path = Path(f"{self.path}.{newer}") if newer else self.path
            if path.exists():
                path.replace(f"{self.path}.{older}")
        self.path.touch()

    def read(self, begin: str = "", *, lines: int = 100, since: tuple[int, int] = (0, 0)) -> tuple[bytes, str]:
        """All there is from a position on, and the position after it."""
        reader = InstanceLog(self.path, lines, since, place_in(begin))
        text = b""
        while piece := reader.read(5):
            text += piece
        position = reader.position()
        reader.close()
        return text, position


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_it_goes_on_where_it_was(log: Log) -> None:
    log.write(b"one\n")
    text, position = log.read()
    log.write(b"two\n")
    assert (text, log.read(position)[0]) == (b"one\n", b"two\n")


def test_it_goes_on_through_all_files_that_were_put_aside(log: Log) -> None:
    log.write(b"one\n")
    _, position = log.read()
    for text in (b"two\n", b"three\n"):
        log.write(text)
        log.put_aside()
    log.write(b"four\n")
    text, position = log.read(position)
    assert text == b"two\nthree\nfour\n"
    assert log.read(position)[0] == b""


def test_who_reads_while_files_are_put_aside_misses_none(log: Log) -> None:
    reader = InstanceLog(log.path, 100)
    log.write(b"one\n")
    assert reader.read(100) == b"one\n"
    for text in (b"two\n", b"three\n"):
        log.write(text)
        log.put_aside()
    log.write(b"four\n")
    assert [reader.read(100) for _ in range(4)] == [b"two\n", b"three\n", b"four\n", b""]
    reader.close()


def test_what_is_not_kept_is_told(log: Log) -> None:
    log.write(b"one\n")
    _, position = log.read()
    for text in (b"two\n", b"three\n", b"four\n"):
        log.put_aside()
        log.write(text)
    assert log.read(position)[0] == MISSING + b"two\nthree\nfour\n"


def test_another_file_with_the_same_number_is_not_taken_for_it(log: Log) -> None:
    """As the number of a file is given to another one when it is gone."""
    log.write(b"one line\nand another\n")
    _, position = log.read()
    log.path.write_bytes(b"completely different, and longer than the first\n")
    assert log.read(position)[0] == MISSING + log.path.read_bytes()


def test_a_position_before_there_is_a_log_is_its_beginning(log: Log) -> None:
    text, position = log.read(lines=0)
    log.write(b"one\n")
    log.put_aside()
    log.write(b"two\n")
    assert (text, log.read(position)[0]) == (b"", b"one\ntwo\n")


def test_of_the_last_lines_those_that_were_not_received_come(log: Log) -> None:
    log.write(b"one\ntwo\nthree\n")
    reader = InstanceLog(log.path, 2)
    assert reader.read(4) == b"two\n"
    position = reader.position()
    reader.close()
    assert log.read(position)[0] == b"three\n"


def test_no_position_leads_before_the_hold_of_who_asks(log: Log) -> None:
    log.write(b"secret of another\n")
    _, beginning = log.read(lines=0)
    first = f"{beginning.split('-')[0]}-0-00000000"
    log.put_aside()
    log.write(b"still another's\n")
    since = (log.path.stat().st_ino, log.path.stat().st_size)
    log.write(b"mine\n")
    for begin in (first, "0-0-00000000", f"{since[0]}-0-00000000", ""):
        assert log.read(begin, since=since)[0].removeprefix(MISSING) == b"mine\n", begin
    log.put_aside()
    log.write(b"mine too\n")
    for begin in (first, "0-0-00000000", f"{since[0]}-0-00000000"):
        assert log.read(begin, since=since)[0].removeprefix(MISSING) == b"mine\nmine too\n", begin


@pytest.mark.parametrize("text", ["1", "a-b-c", "1-2-3", "1-2-0000000g", "-1-2-00000000", f"{'9' * 30}-0-00000000"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="from: "):
        place_in(text)
