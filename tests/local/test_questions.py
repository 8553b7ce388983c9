"""Questions that commands ask on a terminal: Ctrl-C is a no, and nothing that is typed afterwards is a yes."""

from __future__ import annotations

import contextlib
import os
import pty
from pathlib import Path

import pytest

from rota.cli import INTERRUPTED
from tests.local.place import Place
from tests.server.live import ROTA

PROJECT = """
name: shop
functions:
  - {name: report, entrypoint: "m:h", source: {inline: "def h(event, context): return 1"}}
"""
CTRL_C = b"\x03"


def answered(place: Place, question: bytes, keys: bytes, *arguments: str) -> tuple[int, bytes]:
    """Run a command on a terminal and type these keys at its question. Returns its exit code and the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.folder)
        os.execve(ROTA, [ROTA, *arguments], place.environment)
    seen = b""
    try:
        with contextlib.suppress(OSError):  # A terminal that everybody has left cannot be read.
            while data := os.read(terminal, 4096):
                asked = question in seen
                seen += data
                if question in seen and not asked:
                    os.write(terminal, keys)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(status), seen


@pytest.mark.parametrize(("keys", "code"), [(CTRL_C + b"y\n", INTERRUPTED), (b"n\n", 1), (b"y\n", 0)])
def test_prune_deletes_after_a_yes_alone(place: Place, keys: bytes, code: int) -> None:
    place.says("start", "--port", "0", "--edge-port", "0")
    (place.folder / "rota.yaml").write_text(PROJECT)
    place.says("deploy")
    (place.folder / "rota.yaml").write_text("name: shop\n")
    ended, seen = answered(place, b"Delete it?", keys, "deploy", "--prune")
    assert ended == code, seen
    assert (b"nothing was changed" in seen) == (code != 0)
    assert ("report" in place.says("get", "fn", "-o", "name")) == (code != 0)


def test_an_answer_that_is_none_is_asked_for_again_in_the_style_of_all_errors(place: Place) -> None:
    place.says("start", "--port", "0", "--edge-port", "0")
    (place.folder / "rota.yaml").write_text(PROJECT)
    place.says("deploy")
    (place.folder / "rota.yaml").write_text("name: shop\n")
    ended, seen = answered(place, b"Delete it?", b"rubbish\nn\n", "deploy", "--prune")
    assert ended == 1 and b'"rubbish" is no answer: write y or n' in seen
    assert b"Error: invalid" not in seen and b"nothing was changed" in seen
    assert "report" in place.says("get", "fn", "-o", "name")


def test_restore_replaces_nothing_after_ctrl_c(place: Place, tmp_path: Path) -> None:
    place.says("start", "--port", "0", "--edge-port", "0")
    place.says("backup", str(tmp_path / "saved"))
    place.says("stop")
    before = (place.home / "rota.db").read_bytes()
    ended, seen = answered(place, b"Replace everything", CTRL_C + b"y\n", "restore", str(tmp_path / "saved"))
    assert ended == INTERRUPTED and b"nothing was changed" in seen
    assert (place.home / "rota.db").read_bytes() == before
