"""`make quick`: the tests that need no process, no socket and no disk beyond a temporary folder.

They are marked by where they are. While one runs, starting a process and opening a connection are refused, so that a
test which needs either says so at once and is moved out of here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

QUICK = (
    "tests/api/",
    "tests/control/",
    "tests/engine/",
    "tests/engine_loop/",
    "tests/manifest/",
    "tests/pools/",
    "tests/registry/",
    "tests/schedules/",
    "tests/store/",
    "tests/testing/",
    "tests/websocket/test_framing.py",
)
"""Folders, which end with a slash, and files, from the root of the sources."""
NEEDS_MORE = (
    "tests/control/making/",
    "tests/control/running/test_chaos.py",
    "tests/control/running/test_containers.py",
    "tests/control/running/test_processes.py",
    "tests/schedules/test_once.py",
    "tests/store/test_crash.py",
    "tests/store/test_failures.py",
    "tests/store/test_file.py",
)
"""Quick tests that start processes."""
TAKES_LONG = (
    "tests/api/test_cron.py",
    "tests/api/test_form.py",
    "tests/control/cells/test_scale.py",
    "tests/control/cells/test_storm.py",
    "tests/pools/test_cost.py",
    "tests/schedules/test_month.py",
)
"""Quick tests that take most of the time."""

REFUSED = frozenset(
    (
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
    )
)
"""Events of the interpreter (https://docs.python.org/3/library/audit_events.html)."""


class NotInMemoryError(RuntimeError):
    """A quick test started a process or opened a connection."""


_refusals: list[str] | None = None
_watching = False


def is_quick(nodeid: str) -> bool:
    return nodeid.startswith(QUICK) and not nodeid.startswith((*NEEDS_MORE, *TAKES_LONG))


@contextmanager
def in_memory() -> Iterator[None]:
    """Refuse processes and connections. Raises at the end, too, if the code under test has caught a refusal."""
    global _refusals, _watching
    if not _watching:
        # There is no way to take it away again.
        sys.addaudithook(_refuse)
        _watching = True
    refusals: list[str] = []
    _refusals = refusals
    try:
        yield
    finally:
        _refusals = None
    if refusals:
        raise NotInMemoryError(f"{', '.join(sorted(set(refusals)))}: this test belongs in NEEDS_MORE of tests/quick.py")


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if _refusals is not None and event in REFUSED:
        _refusals.append(event)
        raise NotInMemoryError(f"{event}{args!r:.200}: a quick test does no such thing (tests/quick.py)")
