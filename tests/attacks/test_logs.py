"""To learn what was written in a log before it was one's own."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from rota.runtime.instance_log import InstanceLog, Place, place_in

EARLIER, OWN = b"password: 1234\n", b"hello\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "main.log"
    made.write_bytes(EARLIER + OWN)
    return made


def read(path: Path, begin: Place | None) -> tuple[bytes, str]:
    """All that somebody gets who has it since their own, from a place on; and where they go on."""
    log = InstanceLog(path, 100, (path.stat().st_ino, len(EARLIER)), begin)
    try:
        return b"".join(iter(lambda: log.read(1024), b"")), log.position()
    finally:
        log.close()


def test_to_find_out_what_others_wrote_by_checksums_of_guesses(path: Path) -> None:
    number = path.stat().st_ino
    for offset in range(len(EARLIER)):
        answers = {read(path, Place(number, offset, crc32(guess[:offset]))) for guess in (EARLIER, b"x" * 64)}
        assert len(answers) == 1 and answers.pop()[0] == OWN


def test_to_be_told_the_checksum_of_what_others_wrote(path: Path) -> None:
    text, position = read(path, None)
    place = place_in(position)
    assert text == OWN and place is not None and place.mark == crc32(OWN)
    path.write_bytes(EARLIER)
    _, position = read(path, None)
    place = place_in(position)
    assert place is not None and place.mark == crc32(b"")


def test_who_was_cut_off_goes_on_where_they_were(path: Path) -> None:
    _, position = read(path, None)
    with path.open("ab") as file:
        file.write(b"more\n")
    assert read(path, place_in(position))[0] == b"more\n"
