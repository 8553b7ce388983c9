"""What a job reads from its standard input, as a descriptor."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from collections.abc import Iterator


@functools.cache
def _nothing() -> int:
    """Kept open: most jobs read nothing."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def given(content: bytes) -> Iterator[int]:
    """A file without a name, which is read from its beginning. It cannot be written to, and needs nobody to feed it."""
    if not content:
        yield _nothing()
        return
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)
