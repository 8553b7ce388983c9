"""Between two holders: nothing that the last one left is there for the next one."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.api.pool import WorkspaceSpec
from rota.runtime.workspace import Mirror, MustReplace, Source, discard, prepare, verify
from tests.workspace.conftest import Repo, no_setup

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="plants what an ordinary user cannot")
SECONDS_MAX = 60
DEEP = 3000
MANY = 10_000

Plant = Callable[[Path, Path], None]


def _hook(storage: Path, outside: Path) -> None:
    hooks = storage / "repo" / ".git" / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {outside}/ran\n")
    (hooks / "post-checkout").chmod(0o755)


def _setting(storage: Path, outside: Path) -> None:
    with open(storage / "repo" / ".git" / "config", "a") as file:
        file.write(f"[core]\n\tfsmonitor = touch {outside}/ran\n[include]\n\tpath = /etc/passwd\n")


def _attributes(storage: Path, outside: Path) -> None:
    (storage / "repo" / ".git" / "info").mkdir(exist_ok=True)
    (storage / "repo" / ".git" / "info" / "attributes").write_text("* filter=x\n")


def _setuid_file(storage: Path, outside: Path) -> None:
    (storage / "repo" / "setuid").write_text("x")
    (storage / "repo" / "setuid").chmod(0o6755)


def _beside_the_tree(storage: Path, outside: Path) -> None:
    (storage / ".bashrc").write_text(f"touch {outside}/ran")
    (storage / "home" / ".gitconfig").write_text("[core]\n")


def _closed_folders(storage: Path, outside: Path) -> None:
    (storage / "closed" / "er").mkdir(parents=True)
    (storage / "closed" / "er" / "file").touch()
    (storage / "closed" / "er").chmod(0)
    (storage / "closed").chmod(0o555)


def _special_files(storage: Path, outside: Path) -> None:
    os.mkfifo(storage / "repo" / "fifo")
    # By a short way, for an address has room for a hundred bytes only.
    descriptor = os.open(storage, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{descriptor}/socket")
    os.close(descriptor)


def _odd_names(storage: Path, outside: Path) -> None:
    for name in (b"-rf", b"a\nb", b"\xff\xfe", b" ", b"*", b"x" * 255, b".rota-discard-0", b"\x1b[2J"):
        (storage / os.fsdecode(name)).mkdir()
        (storage / os.fsdecode(name) / os.fsdecode(name)).touch()


def _deep_folders(storage: Path, outside: Path) -> None:
    here = os.open(storage, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def _many_files(storage: Path, outside: Path) -> None:
    (storage / "many").mkdir()
    for number in range(MANY):
        os.close(os.open(storage / "many" / str(number), os.O_CREAT | os.O_WRONLY))


def _links_outside(storage: Path, outside: Path) -> None:
    (storage / "link").symlink_to(outside)
    (storage / "repo" / "link").symlink_to(outside / "precious")
    (storage / "hard").hardlink_to(outside / "precious")


def _tree_that_is_a_link(storage: Path, outside: Path) -> None:
    shutil.rmtree(storage / "repo")
    (storage / "repo").symlink_to(outside)


def _repository_that_is_a_file(storage: Path, outside: Path) -> None:
    shutil.rmtree(storage / "repo" / ".git")
    (storage / "repo" / ".git").write_text(f"gitdir: {outside}")


def _attributes_of_the_storage(storage: Path, outside: Path) -> None:
    os.setxattr(storage, "user.note", b"from the last one")
    storage.chmod(0o7777)


def _closed_storage(storage: Path, outside: Path) -> None:
    storage.chmod(0o000)


def _immutable(storage: Path, outside: Path) -> None:
    if shutil.which("chattr") is None:
        pytest.skip("there is no chattr; install the package e2fsprogs")
    (storage / "repo" / "immutable").write_text("x")
    (storage / "kept").mkdir()
    (storage / "kept" / "appended").touch()
    for flag, path in (("+i", "repo/immutable"), ("+a", "kept/appended"), ("+i", "kept")):
        if subprocess.run(["chattr", flag, storage / path], capture_output=True).returncode:
            pytest.skip("this file system has no such flags")


def _device(storage: Path, outside: Path) -> None:
    os.mknod(storage / "disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))


def _another_owner(storage: Path, outside: Path) -> None:
    (storage / "others").mkdir(mode=0o700)
    os.chown(storage / "others", 4242, 4242)
    os.chown(storage, 4242, 4242)


EVERYBODY = [
    _hook, _setting, _attributes, _setuid_file, _beside_the_tree, _closed_folders, _special_files, _odd_names,
    _deep_folders, _many_files, _links_outside, _tree_that_is_a_link, _repository_that_is_a_file,
    _attributes_of_the_storage, _closed_storage,
]  # fmt: skip
ROOT = [_immutable, _device, _another_owner]


class Place:
    def __init__(self, mirror: Mirror, repo: Repo, folder: Path) -> None:
        self.mirror, self.spec = mirror, WorkspaceSpec(repo=repo.url)
        self.storage, self.outside = folder / "storage", folder / "outside"
        self.outside.mkdir()
        (self.outside / "precious").write_text("precious")

    async def prepare(self) -> None:
        await prepare(self.mirror, self.spec, self.storage, no_setup)

    async def clean(self) -> None:
        await prepare(self.mirror, self.spec, self.storage, no_setup)

    def listing(self) -> dict[str, tuple[int, bytes]]:
        """Everything, but for what holds times."""
        found = {}
        for path in self.storage.rglob("*"):
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            timed = path.name == "index"
            found[str(path.relative_to(self.storage))] = path.lstat().st_mode, b"" if timed else content
        return found


@pytest.fixture
async def place(mirror: Mirror, repo: Repo, tmp_path: Path) -> Place:
    made = Place(mirror, repo, tmp_path)
    await made.prepare()
    return made


@pytest.mark.parametrize(
    "plant", [*EVERYBODY, *(pytest.param(each, marks=AS_ROOT) for each in ROOT)], ids=lambda each: each.__name__[1:]
)
async def test_clean_leaves_nothing_of_what_was_planted(place: Place, plant: Plant) -> None:
    pristine, mode = place.listing(), place.storage.stat().st_mode
    plant(place.storage, place.outside)
    await place.clean()
    assert place.listing() == pristine
    assert place.storage.stat().st_mode == mode
    assert os.listxattr(place.storage) == []
    assert place.storage.stat().st_uid == os.geteuid()
    assert os.listdir(place.outside) == ["precious"]
    assert (place.outside / "precious").read_text() == "precious"


async def test_clean_takes_the_newest_commit(place: Place, repo: Repo) -> None:
    new = repo.commit("later")
    await place.mirror.refresh(Source(repo.url))
    made = await prepare(place.mirror, place.spec, place.storage, no_setup)
    assert made is not None and made.commit == new


async def test_while_something_still_writes_the_instance_must_be_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.listxattr

    def meanwhile(path: int) -> list[str]:
        (place.storage / "again").touch()
        return listed(path)

    monkeypatch.setattr(os, "listxattr", meanwhile)
    with pytest.raises(MustReplace, match=r"again.*the instance must be replaced"):
        await place.clean()


async def test_what_takes_too_long_to_remove_means_a_replacement(place: Place) -> None:
    _many_files(place.storage, place.outside)
    with pytest.raises(MustReplace, match="takes too long"):
        discard(place.storage, seconds_max=0)


@AS_ROOT
async def test_a_mount_in_the_storage_is_not_entered_and_means_a_replacement(place: Place) -> None:
    mounted = place.storage / "mounted"
    mounted.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    tmpfs = [b"none", os.fsencode(mounted), b"tmpfs", 0, None]
    if libc.mount(*tmpfs) != 0:
        pytest.skip("this root may not mount")
    try:
        (mounted / "theirs").touch()
        with pytest.raises(MustReplace, match="another file system"):
            await place.clean()
        assert (mounted / "theirs").exists()
    finally:
        libc.umount2(os.fsencode(mounted), 2)


async def test_a_storage_that_is_a_link_is_not_followed(place: Place) -> None:
    linked = place.storage.with_name("linked")
    linked.symlink_to(place.outside)
    with pytest.raises(OSError):
        discard(linked, seconds_max=SECONDS_MAX)
    assert os.listdir(place.outside) == ["precious"]


@pytest.mark.parametrize("plant", [_hook, _setting, _attributes, _setuid_file, _beside_the_tree, _special_files,
                                   _links_outside, _repository_that_is_a_file])  # fmt: skip
async def test_a_storage_that_is_not_as_new_is_found_out(place: Place, plant: Plant) -> None:
    verify(place.storage, ("repo", "home"))
    plant(place.storage, place.outside)
    with pytest.raises(MustReplace):
        verify(place.storage, ("repo", "home"))
