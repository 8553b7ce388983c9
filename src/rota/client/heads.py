"""Write the heads of requests."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TARGET = re.compile(r"/[!-~]*")
_NAME = re.compile(r"[!-9;-~]+")
_VALUE = re.compile(r"[ -~]*")
METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))


def head(method: str, target: str, headers: Iterable[tuple[str, str]] = ()) -> str:
    """Return the request line and the headers, without the empty line at the end. Raises ValueError for invalid
    ones."""
    if method not in METHODS or not _TARGET.fullmatch(target):
        raise ValueError(f"{method} {target!r} is no request: a path begins with / and is percent-encoded")
    return f"{method} {target} HTTP/1.1\r\n{lines(headers)}"


def lines(headers: Iterable[tuple[str, str]]) -> str:
    """Return headers as they are sent. Raises ValueError for a value that could end its line."""
    return "".join([_header_line(name, value) for name, value in headers])


def _header_line(name: str, value: str) -> str:
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError(f"the header {name!r} is not printable ASCII")
    return f"{name}: {value}\r\n"


def authority(host: str, port: int) -> str:
    """Return host and port as in URLs and in the Host header: an IPv6 address in brackets, and no port if it is 0."""
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{port}" if port else name
