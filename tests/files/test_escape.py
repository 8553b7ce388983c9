"""Nothing of the host is reached through the files of an instance, whatever its tenant has planted."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from tests.files.conftest import WAYS, Farm

pytestmark = pytest.mark.parametrize("way", WAYS)
SECRET = "a secret of the host"


@pytest.fixture
def secret(farm: Farm) -> Path:
    """A file of the server's home, which no instance may see."""
    path = farm.live.home / "secret"
    path.write_text(SECRET)
    return path


def archive(*members: tarfile.TarInfo, content: bytes = b"evil") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return made.getvalue()


def member(name: str, type_: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type_, target
    return info


@pytest.mark.parametrize("how", ["link", "folder link", "chain", "path", "climb", "proc root", "proc cwd"])
def test_no_path_and_no_link_leads_to_a_file_of_the_host(farm: Farm, way: str, secret: Path, how: str) -> None:
    farm.shell(
        way,
        f"rm -rf out; mkdir -p out/deep; ln -s {secret} out/link; ln -s {secret.parent} out/folder; "
        f"ln -s ../out/link out/chain; ln -s {'../' * 40}{secret} out/climb",
    )
    path = {
        "link": "out/link",
        "folder link": "out/folder/secret",
        "chain": "out/chain",
        "path": str(secret),
        "climb": "out/climb",
        "proc root": f"/proc/1/root{secret}",
        "proc cwd": f"/proc/self/root{secret}",
    }[how]
    for answer in (
        farm.get(way, path),
        farm.get(way, path, stat="true"),
        farm.ask("GET", way, path, what="archive"),
    ):
        assert answer.status in (400, 403, 404) and SECRET not in answer.body.decode()


@pytest.mark.parametrize("how", ["{}", "out/folder/{name}", "out/climb/{name}"])
def test_nothing_is_written_to_or_removed_from_the_host(farm: Farm, way: str, secret: Path, how: str) -> None:
    home = secret.parent
    farm.shell(way, f"rm -rf out; mkdir out; ln -s {home} out/folder; ln -s {'../' * 40}{home} out/climb")
    farm.put(way, how.format(home / "planted", name="planted"), b"evil")
    farm.ask("DELETE", way, how.format(secret, name="secret"))
    farm.ask("PUT", way, how.format(home, name="."), archive(member("planted")), what="archive")
    assert not (home / "planted").exists() and secret.read_text() == SECRET


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(farm: Farm, way: str, secret: Path) -> None:
    farm.shell(way, f"rm -rf out; mkdir out; ln -s {secret} out/link")
    assert farm.put(way, "out/link", b"mine").status == 200
    assert farm.get(way, "out/link").body == b"mine" and secret.read_text() == SECRET


def test_a_tree_holds_links_as_links(farm: Farm, way: str, secret: Path) -> None:
    farm.shell(way, f"rm -rf out; mkdir out; ln -s {secret} out/link; ln -s {secret.parent} out/folder")
    packed = farm.ask("GET", way, "out", what="archive").body
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [one.issym() for one in tar] == [True, True]
    assert SECRET.encode() not in packed


EVIL = {
    "absolute": [member("/tmp/rota-evil")],
    "dots": [member("../../rota-evil")],
    "dots within": [member("a/../../rota-evil")],
    "link out": [member("l", tarfile.SYMTYPE, "/etc/passwd")],
    "link up": [member("a/l", tarfile.SYMTYPE, "../../x")],
    "through a link": [member("l", tarfile.SYMTYPE, "."), member("l/rota-evil")],
    "hard link out": [member("l", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link up": [member("l", tarfile.LNKTYPE, "../x")],
    "hard link to a link": [member("l", tarfile.SYMTYPE, "x"), member("h", tarfile.LNKTYPE, "l")],
    "device": [member("d", tarfile.CHRTYPE)],
    "block device": [member("d", tarfile.BLKTYPE)],
    "pipe": [member("p", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("members", EVIL.values(), ids=EVIL.keys())
def test_a_tar_with_a_member_that_leaves_is_refused(farm: Farm, way: str, members: list[tarfile.TarInfo]) -> None:
    farm.shell(way, "rm -rf into; mkdir -p into/below")
    answer = farm.ask("PUT", way, "into/below", archive(*members), what="archive")
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest"), answer.json
    assert "rota-evil" not in farm.shell(way, "find into; ls /tmp")
    assert not os.path.exists("/tmp/rota-evil")


def test_a_tar_does_not_go_through_a_link_that_was_there_before(farm: Farm, way: str, secret: Path) -> None:
    farm.shell(
        way, f"rm -rf into; mkdir into; ln -s {secret.parent} into/link; mkdir -p beside; ln -s ../beside into/near"
    )
    assert farm.ask("PUT", way, "into", archive(member("link/planted")), what="archive").status == 400
    assert farm.ask("PUT", way, "into", archive(member("near/planted")), what="archive").status == 400
    assert not (secret.parent / "planted").exists() and farm.shell(way, "ls -A beside") == ""


@pytest.mark.parametrize("data", [b"", b"x" * 2000, archive(member("a"))[:700]], ids=["nothing", "rubbish", "half"])
def test_what_is_no_whole_tar_is_refused(farm: Farm, way: str, data: bytes) -> None:
    answer = farm.ask("PUT", way, "into-none", data, what="archive")
    assert answer.status == (400 if data else 200)


def test_set_user_bits_are_not_taken(farm: Farm, way: str) -> None:
    info = member("bits/program")
    info.mode = 0o6755
    assert farm.ask("PUT", way, ".", archive(info), what="archive").status == 200
    assert farm.shell(way, "stat -c %a bits/program") == "755\n"
    assert farm.put(way, "bits/other", b"", mode="4755").status == 400
