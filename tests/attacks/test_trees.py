"""By a tree of files: one that is uploaded, built, or left behind."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import stat
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.client.claims import TreeRefused
from rota.client.claims.trees import unpack
from rota.engine.recorder import event_name
from rota.runtime import removing, sandbox
from rota.runtime.blobs import Blobs
from rota.runtime.code import CODE, PACKAGES, CodeCache, CodeRefused
from rota.runtime.code.places import UNUSED_SECONDS_MIN, cached, collect, new_folder
from rota.runtime.interface import Subject
from rota.runtime.modes import TooDeep, take_over
from rota.runtime.places import Places
from rota.trees.archive import Archive
from rota.trees.failing import FileFailed
from rota.trees.unpacking import Unpacking
from tests.until import until_so

DEPTH = 16
DEEP = "/".join(["d"] * DEPTH)
UP = "/".join([".."] * DEPTH)
NESTED = 3_000
"""More folders within each other than Python calls functions within each other."""


def tarred(*members: tuple[str, bytes, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, type_, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = type_, target, 0o755
            tar.addfile(info)
    return out.getvalue()


def through_links(victim: Path) -> bytes:
    """A link to the top of the tree, and one that goes through it and up again: by the letter, both stay inside."""
    return tarred(
        (DEEP, tarfile.DIRTYPE, ""),
        (f"{DEEP}/l", tarfile.SYMTYPE, UP),
        ("x", tarfile.SYMTYPE, f"{DEEP}/l/{UP}{victim}"),
        ("app.py", tarfile.REGTYPE, ""),
    )


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    return folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_to_open_a_folder_of_the_host_by_links_that_lead_through_links(tmp_path: Path, private: Path) -> None:
    content = through_links(private)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    home = tmp_path / "home"
    place = Blobs(home).path(digest)
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    with pytest.raises(CodeRefused, match="goes up after it went down"):
        CodeCache(home).unpack(digest)
    assert mode_of(private) == 0o700
    assert list((home / "functions" / CODE).iterdir()) == []


def header(name: bytes, kind: bytes = b"0", link: bytes = b"", modified: bytes = b"00000000000\0") -> bytes:
    """A member of a tar, with whatever is said there."""
    block = bytearray(512)
    fields = {0: name, 100: b"0000644\0", 108: b"0000000\0" * 2, 124: b"00000000000\0", 136: modified, 156: kind}
    for at, value in {**fields, 148: b" " * 8, 157: link, 257: b"ustar\x0000"}.items():
        block[at : at + len(value)] = value
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


HOSTILE = {
    "a name that is no text": (header(b"a\xff\xfe", b"2", b"../../etc"), "its link leads out"),
    "a time without end": (header(b"x", modified=b"\x80" + b"\x7f" * 11), ""),
    "a time before all": (header(b"x", modified=b"\xff" + b"\x00" * 11), ""),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_to_break_what_unpacks_a_tree(tmp_path: Path, what: str) -> None:
    member, refused = HOSTILE[what]
    content = member + bytes(1024)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    place = Blobs(tmp_path).path(digest)
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    if not refused:
        CodeCache(tmp_path).unpack(digest)
        return
    with pytest.raises(CodeRefused, match=refused) as raised:
        CodeCache(tmp_path).unpack(digest)
    # It is said in a condition and in an Event, which are written.
    assert str(raised.value).encode()
    assert event_name("a", "uid", "Warning", "CodeDamaged", "a\udcff") == event_name(
        "a", "uid", "Warning", "CodeDamaged", "a?"
    )


def test_to_change_modes_and_owners_through_a_link_that_is_there_all_the_same(tmp_path: Path, private: Path) -> None:
    (private / "key").touch(mode=0o600)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "folder").symlink_to(private)
    (tree / "file").symlink_to(private / "key")
    (tree / "own").touch(mode=0o4600)
    (tree / "own").chmod(0o4600)
    take_over(tree, lambda found: found | 0o555)
    assert (mode_of(private), mode_of(private / "key")) == (0o700, 0o600)
    assert mode_of(tree / "own") == 0o755  # It runs as nobody else.


def test_to_have_a_client_make_links_that_lead_out_of_what_it_copied(tmp_path: Path, private: Path) -> None:
    """`rota cp`, and files of a claim."""
    content = through_links(private)
    here = tmp_path / "here"
    here.mkdir()
    unpacking = unpack_all(content, here)
    assert [one.name for one in unpacking.skipped] == ["x"] and not (here / "x").is_symlink()
    with open(tmp_path / "tar", "w+b") as file:
        file.write(content)
        unpack(file, str(tmp_path / "claimed"), threading.Event())
    assert (tmp_path / "claimed" / "app.py").is_file() and not (tmp_path / "claimed" / "x").is_symlink()


def unpack_all(content: bytes, here: Path) -> Unpacking:
    """As `rota cp` does."""
    archive = Archive(skips_leaving_links=True)
    descriptor = os.open(here, os.O_RDONLY | os.O_DIRECTORY)
    unpacking = Unpacking(descriptor)
    os.close(descriptor)
    try:
        for event in archive.feed(content):
            unpacking.take(event)
        unpacking.finish()
    finally:
        unpacking.drop()
    return unpacking


def test_to_move_a_link_that_is_there_to_where_it_leads_out(tmp_path: Path) -> None:
    """By a hard link to it, in a second tar."""
    first = tarred(("a/b", tarfile.DIRTYPE, ""), ("a/b/l", tarfile.SYMTYPE, "../.."))
    second = tarred(("up", tarfile.LNKTYPE, "a/b/l"))
    here = tmp_path / "here"
    here.mkdir()
    unpack_all(first, here)
    with pytest.raises(FileFailed, match="no file of the same tar"):
        unpack_all(second, here)
    assert not (here / "up").is_symlink()
    with open(tmp_path / "tar", "w+b") as file:
        file.write(second)
        with pytest.raises(TreeRefused):
            unpack(file, str(here), threading.Event())


def nest(top: Path, depth: int = NESTED) -> None:
    """Folders within each other, to a path that is too long to be one."""
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_to_end_all_collecting_by_a_tree_that_is_too_deep(tmp_path: Path) -> None:
    names = ["a" * 64, "b" * 64]
    for name in names:
        cached(tmp_path, PACKAGES, name).mkdir(parents=True)
    nest(cached(tmp_path, PACKAGES, names[0]))
    for name in names:
        before = time.time() - UNUSED_SECONDS_MIN - 1
        os.utime(cached(tmp_path, PACKAGES, name), (before, before))
    assert collect(tmp_path, PACKAGES, ()) == names


def test_to_break_a_build_by_a_tree_that_is_too_deep(tmp_path: Path) -> None:
    def build() -> None:
        with new_folder(cached(tmp_path, PACKAGES, "a" * 64)) as folder:
            nest(folder)
            take_over(folder, lambda found: found | 0o555)

    with pytest.raises(TooDeep):
        build()
    assert list((tmp_path / "functions" / PACKAGES).iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which takes root")
def test_to_keep_a_tree_from_being_given_to_its_owner(tmp_path: Path, private: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 900)  # As many as even a small limit of descriptors allows.
    (tree / "d" / "link").symlink_to(private)
    sandbox.own(tree, 4321)
    assert [path.lstat().st_uid for path in (tree, tree / "d" / "d", tree / "d" / "link", private)] == [4321] * 3 + [0]


async def test_to_slow_everybody_down_by_what_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More large trees at once than there are threads for all that a server does."""
    begun, going_on = list[Path](), threading.Event()

    def slowly(path: Path, seconds_max: float) -> bool:
        begun.append(path)
        assert going_on.wait(60)
        return True

    monkeypatch.setattr(removing, "remove", slowly)
    monkeypatch.setattr(removing, "WAIT_SECONDS_MAX", 0.01)
    places = Places(tmp_path)
    removals = []
    for number in range(40):
        subject = Subject("default", f"some-{number}", "uid")
        places.folder(subject).mkdir(parents=True)
        removals.append(places.remove(subject))
        assert not places.folder(subject).exists()
    await removing.waited_for(*removals)
    # Threads that others need are free.
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(lambda: "at once") == "at once"
    assert len(begun) <= removing.THREADS_MAX
    going_on.set()
    await until_so(lambda: len(begun), lambda count: count == len(removals), f"{len(removals)} removals")


