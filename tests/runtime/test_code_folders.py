"""Folders of code and of packages appear whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rota.runtime.code.places import CODE, COMING, cached, collect, is_there, new_folder

NAME = "0" * 64
CUT_SHORT = """
import os, sys
from pathlib import Path
from rota.runtime.code.places import CODE, cached, new_folder
with new_folder(cached(Path(sys.argv[1]), CODE, sys.argv[2])) as folder:
    (folder / "half").write_text("of the code")
    os._exit(9)
"""


def test_a_folder_that_is_being_filled_does_not_have_its_name_yet(tmp_path: Path) -> None:
    wanted = cached(tmp_path, CODE, NAME)
    with new_folder(wanted) as folder:
        (folder / "main.py").write_text("")
        assert not is_there(wanted)
    assert is_there(wanted) and [path.name for path in wanted.iterdir()] == ["main.py"]


def test_a_folder_whose_filling_fails_leaves_nothing(tmp_path: Path) -> None:
    wanted = cached(tmp_path, CODE, NAME)
    with pytest.raises(OSError, match="no space"), new_folder(wanted):
        raise OSError("no space")
    assert list(wanted.parent.iterdir()) == []


def test_a_folder_whose_filling_was_killed_is_not_there_and_is_collected(tmp_path: Path) -> None:
    wanted = cached(tmp_path, CODE, NAME)
    killed = subprocess.run([sys.executable, "-c", CUT_SHORT, str(tmp_path), NAME], check=False, timeout=60)
    assert killed.returncode == 9 and not is_there(wanted)
    [left] = wanted.parent.iterdir()
    assert left.name.startswith(COMING) and collect(tmp_path, CODE, ()) == []
    os.utime(left, (0, 0))
    assert collect(tmp_path, CODE, ()) == [left.name] and not left.exists()
