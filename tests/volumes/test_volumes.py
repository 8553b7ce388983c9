"""Files of volumes, in real folders."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.runtime.volumes import write, write_all

IS_ROOT = os.geteuid() == 0
INSTANCE = 0x70000001 if IS_ROOT else None
NOBODY = 65534
NAMES = st.text(st.sampled_from("ab.-_é "), min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
FILES = st.dictionaries(NAMES, st.binary(max_size=8), max_size=5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "volume"


@pytest.fixture
def as_ordinary_user() -> Iterator[Path]:
    """Rota without the rights of root, and a place of its own."""
    top = Path(tempfile.mkdtemp())
    if not IS_ROOT:
        yield top
    else:
        os.chown(top, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield top
        finally:
            os.seteuid(0)
    shutil.rmtree(top)


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def state(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return everything that a write would change."""
    found = [(path.name, path.lstat()) for path in (folder, *sorted(folder.iterdir()))]
    return [(name, stat_.st_ino, stat_.st_mtime_ns, stat_.st_ctime_ns) for name, stat_ in found]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_holds_exactly_the_files_it_is_given(folder: Path) -> None:
    assert write(folder, {"a": b"1", "b": b"2"}, uid=INSTANCE)
    assert held(folder) == {"a": b"1", "b": b"2"}
    assert write(folder, {"b": b"2", "c": b""}, uid=INSTANCE)
    assert held(folder) == {"b": b"2", "c": b""}
    assert write(folder, {}, uid=INSTANCE)
    assert held(folder) == {}


@given(before=FILES, after=FILES)
def test_whatever_it_held_before(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "volume")
        write(folder, before, uid=INSTANCE)
        assert write(folder, after, uid=INSTANCE) == (before != after)
        assert held(folder) == after
        assert os.listdir(top) == ["volume"]


def test_nothing_is_written_when_nothing_changed(folder: Path) -> None:
    write(folder, {"a": b"1", "b": b"2"}, uid=INSTANCE)
    before = state(folder)
    assert not write(folder, {"b": b"2", "a": b"1"}, uid=INSTANCE)
    assert state(folder) == before


def test_a_file_that_did_not_change_is_left_when_another_does(folder: Path) -> None:
    write(folder, {"a": b"1", "b": b"2"}, uid=INSTANCE)
    before = (folder / "a").stat()
    write(folder, {"a": b"1", "b": b"3"}, uid=INSTANCE)
    assert (folder / "a").stat() == before


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_the_files_are_for_the_instance_alone(folder: Path) -> None:
    write(folder, {"a": b"secret"}, uid=INSTANCE)
    assert (mode(folder), mode(folder / "a")) == (0o500, 0o400)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (folder, folder / "a")} == {(INSTANCE, INSTANCE)}


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_another_uid_than_before_gets_them_and_the_first_has_them_no_more(folder: Path) -> None:
    write(folder, {"a": b"secret"}, uid=INSTANCE)
    assert write(folder, {"a": b"secret"}, uid=INSTANCE + 1 if INSTANCE else None)
    assert (folder.stat().st_uid, (folder / "a").stat().st_uid) == (0x70000002, 0x70000002)


def test_rota_that_is_not_root_can_renew_and_remove_its_files(as_ordinary_user: Path) -> None:
    folder = as_ordinary_user / "volume"
    assert write(folder, {"a": b"1", "b": b"2"}, uid=None)
    assert (mode(folder / "a"), folder.stat().st_uid) == (0o400, os.geteuid())
    assert write(folder, {"a": b"3"}, uid=None)
    assert held(folder) == {"a": b"3"}
    assert not write(folder, {"a": b"3"}, uid=None)
    shutil.rmtree(folder)


def test_a_file_is_exchanged_as_a_whole(folder: Path) -> None:
    write(folder, {"a": b"old"}, uid=INSTANCE)
    with (folder / "a").open("rb") as opened:
        write(folder, {"a": b"newer"}, uid=INSTANCE)
        assert opened.read() == b"old", "who reads it goes on with what it was"
    assert (folder / "a").read_bytes() == b"newer"


