"""Parses a tar as it comes: its members, each checked, and their bytes. Only one header is held in memory.

The one parser for all that is unpacked, so that checked and unpacked members cannot differ. It reads the formats that
tar programs write (ustar, GNU's long names, pax), without sparse files.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from rota.trees.bounds import (
    ARCHIVE_BYTES_MAX,
    ARCHIVE_MEMBERS_MAX,
    DEPTH_MAX,
    EXTENDED_BYTES_MAX,
    EXTENDED_LINES_MAX,
    MODE_MASK,
    PATH_BYTES_MAX,
)
from rota.trees.failing import FileFailed
from rota.trees.links import stays_inside

MODIFIED_MAX = 2**33
"""The latest time of a member, in seconds since 1970: later ones are cut to it, as file systems cannot store them."""
BLOCK_BYTES = tarfile.BLOCKSIZE
LENGTH_DIGITS_MAX = len(str(EXTENDED_BYTES_MAX))
FILES = frozenset((tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE))
LONG = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
PAX = tarfile.XHDTYPE
PAX_FOR_ALL = tarfile.XGLTYPE
USED_KEYS = frozenset((b"path", b"linkpath", b"size"))
"""The keys of an extended header that are used."""
SPARSE = b"GNU.sparse"
Type = Literal["file", "directory", "link", "hard link"]


class Member(NamedTuple):
    """A member of a tar, checked."""

    name: str
    """The path in the tree, without `.` and `..`; empty for the tree's own folder."""
    type: Type
    size: int
    mode: int
    modified: float
    target: str = ""
    """The target of a link as the tar has it; of a hard link, a path in the tree."""


class Skipped(NamedTuple):
    """A link that leads out of the tree, and was left out."""

    name: str
    target: str


Event = Member | Skipped | bytes
"""A member or a skipped link; after a file, its bytes piece by piece."""


