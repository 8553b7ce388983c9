"""The protocol of the keeper and its clients: lines of JSON on a Unix socket.

A request is `{"id", "verb", …}` and is answered once, in no particular order, by `{"id", "ok": …}` or `{"id", "error":
{"reason", "message"}}`. A line with `event` is a notification. The first request is `hello`. Unknown fields are ignored
on both sides, so fields can be added without a new version; a new version means that a verb has another meaning.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

VERSION = 1

# Requests that a client of any version may send, so that an upgraded server can inspect and end an older keeper.
VERBS_OF_ALL_VERSIONS = frozenset({"hello", "list", "shutdown"})

CHILDREN_MAX = 4096
CHILDREN_LEAST = 16
EXECS_MAX = 256
EXECS_LEAST = 8
"""The least number of commands that each tenant may run, while the keeper has room."""
RECORDS_MAX = 8192
CONNECTIONS_MAX = 64
KEY_CHARS_MAX = 256
RUN_CHARS_MAX = 128
LOG_PATH_CHARS_MAX = 1024
# More than the kernel accepts in one execve, as JSON.
REQUEST_BYTES_MAX = 4 * 1024 * 1024
# A client that lets more pile up is disconnected; it reconnects and gets a snapshot. All records fit in it.
BACKLOG_BYTES_MAX = 32 * 1024 * 1024
DESCRIPTORS_PENDING_MAX = 12
LISTENERS_MAX = 8
# After this time without a server, connections to its ports are closed; before, they wait for the next server.
WAIT_FOR_SERVER_SECONDS = 10.0

ORPHAN_SECONDS = 600.0
# Short enough that a server told to end has ended everything within five seconds.
STOP_GRACE_SECONDS = 3.0
STOP_GRACE_SECONDS_MAX = 24 * 3600.0

LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_FILES_MAX = 3
LOG_FILES_LIMIT = 100

LEASE_ENDED = "LeaseEnded"
"""The reason in the record of a child that was ended because nobody extended its lease."""

# Exit codes of `python -m rota.runtime.keeper`.
EXIT_ALREADY_RUNS = 3
EXIT_CANNOT_START = 4


def hash_of(key: str) -> str:
    """Return the name of a key's record and cgroup."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def name_of(home: Path) -> str:
    """Return the name of a home's keeper and of its cgroup. A copy of the home has another name."""
    return f"rota-{hash_of(str(home.resolve()))}"