def many_links() -> Iterator[bytes]:
    """Links with long names, in letters that take four bytes each where they are kept."""
    for number in range(2_000):
        link = tarfile.TarInfo(f"\U0001f600{'a' * 4_000}{number}")
        link.type, link.linkname = tarfile.SYMTYPE, "to"
        yield link.tobuf(tarfile.GNU_FORMAT)


def extended(lines: bytes) -> bytes:
    header = tarfile.TarInfo("said")
    header.type, header.size = tarfile.XHDTYPE, len(lines)
    return header.tobuf(tarfile.USTAR_FORMAT) + lines + bytes(-len(lines) % tarfile.BLOCKSIZE)


def many_words() -> Iterator[bytes]:
    """Yield a tar that describes one member again and again, each time differently."""
    for number in range(500):
        yield extended(b"60000 %06d=%b\n" % (number, b"x" * 59_986))


@pytest.mark.parametrize("pieces", [many_links, many_words])
def test_to_fill_the_memory_by_what_a_tar_says_of_its_members(pieces: Callable[[], Iterator[bytes]]) -> None:
    archive = Archive()
    tracemalloc.start()
    try:
        for piece in pieces():
            for _ in archive.feed(piece):
                pass
        assert tracemalloc.get_traced_memory()[0] < 2 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [(b"5 a=\n" * 13_000, "TooLarge"), (b"1" * 5_000 + b" a=b\n", "BadArchive"), (b"0 a=b\n", "BadArchive")],
)
def test_to_keep_the_server_busy_with_what_a_tar_says_of_a_member(lines: bytes, reason: str) -> None:
    with pytest.raises(FileFailed) as refused:
        list(Archive().feed(extended(lines)))
    assert refused.value.reason == reason
