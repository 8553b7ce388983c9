"""A tar from an instance is unpacked below one folder, or refused."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from rota.client.claims import TreeRefused
from rota.client.claims.trees import Stopped, unpack
from rota.trees import archive
from rota.trees.failing import FileFailed
from rota.trees.links import stays_inside
from rota.trees.packing import pack
from rota.trees.walking import Spot


def member(
    name: str, type_: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = type_, target, len(data)
    return info, data


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as out:
        for info, data in members:
            out.addfile(info, io.BytesIO(data))
    return path


def packed(source: Path, target: Path) -> None:
    top = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
    with open(target, "wb") as file:
        pack(Spot(top, "."), file)
    os.close(top)


def opened(source: Path, here: Path) -> None:
    with open(source, "rb") as file:
        unpack(file, str(here), threading.Event())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "outer" / "here"


def outside(here: Path) -> list[str]:
    """Return the files beside the folder."""
    return sorted(str(one.relative_to(here.parent)) for one in here.parent.rglob("*") if not one.is_relative_to(here))


def test_a_tree_comes_back_as_it_was(tmp_path: Path, here: Path) -> None:
    source = tmp_path / "source"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "run").write_bytes(b"x" * 300_000)
    (source / "a" / "b" / "run").chmod(0o750)
    (source / "a" / "link").symlink_to("b/run")
    (source / "empty").mkdir(mode=0o500)
    packed(source, tmp_path / "tar")
    opened(tmp_path / "tar", here)
    assert (here / "a" / "link").read_bytes() == b"x" * 300_000
    assert (here / "a" / "b" / "run").stat().st_mode & 0o777 == 0o750
    assert (here / "empty").is_dir() and os.readlink(here / "a" / "link") == "b/run"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "a/.."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, here: Path, name: str) -> None:
    with pytest.raises(TreeRefused, match="relative"):
        opened(tar(tmp_path / "tar", member(name, data=b"evil")), here)
    assert outside(here) == []


@pytest.mark.parametrize("target", ["/etc", "..", "../..", "a/../../.."])
def test_a_link_that_leads_out_is_left_out(tmp_path: Path, here: Path, target: str) -> None:
    opened(tar(tmp_path / "tar", member("link", tarfile.SYMTYPE, target), member("file", data=b"x")), here)
    assert [one.name for one in here.iterdir()] == ["file"]


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, here: Path) -> None:
    with pytest.raises(TreeRefused, match="nowhere"):
        opened(tar(tmp_path / "tar", member("link", tarfile.SYMTYPE)), here)


def test_a_tar_that_is_refused_at_its_end_makes_nothing(tmp_path: Path, here: Path) -> None:
    with pytest.raises(TreeRefused, match="relative"):
        opened(tar(tmp_path / "tar", member("fine", data=b"x"), member("../evil", data=b"evil")), here)
    assert not here.exists()


def test_links_that_lead_out_together_are_not_made(tmp_path: Path, here: Path) -> None:
    up = member("a/b/up", tarfile.SYMTYPE, "../..")
    opened(tar(tmp_path / "tar", up, member("a/b/out", tarfile.SYMTYPE, "up/../..")), here)
    assert (here / "a" / "b" / "up").resolve() == here.resolve()
    assert not (here / "a" / "b" / "out").is_symlink()


def test_nothing_is_unpacked_through_a_link(tmp_path: Path, here: Path) -> None:
    (here.parent / "mine").mkdir(parents=True)
    here.mkdir()
    (here / "way").symlink_to(here.parent / "mine")
    with pytest.raises(TreeRefused, match="link"):
        opened(tar(tmp_path / "tar", member("way/evil", data=b"evil")), here)
    with pytest.raises(TreeRefused, match="link"):
        opened(tar(tmp_path / "tar", member("d", tarfile.SYMTYPE, "e"), member("d/f", data=b"x")), here)
    assert outside(here) == ["mine"]


def test_a_link_at_the_place_of_a_file_is_replaced(tmp_path: Path, here: Path) -> None:
    here.mkdir(parents=True)
    (here.parent / "mine").write_text("mine")
    (here / "file").symlink_to(here.parent / "mine")
    opened(tar(tmp_path / "tar", member("file", data=b"new")), here)
    assert (here / "file").read_text() == "new" and (here.parent / "mine").read_text() == "mine"


def test_a_hard_link_is_to_a_file_of_the_tar_alone(tmp_path: Path, here: Path) -> None:
    here.mkdir(parents=True)
    (here / "mine").write_text("mine")
    opened(tar(tmp_path / "tar", member("a", data=b"x"), member("b", tarfile.LNKTYPE, "a")), here)
    assert (here / "b").read_text() == "x"
    for target in ("mine", "../here/mine", "/etc/passwd"):
        with pytest.raises(TreeRefused):
            opened(tar(tmp_path / "tar", member("c", tarfile.LNKTYPE, target)), here)
    assert not (here / "c").exists()


@pytest.mark.parametrize("type_", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z"])
def test_devices_and_pipes_are_refused(tmp_path: Path, here: Path, type_: bytes) -> None:
    with pytest.raises(TreeRefused):
        opened(tar(tmp_path / "tar", member("device", type_)), here)
    assert not (here / "device").exists()


def test_no_bit_makes_a_file_run_as_somebody_else(tmp_path: Path, here: Path) -> None:
    info, data = member("file", data=b"x")
    info.mode = 0o6755
    opened(tar(tmp_path / "tar", (info, data)), here)
    assert (here / "file").stat().st_mode & 0o7777 == 0o755


def test_a_tar_that_was_cut_is_refused(tmp_path: Path, here: Path) -> None:
    whole = tar(tmp_path / "tar", member("a", data=b"a" * 2000), member("b", data=b"b" * 2000)).read_bytes()
    (tmp_path / "tar").write_bytes(whole[:4500])
    with pytest.raises(TreeRefused, match="too early"):
        opened(tmp_path / "tar", here)
    damaged = bytearray(whole)
    damaged[2560] ^= 1
    (tmp_path / "tar").write_bytes(damaged)
    with pytest.raises(TreeRefused, match="no tar"):
        opened(tmp_path / "tar", here)
    (tmp_path / "tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(TreeRefused, match="no tar"):
        opened(tmp_path / "tar", here)


def test_a_header_that_is_too_large_is_not_read(tmp_path: Path, here: Path) -> None:
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "c" * 200_000}
    with tarfile.open(tmp_path / "tar", "w", format=tarfile.PAX_FORMAT) as out:
        out.addfile(info)
    with pytest.raises(TreeRefused, match="at most"):
        opened(tmp_path / "tar", here)


def test_members_and_bytes_are_bounded(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tar(tmp_path / "tar", member("a", data=b"x" * 100), member("b", data=b"x" * 100))
    monkeypatch.setattr(archive, "ARCHIVE_BYTES_MAX", 150)
    with pytest.raises(TreeRefused, match="at most"):
        opened(source, here)
    monkeypatch.undo()
    monkeypatch.setattr(archive, "ARCHIVE_MEMBERS_MAX", 1)
    with pytest.raises(TreeRefused, match="at most"):
        opened(source, here)


def test_what_is_packed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(b"x" * 100)
    for bound, most in ("ARCHIVE_MEMBERS_MAX", 0), ("ARCHIVE_BYTES_MAX", 99):
        with monkeypatch.context() as patched:
            patched.setattr(f"rota.trees.packing.{bound}", most)
            with pytest.raises(FileFailed, match="at most"):
                packed(tmp_path / "source", tmp_path / "out")


def test_sparse_files_are_refused(tmp_path: Path, here: Path) -> None:
    info = tarfile.TarInfo("x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1000000000000"}
    info.size = 512
    with tarfile.open(tmp_path / "tar", "w", format=tarfile.PAX_FORMAT) as out:
        out.addfile(info, io.BytesIO(b"0\n".ljust(512, b"\0")))
    with pytest.raises(TreeRefused):
        opened(tmp_path / "tar", here)


def test_what_nobody_wants_any_more_stops(tmp_path: Path, here: Path) -> None:
    stop = threading.Event()
    stop.set()
    source = tar(tmp_path / "tar", member("a", data=b"x"))
    with pytest.raises(Stopped), open(source, "rb") as file:
        unpack(file, str(here), stop)
    assert not here.exists()


def test_a_link_goes_up_and_then_down() -> None:
    assert stays_inside("a/b", "../c") and stays_inside("a", "b/c") and stays_inside("a/b", "..")
    assert not stays_inside("a", "..") and not stays_inside("a/b", "c/../..") and not stays_inside("a", "/a")
