"""The one parser of tar: it takes what tar programs write, however it is cut into pieces."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.trees import archive as module
from rota.trees.archive import Archive, Member
from rota.trees.bounds import EXTENDED_BYTES_MAX
from rota.trees.failing import FileFailed

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
NAMES = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
        lambda part: part not in (".", "..")
    ),
    min_size=1,
    max_size=4,
).map("/".join)


def made(files: dict[str, bytes], format_: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def parsed(data: bytes, piece_bytes: int) -> dict[str, bytes]:
    archive = Archive()
    found: dict[str, bytes] = {}
    name = ""
    for start in range(0, len(data), piece_bytes):
        for event in archive.feed(data[start : start + piece_bytes]):
            if isinstance(event, Member):
                name = event.name
                found[name] = b""
            else:
                assert isinstance(event, bytes)
                found[name] += event
    archive.end()
    return found


@given(
    st.dictionaries(NAMES, st.binary(max_size=1500), max_size=5),
    st.sampled_from(FORMATS[1:]),
    st.integers(1, 2000),
)
def test_what_a_tar_holds_is_found_however_it_comes(files: dict[str, bytes], format_: int, piece_bytes: int) -> None:
    assert parsed(made(files, format_), piece_bytes) == files


@pytest.mark.parametrize("format_", FORMATS)
def test_long_names_are_whole(format_: int) -> None:
    name = "/".join(["folder-with-a-long-name"] * (5 if format_ == tarfile.USTAR_FORMAT else 30))
    assert parsed(made({name: b"x"}, format_), 100) == {name: b"x"}


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_damage_is_refused_or_harmless(noise: bytes, at: int) -> None:
    data = bytearray(made({"a/b": b"x" * 700, "c": b""}, tarfile.PAX_FORMAT))
    data[at : at + len(noise)] = noise
    try:
        found = parsed(bytes(data), 512)
    except FileFailed:
        return
    assert not any(name.startswith("/") or ".." in name.split("/") for name in found)


def test_a_name_without_end_is_not_held() -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, EXTENDED_BYTES_MAX + 1
    with pytest.raises(FileFailed, match="at most 65536 bytes"):
        list(Archive().feed(info.tobuf(tarfile.GNU_FORMAT)))


@pytest.mark.parametrize(("bound", "said"), [("ARCHIVE_MEMBERS_MAX", "2 members"), ("ARCHIVE_BYTES_MAX", "2 bytes")])
def test_a_tree_has_bounds(monkeypatch: pytest.MonkeyPatch, bound: str, said: str) -> None:
    monkeypatch.setattr(module, bound, 2)
    with pytest.raises(FileFailed, match=said) as caught:
        parsed(made({"a": b"x", "b": b"x", "c": b"x"}, tarfile.PAX_FORMAT), 4096)
    assert caught.value.reason == "TooLarge"


def test_a_sparse_file_is_refused() -> None:
    info = tarfile.TarInfo("sparse")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "x"}
    with pytest.raises(FileFailed, match="sparse"):
        list(Archive().feed(info.tobuf(tarfile.PAX_FORMAT)))
