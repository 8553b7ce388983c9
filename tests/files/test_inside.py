"""The program that runs inside, on its own: what a gateway's test would take too long for, or cannot bring about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.files.program import PROGRAM
from rota.trees.bounds import ARCHIVE_MEMBERS_MAX, DEPTH_MAX, ENTRIES_MAX, LINKS_MAX
from rota.trees.failing import FileFailed
from rota.trees.walking import Walk

MEMORY = "/dev/shm"
SECONDS_MAX = 60


@pytest.fixture
def crowded() -> Iterator[Path]:
    """A folder with more than any listing or tree holds. In memory: a disk may take minutes for it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        for number in range(ARCHIVE_MEMBERS_MAX + 1):
            os.close(os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT))
        yield Path(folder)


def asked(root: Path, op: str, path: str, stdin: bytes = b"", **more: Any) -> tuple[int, list[Any]]:
    text = json.dumps({"op": op, "root": str(root), "start": "", "path": path, **more})
    done = subprocess.run(
        [sys.executable, *PROGRAM, text], input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert done.stderr == b""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_hundred_thousand_entries_are_listed_up_to_the_bound_and_packed_not_at_all(crowded: Path) -> None:
    _, [listing] = asked(crowded, "list", "/")
    assert len(listing["entries"]) == ENTRIES_MAX and listing["truncated"]
    code, [answer] = asked(crowded, "pack", "/")
    assert (code, answer["error"]["reason"]) == (1, "TooLarge")


def test_a_file_without_its_end_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    code, answers = asked(tmp_path, "write", "file", b"\0\0\0\x05after", mode=0o644)
    assert (code, answers) == (1, [{"ready": True}])
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "before"


def test_links_in_a_circle_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert asked(tmp_path, "stat", "a")[1][0]["error"]["reason"] == "BadPath"


def test_as_many_links_as_the_kernel_follows_are_followed(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("")
    for number in range(LINKS_MAX):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    assert asked(tmp_path, "stat", str(LINKS_MAX))[1][0]["type"] == "file"


def test_a_tree_that_is_too_deep_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Step by step: as one path it is too long for the kernel.
    monkeypatch.chdir(tmp_path)
    for _ in range(DEPTH_MAX + 2):
        os.mkdir("d")
        os.chdir("d")
    code, [answer] = asked(tmp_path, "pack", "/")
    assert (code, answer["error"]["reason"]) == (1, "TooLarge")


def test_the_root_itself_stays(tmp_path: Path) -> None:
    for path in ("/", ".", "./."):
        assert asked(tmp_path, "remove", path, recursive=True)[1][0]["error"]["reason"] == "BadPath"
    assert tmp_path.exists()


def test_the_instances_own_name_for_its_folder_is_understood(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert asked(tmp_path, "stat", str(tmp_path / "file"))[0] == 0
    assert asked(tmp_path, "stat", "link")[0] == 0


def test_a_folder_that_is_exchanged_for_a_link_meanwhile_leads_nowhere_else(tmp_path: Path) -> None:
    """One side walks into a folder again and again, the other makes a link to the outside of it and back."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "kept").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("")
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            os.rename(root / "kept", root / "aside")
            os.symlink(outside, root / "kept")
            os.unlink(root / "kept")
            os.rename(root / "aside", root / "kept")

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(3000):
            try:
                with Walk(str(root)) as walk:
                    spot = walk.to("kept/secret")
                    assert "secret" not in os.listdir(f"/proc/self/fd/{spot.folder}")
            except (FileFailed, OSError):
                continue
    finally:
        over.set()
        thread.join()
