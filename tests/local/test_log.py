"""The log of a server: bounded, and followed across its renewal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rota.server.background_log import aside_of, end_of, following, opened

WRITER = """\
import os, sys
from pathlib import Path
from rota.server import background_log

background_log.LOG_BYTES_MAX, background_log.LOOK_SECONDS = 1000, 0.01
log = Path(sys.argv[1])
background_log.write_to(log)
print("x" * 2000, flush=True)
first = os.fstat(1).st_ino
while any(os.fstat(n).st_ino == first for n in (1, 2)):
    pass
print("the last words", flush=True)
raise SystemExit("and an error")
"""


def test_a_process_that_writes_too_much_begins_its_log_anew(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(log)], capture_output=True, timeout=60, check=False, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert aside_of(log).read_text().startswith("x" * 2000)
    assert log.read_text() == "the last words\nand an error\n"


def test_a_log_is_for_its_user_alone(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    opened(log).close()
    assert log.stat().st_mode & 0o077 == 0


def test_what_is_written_before_and_after_a_renewal_is_seen_once(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"before\n")
    pieces = following(log)
    assert next(pieces) == b""
    with log.open("ab") as file:
        file.write(b"one\n")
    assert next(pieces) == b"one\n"
    assert next(pieces) == b""
    with log.open("ab") as file:
        file.write(b"two\n")
    log.replace(aside_of(log))
    log.write_bytes(b"three\n")
    assert b"".join(next(pieces) for _ in range(4)) == b"two\nthree\n"
    pieces.close()


def test_a_log_that_is_not_there_yet_is_followed_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    pieces = following(log)
    assert next(pieces) == b""
    log.write_bytes(b"one\n")
    assert next(pieces) == b"one\n"
    pieces.close()


def test_the_end_of_a_log_begins_where_it_is_said(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"one\ntwo\nthree\n")
    assert end_of(log, 2) == [b"two", b"three"]
    assert end_of(log, since=4) == [b"two", b"three"]
    assert end_of(log, 0) == []
    assert end_of(tmp_path / "none") == []
