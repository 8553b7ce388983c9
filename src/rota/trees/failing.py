"""The error of operations on files: one word for programs, and a message for people."""

from __future__ import annotations

import errno
import os

_REASONS = {
    errno.ENOENT: "NotFound",
    errno.ENOTDIR: "NotADirectory",
    errno.EISDIR: "IsADirectory",
    errno.ENOTEMPTY: "NotEmpty",
    errno.EACCES: "Forbidden",
    errno.EPERM: "Forbidden",
    errno.EROFS: "Forbidden",
    errno.ELOOP: "BadPath",
    errno.ENAMETOOLONG: "BadPath",
    errno.ENOSPC: "NoSpace",
    errno.EDQUOT: "NoSpace",
    errno.EFBIG: "TooLarge",
}


class FileFailed(Exception):  # noqa: N818 - says what became of it
    """An operation on a file has failed. `reason` is one word for programs."""

    def __init__(self, reason: str, message: str, error: OSError | None = None) -> None:
        """`error`: the error of the kernel, if it was the cause."""
        # A name may have lone surrogates, which cannot be encoded.
        self.message = message.encode("utf-8", "replace").decode()
        super().__init__(self.message)
        self.reason = reason
        self.error = error


def explained(error: OSError, path: str) -> FileFailed:
    """Return an error of the kernel as FileFailed, with the path of the request."""
    reason = _REASONS.get(error.errno or 0, "Failed")
    why = os.strerror(error.errno or 0)
    return FileFailed(reason, f"{path}: {why.lower()}", OSError(error.errno or 0, why, path))
