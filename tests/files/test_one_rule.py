"""The same tar comes to the same, whether a client unpacks it or an instance, or the code of a function is."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.client.claims import TreeRefused
from rota.client.claims.trees import unpack
from rota.trees.archive import Archive
from rota.trees.failing import FileFailed
from rota.trees.unpacking import Unpacking

Member = tuple[str, bytes, str]
FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
REFUSED: dict[str, list[Member]] = {
    "absolute": [("/evil", FILE, "")],
    "parent": [("a/../../evil", FILE, "")],
    "device": [("evil", tarfile.CHRTYPE, "")],
    "pipe": [("evil", tarfile.FIFOTYPE, "")],
    "hard link to a file that was there": [("evil", HARD, "there")],
    "hard link to a link": [("a", LINK, "there"), ("evil", HARD, "a")],
    "hard link to a file that became a link": [("a", FILE, ""), ("a", LINK, "there"), ("evil", HARD, "a")],
    "hard link to outside": [("evil", HARD, "../secret")],
    "through a link of the tar": [("d", FOLDER, ""), ("a", LINK, "d"), ("a/evil", FILE, "")],
    "through a link that was there": [("way/evil", FILE, "")],
    "link to nowhere": [("evil", LINK, "")],
    "too deep": [("/".join("a" * 201), FILE, "")],
}
TAKEN: dict[str, list[Member]] = {
    "file": [("a", FILE, "")],
    "folder in an old form": [("a/", FILE, "")],
    "hard link": [("a", FILE, ""), ("b", HARD, "a"), ("c", HARD, "b")],
    "link": [("d/a", FILE, ""), ("b", LINK, "d/a"), ("d/c", LINK, "../b")],
    "file in place of a link": [("a", LINK, "b"), ("a", FILE, "")],
}


def tarred(members: list[Member], everywhere: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=everywhere) as tar:
        for name, type_, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = type_, target
            tar.addfile(info)
    return out.getvalue()


def by_client(data: bytes, here: Path) -> None:
    unpack(io.BytesIO(data), str(here), threading.Event())


def by_instance(data: bytes, here: Path) -> None:
    top = os.open(here, os.O_RDONLY | os.O_DIRECTORY)
    archive, unpacking = Archive(), Unpacking(top)
    os.close(top)
    try:
        for event in archive.feed(data):
            unpacking.take(event)
        archive.end()
        unpacking.finish()
    finally:
        unpacking.drop()


Way = Callable[[bytes, Path], None]
ways = pytest.mark.parametrize("way", [by_client, by_instance])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    here = tmp_path / "here"
    here.mkdir()
    (here / "there").write_text("there")
    (here / "way").symlink_to(tmp_path)
    return here


@ways
@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED)
def test_what_one_refuses_all_refuse(here: Path, way: Way, members: list[Member]) -> None:
    with pytest.raises((TreeRefused, FileFailed)):
        way(tarred(members), here)
    assert sorted(os.listdir(here.parent)) == ["here", "secret"]
    assert not (here / "evil").exists() and (here / "there").read_text() == "there"


@pytest.mark.parametrize("members", TAKEN.values(), ids=TAKEN)
def test_what_one_takes_all_take_alike(tmp_path: Path, members: list[Member]) -> None:
    found = []
    for way in (by_client, by_instance):
        here = tmp_path / way.__name__
        here.mkdir()
        way(tarred(members), here)
        found.append({str(one.relative_to(here)): one.lstat().st_mode for one in here.rglob("*")})
    assert found[0] == found[1] != {}


@ways
def test_what_a_tar_says_of_all_its_members_is_not_looked_at(here: Path, way: Way) -> None:
    way(tarred([("a", FILE, "")], {"path": "evil", "linkpath": "/etc"}), here)
    assert sorted(os.listdir(here)) == ["a", "there", "way"]


def test_a_client_leaves_out_a_link_that_leads_out_and_an_instance_refuses_it(here: Path) -> None:
    data = tarred([("out", LINK, "../secret"), ("a", FILE, "")])
    with pytest.raises(FileFailed, match="leads out"):
        by_instance(data, here)
    by_client(data, here)
    assert sorted(os.listdir(here)) == ["a", "there", "way"]
