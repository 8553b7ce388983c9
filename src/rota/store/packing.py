"""The packing of cold objects, which have not been written for a while.

Objects of one kind are similar. Compressed with a sample as the dictionary, each takes a tenth of its size or less, and
is unpacked in a few microseconds, less than it takes to decode it. Recently written objects are not packed: the rings
hold their bytes anyway, and most are written again soon. Nor are those of small buckets, which are listed faster so.
"""

from __future__ import annotations

import zlib

from msgspec import Struct

from rota.store.model import Entry

BUCKET_BYTES_MIN = 16 * 1024 * 1024
"""Buckets below this size are not packed."""
PACKED_BYTES_MIN = 400
"""Smaller objects are not packed."""
PACKED_SHARE_MAX = 2
"""An object must shrink to this fraction, or it is not packed."""
GOOD_SHARE_MAX = 4
SAMPLE_POOR_MAX = 32
"""Number of objects that do not shrink to one part in `GOOD_SHARE_MAX` before a new sample is taken."""
LEVEL = 3
WINDOW_BITS = 13
"""A bigger window takes longer to set up and saves little for objects of a few KiB."""
SAMPLE_BYTES_MAX = 1 << WINDOW_BITS


class Packed(Struct, frozen=True, gc=False):
    """A compressed `Entry`. The sample is shared."""

    key: str
    packed: bytes
    rev: int
    sample: bytes

    def entry(self) -> Entry:
        return Entry(self.key, zlib.decompressobj(-WINDOW_BITS, self.sample).decompress(self.packed), self.rev)


class Packer:
    """Packs entries of one bucket."""

    __slots__ = ("_poor", "_sample", "used")

    def __init__(self) -> None:
        self._sample = b""
        self._poor = 0
        self.used = False
        """True if some entries may be packed."""

    def pack(self, entry: Entry) -> Entry | Packed:
        """Return the entry, packed if that is worthwhile."""
        value, sample = entry.value, self._sample
        if len(value) < PACKED_BYTES_MIN:
            return entry
        if not sample:
            self._sample = value[:SAMPLE_BYTES_MAX]
            return entry
        press = zlib.compressobj(LEVEL, zlib.DEFLATED, -WINDOW_BITS, zdict=sample)
        packed = press.compress(value) + press.flush()
        if len(packed) * GOOD_SHARE_MAX > len(value):
            self._poor += 1
            if self._poor == SAMPLE_POOR_MAX:
                self._sample, self._poor = value[:SAMPLE_BYTES_MAX], 0
        if len(packed) * PACKED_SHARE_MAX > len(value):
            return entry
        self.used = True
        return Packed(entry.key, packed, entry.rev, sample)


def unpacked(entry: Entry | Packed) -> Entry:
    return entry if type(entry) is Entry else entry.entry()  # type: ignore[union-attr]