class Archive:
    """Parses a tar: `feed` it, then call `end`. Raises FileFailed at the first error."""

    def __init__(self, *, skips_leaving_links: bool = False) -> None:
        self._skips = skips_leaving_links
        self._held = bytearray()
        self._state: Callable[[], Iterator[Event] | None] = self._header
        self._said: dict[str, str] = {}
        self._left = 0
        self._padding = 0
        self._shows = False
        self._links: set[int] = set()
        self._files: set[int] = set()
        """Hashes of the names of files, to which hard links may lead. Hashes, since a tar may have many long names."""
        self._extended: Callable[[bytes], None] = lambda data: None
        self._over = False
        self.members = 0
        self.bytes = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events of these bytes. Consume all of them before the next call."""
        self._held += data
        while not self._over:
            found = self._state()
            if found is None:
                return
            yield from found
        self._held.clear()

    def end(self) -> None:
        """Note that the tar has ended. Raises FileFailed if it is not complete."""
        # Some programs leave out the two empty blocks.
        if self._state != self._header or self._said or self._held:
            raise FileFailed("BadArchive", "the tar ends too early")

    # States: each consumes the bytes that it needs, or returns None to wait for more.

    def _header(self) -> Iterator[Event] | None:
        if len(self._held) < BLOCK_BYTES:
            return None
        block = bytes(self._held[:BLOCK_BYTES])
        del self._held[:BLOCK_BYTES]
        if not any(block):
            self._over = True
            return iter(())
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise FileFailed("BadArchive", f"that is no tar: {error}") from None
        if info.size < 0:
            raise FileFailed("BadArchive", "a member of the tar has less than no bytes")
        if info.type in LONG or info.type in (PAX, PAX_FOR_ALL):
            return self._begin_extended(info)
        return self._begin(info)

    def _begin_extended(self, info: tarfile.TarInfo) -> Iterator[Event]:
        if info.size > EXTENDED_BYTES_MAX:
            raise FileFailed("TooLarge", f"the name of a member has at most {EXTENDED_BYTES_MAX} bytes")
        self._left, self._padding = info.size, -info.size % BLOCK_BYTES
        if info.type in LONG:
            self._extended = lambda data: self._said.update({LONG[info.type]: _text(data.rstrip(b"\0"))})
        elif info.type == PAX:
            self._extended = lambda data: self._said.update(_pax(data))
        else:
            self._extended = lambda data: None  # Global headers have only comments of the program.
        self._state = self._extension
        return iter(())

    def _extension(self) -> Iterator[Event] | None:
        if len(self._held) < self._left + self._padding:
            return None
        self._extended(bytes(self._held[: self._left]))
        del self._held[: self._left + self._padding]
        self._state = self._header
        return iter(())

    def _begin(self, info: tarfile.TarInfo) -> Iterator[Event]:
        said, self._said = self._said, {}
        if SPARSE.decode() in said or info.type == tarfile.GNUTYPE_SPARSE:
            raise FileFailed("BadArchive", f"{info.name}: sparse files are not taken; make the tar without --sparse")
        size = _number(said.get("size"), info.size) if info.type in FILES else 0
        member = self._checked(info, said, size)
        self._left, self._padding = size, -size % BLOCK_BYTES
        # In an old format a folder may have bytes after it.
        self._shows = isinstance(member, Member) and member.type == "file"
        self.members += 1
        self.bytes += self._left
        if self.members > ARCHIVE_MEMBERS_MAX:
            raise FileFailed("TooLarge", f"a tree has at most {ARCHIVE_MEMBERS_MAX} members")
        if self.bytes > ARCHIVE_BYTES_MAX:
            raise FileFailed("TooLarge", f"the files of a tree have at most {ARCHIVE_BYTES_MAX} bytes together")
        self._state = self._content
        return iter((member,))

    def _content(self) -> Iterator[Event] | None:
        if self._left:
            piece = bytes(self._held[: self._left])
            if not piece:
                return None
            self._left -= len(piece)
            del self._held[: len(piece)]
            return iter((piece,) if self._shows else ())
        if len(self._held) < self._padding:
            return None
        del self._held[: self._padding]
        self._state = self._header
        return iter(())

    # Checks.

    def _checked(self, info: tarfile.TarInfo, said: dict[str, str], size: int) -> Member | Skipped:
        raw = said.get("path", info.name)
        name = _plain_name(raw)
        mode, modified = info.mode & MODE_MASK, float(min(max(info.mtime, 0), MODIFIED_MAX))
        if (above := self._link_above(name)) is not None:
            raise FileFailed("BadArchive", f"{raw}: it goes through a link of the same tar, {above}")
        if info.type in FILES and not raw.endswith("/"):
            if not name:
                raise FileFailed("BadArchive", f"{raw!r} is no name of a file")
            self._links.discard(hash(name))
            self._files.add(hash(name))
            return Member(name, "file", size, mode, modified)
        if info.type == tarfile.DIRTYPE or info.type in FILES:
            return Member(name, "directory", 0, mode, modified)
        target = said.get("linkpath", info.linkname)
        if info.type == tarfile.LNKTYPE:
            to = _plain_name(target)
            if hash(to) not in self._files or self._link_above(to) is not None:
                raise FileFailed("BadArchive", f"{raw}: it is a hard link to what is no file of the same tar")
            self._links.discard(hash(name))
            self._files.add(hash(name))
            return Member(name, "hard link", 0, mode, modified, to)
        if info.type == tarfile.SYMTYPE:
            if not target or "\0" in target or len(target) > PATH_BYTES_MAX or not name:
                raise FileFailed("BadArchive", f"{raw}: its link leads nowhere")
            if not stays_inside(name, target):
                if self._skips:
                    return Skipped(name, target)
                why = "its link leads out of the tree, or goes up after it went down"
                raise FileFailed("BadArchive", f"{raw}: {why}, to {target}")
            self._links.add(hash(name))
            self._files.discard(hash(name))
            return Member(name, "link", 0, mode, modified, target)
        raise FileFailed("BadArchive", f"{raw}: only files, folders and links are taken, no devices and no pipes")

    def _link_above(self, name: str) -> str | None:
        """Return the first link of this tar that a path goes through."""
        return next((above for above in _parents(name) if hash(above) in self._links), None) if self._links else None


def _plain_name(name: str) -> str:
    """Return the name of a member as a plain path. Raises FileFailed."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise FileFailed("BadArchive", f"{name}: a member's name is relative, and has no '..'")
    if len(parts) > DEPTH_MAX or len(name) > PATH_BYTES_MAX:
        raise FileFailed("BadArchive", f"a member is at most {DEPTH_MAX} folders deep, and {PATH_BYTES_MAX} bytes long")
    return "/".join(parts)


def _parents(name: str) -> Iterator[str]:
    at = name.find("/")
    while at > 0:
        yield name[:at]
        at = name.find("/", at + 1)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _pax(data: bytes) -> dict[str, str]:
    """Parse lines `LENGTH KEY=VALUE` of an extended header. Return the used keys."""
    out: dict[str, str] = {}
    start = lines = 0
    while start < len(data):
        space = data.find(b" ", start, start + LENGTH_DIGITS_MAX + 1)
        length = data[start : max(start, space)]
        end = start + int(length) if length.isdigit() else start
        if not start < space < end <= len(data):
            raise FileFailed("BadArchive", "an extended header of the tar is damaged")
        key, _, value = data[space + 1 : end - 1].partition(b"=")
        if key in USED_KEYS:
            out[_text(key)] = _text(value)
        elif key.startswith(SPARSE):
            out[SPARSE.decode()] = ""
        start, lines = end, lines + 1
        if lines > EXTENDED_LINES_MAX:
            raise FileFailed("TooLarge", f"an extended header of the tar has at most {EXTENDED_LINES_MAX} lines")
    return out


def _number(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise FileFailed("BadArchive", "an extended header of the tar is damaged")
    return int(text)