def test_the_folder_itself_stays_the_same_one(folder: Path) -> None:
    write(folder, {"a": b"old"}, uid=INSTANCE)
    mounted = folder.stat().st_ino
    write(folder, {"b": b"new"}, uid=INSTANCE)
    assert folder.stat().st_ino == mounted


def test_what_is_being_written_is_never_seen_in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, {"a": b"old"}, uid=INSTANCE)
    seen: list[dict[str, bytes]] = []
    rename = os.rename

    def looks(source: Path, target: str, *, dst_dir_fd: int) -> None:
        seen.append(held(folder))
        rename(source, target, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", looks)
    write(folder, {"a": b"new"}, uid=INSTANCE)
    assert seen == [{"a": b"old"}]


def test_what_a_crash_left_is_removed_by_the_next_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crashes)
        with pytest.raises(KeyboardInterrupt):
            write(folder, {"a": b"secret"}, uid=INSTANCE)
    assert len(os.listdir(folder.parent)) == 2
    write(folder, {"a": b"other"}, uid=INSTANCE)
    assert os.listdir(folder.parent) == ["volume"]
    assert held(folder) == {"a": b"other"}


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"1")
    outside.chmod(0o400)
    if INSTANCE is not None:
        os.chown(outside, INSTANCE, INSTANCE)
    folder.mkdir()
    (folder / "a").symlink_to(outside)
    (folder / "gone").symlink_to(outside)
    assert write(folder, {"a": b"1"}, uid=INSTANCE)
    assert not (folder / "a").is_symlink()
    assert outside.read_bytes() == b"1"
    assert held(folder) == {"a": b"1"}


def test_a_link_in_the_place_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(OSError):
        write(folder, {"a": b"1"}, uid=INSTANCE)
    assert os.listdir(elsewhere) == []


def test_folders_pipes_and_wrong_modes_make_way(folder: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "precious").touch()
    for name in ("a", "gone"):
        (folder / name / "deep").mkdir(parents=True)
        (folder / name / "link").symlink_to(keep)
    os.mkfifo(folder / "b")
    (folder / "c").write_bytes(b"3")
    (folder / "c").chmod(0o644)
    assert write(folder, {"a": b"1", "b": b"2", "c": b"3"}, uid=INSTANCE)
    assert held(folder) == {"a": b"1", "b": b"2", "c": b"3"}
    assert mode(folder / "c") == 0o400
    assert os.listdir(keep) == ["precious"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "../a", "a\0b", "x" * 256])
def test_what_is_no_name_is_refused_before_anything_is_done(folder: Path, name: str) -> None:
    write(folder, {"a": b"1"}, uid=INSTANCE)
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        write(folder, {"b": b"2", name: b"3"}, uid=INSTANCE)
    assert held(folder) == {"a": b"1"}


def test_no_descriptor_is_left_open(folder: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    (folder / "a").mkdir(parents=True)
    write(folder, {"a": b"1", "b": b"2"}, uid=INSTANCE)
    # Other tests' garbage may be collected meanwhile, which closes descriptors.
    assert set(os.listdir("/proc/self/fd")) <= before


# By the place inside.


def test_a_place_keeps_its_folder_when_another_comes_or_goes(tmp_path: Path) -> None:
    top = tmp_path / "volumes"
    first = write_all(top, {"/etc/b": {"key": b"1"}}, uid=INSTANCE)
    both = write_all(top, {"/etc/a": {"key": b"2"}, "/etc/b": {"key": b"1"}}, uid=INSTANCE)
    last = write_all(top, {"/etc/a": {"key": b"2"}}, uid=INSTANCE)
    assert first["/etc/b"] == both["/etc/b"] and last["/etc/a"] == both["/etc/a"]
    assert held(both["/etc/a"]) == {"key": b"2"}


def test_a_place_without_files_is_emptied_and_stays(tmp_path: Path) -> None:
    place = write_all(tmp_path / "volumes", {"/etc/a": {"key": b"secret"}}, uid=INSTANCE)["/etc/a"]
    mounted = place.stat().st_ino
    assert write_all(tmp_path / "volumes", {}, uid=INSTANCE) == {}
    assert (place.stat().st_ino, held(place)) == (mounted, {})
