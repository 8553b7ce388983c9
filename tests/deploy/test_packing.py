"""Code as a blob: the same bytes from the same files, whatever else is there."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from rota.manifest import packing
from rota.manifest.packing import Unpackable, pack
from rota.manifest.packing_excludes import Excludes
from rota.runtime.blobs import digest_of


def tree(top: Path, *names: str) -> Path:
    for name in names:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return top


def members(top: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(pack(top).content)) as tar:
        return tar.getmembers()


def names(top: Path) -> list[str]:
    return [member.name for member in members(top)]


def test_the_same_files_are_the_same_blob_wherever_and_whenever_they_were_written(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", "b.py", "a/c.py", "a-b.py")
    other = tree(tmp_path / "other", "a-b.py", "a/c.py", "b.py")
    os.utime(other / "b.py", (1, 1))
    (other / "b.py").chmod(0o600)
    (other / "empty").mkdir()
    assert pack(one) == pack(other)
    assert pack(one).digest == digest_of(pack(one).content)
    assert names(one) == ["a-b.py", "a/c.py", "b.py"]


def test_the_digest_of_a_tree_is_the_same_in_every_release(tmp_path: Path) -> None:
    top = tree(tmp_path, "a-b.py", "a/c.py", "a/deep/er/f", "b.py", "run", "é/ü.txt", f"{'n' * 120}/{'m' * 100}")
    (top / "run").chmod(0o700)
    (top / "link").symlink_to("a/c.py")
    (top / "a" / "up").symlink_to("../b.py")
    assert pack(top).digest == "sha256:d278d76cda7b9f9cabd5d996426c883a6f2aebbe5fba46e4cdcead7f5aea54e7"
    assert pack(top / "b.py").digest == "sha256:650929f7f49b61c39d98e174c88d27907d429e69e08b882daf70edef6bb93931"


def test_times_and_owners_are_not_packed_but_who_may_execute_is(tmp_path: Path) -> None:
    top = tree(tmp_path, "run", "text")
    (top / "run").chmod(0o700)
    found = {member.name: (member.mode, member.mtime, member.uid, member.uname) for member in members(top)}
    assert found == {"run": (0o755, 0, 0, ""), "text": (0o644, 0, 0, "")}


def test_what_changes_a_file_changes_the_digest(tmp_path: Path) -> None:
    before = pack(tree(tmp_path, "a.py")).digest
    (tmp_path / "a.py").write_text("other")
    assert pack(tmp_path).digest != before


def test_a_single_file_is_packed_alone(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(tree(tmp_path, "a.py", "b.py") / "a.py").content)) as tar:
        assert tar.getnames() == ["a.py"]


def test_what_is_no_code_is_left_out(tmp_path: Path) -> None:
    never = (".git/config", "__pycache__/a.pyc", "a/__pycache__/b.pyc", ".venv/x", ".env", ".env.local", "rota.yaml")
    assert names(tree(tmp_path, "main.py", "a/rota.yaml", *never)) == ["a/rota.yaml", "main.py"]


def test_rotaignore_leaves_out_and_takes_in(tmp_path: Path) -> None:
    top = tree(tmp_path, "a.log", "keep.log", "data/x", "src/data/y", "docs/a/b.md", "docs/c.txt", "main.py")
    (top / ".rotaignore").write_text("# not these\n*.log\n!keep.log\n/data/\ndocs/**/*.md\n")
    assert names(top) == ["docs/c.txt", "keep.log", "main.py", "src/data/y"]


def test_the_projects_own_rotaignore_holds_for_every_folder_in_it(tmp_path: Path) -> None:
    top = tree(tmp_path, "fn/main.py", "fn/own.key", "fn/its.key", "fn/data/x", "fn/sub/data/y", "fn/rota.yaml")
    (top / ".rotaignore").write_text("*.key\n/fn/data/\n")
    (top / "fn" / ".rotaignore").write_text("!its.key\n")
    with tarfile.open(fileobj=io.BytesIO(pack(top / "fn", project=top).content)) as tar:
        assert tar.getnames() == ["its.key", "main.py", "sub/data/y"]


@pytest.mark.parametrize(
    ("pattern", "name", "folder", "out"),
    [
        ("a", "a", False, True),
        ("a", "b/a", False, True),
        ("/a", "b/a", False, False),
        ("b/a", "c/b/a", False, False),
        ("a/", "a", False, False),
        ("a/", "b/a", True, True),
        ("*.py", "x/y.py", False, True),
        ("?", "ab", False, False),
        ("[ab].py", "a.py", False, True),
        ("[!ab].py", "a.py", False, False),
        ("[z-a]", "[z-a]", False, False),
        ("!", "a", False, False),
        ("**/x", "x", False, True),
        ("**/x", "a/b/x", False, True),
        ("a/**", "a/b/c", False, True),
        ("a/**", "a", True, True),
        ("a*c", "a/c", False, False),
        (r"\#a", "#a", False, True),
        ("a.b", "aXb", False, False),
    ],
)
def test_patterns_mean_what_they_mean_to_git(pattern: str, name: str, folder: bool, out: bool) -> None:
    assert Excludes([pattern]).is_excluded(name, is_folder=folder) is out


def test_links_within_are_kept_and_links_out_are_refused(tmp_path: Path) -> None:
    top = tree(tmp_path / "code", "a/real.py")
    (top / "link.py").symlink_to("a/real.py")
    assert [(member.name, member.linkname) for member in members(top)] == [("a/real.py", ""), ("link.py", "a/real.py")]
    (top / "out").symlink_to("../secret")
    with pytest.raises(Unpackable, match=r"out: it leads to \.\./secret, which is not packed"):
        pack(top)


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tree(tmp_path, "a.py") / "pipe")
    with pytest.raises(Unpackable, match=r"pipe: neither a file nor a link; leave it out in \.rotaignore"):
        pack(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unpackable, match="there is nothing in it to pack"):
        pack(tmp_path)


def test_size_and_number_of_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tree(tmp_path, *(f"{n}.py" for n in range(4)))
    with pytest.raises(Unpackable, match="packed, it has more than 2000 bytes"):
        pack(top, bytes_max=2000)
    monkeypatch.setattr(packing, "FILES_MAX", 3)
    with pytest.raises(Unpackable, match="more than 3 files to pack"):
        pack(top)
    monkeypatch.setattr(packing, "LOOKED_AT_MAX", 2)
    with pytest.raises(Unpackable, match="more than 2 files; leave folders out"):
        pack(top)
