"""What the keeper and its clients say to each other: lines of JSON on a Unix socket.

A request is `{"id", "verb", …}` and is answered once, in no particular order, by `{"id", "ok": …}` or `{"id", "error":
{"reason", "message"}}`. A line with `event` was not asked for. The first request is `hello`. Unknown fields are ignored
on both sides, so fields can be added without a new version; a new version means that a verb has another meaning.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

VERSION = 1

# What a client of any version may ask, so that an upgraded server can look at, and end, what an older one started.
VERBS_OF_ALL_VERSIONS = frozenset({"hello", "list", "shutdown"})

CHILDREN_MAX = 4096
CHILDREN_LEAST = 16
EXECS_MAX = 256
EXECS_LEAST = 8
"""What each tenant has of them, while there are any."""
RECORDS_MAX = 8192
CONNECTIONS_MAX = 64
KEY_CHARS_MAX = 256
RUN_CHARS_MAX = 128
LOG_PATH_CHARS_MAX = 1024
# More than the kernel takes in one execve, in JSON.
REQUEST_BYTES_MAX = 4 * 1024 * 1024
# A client that does not read so much is cut off; it connects again and is told everything anew. All records fit in it.
BACKLOG_BYTES_MAX = 32 * 1024 * 1024
DESCRIPTORS_PENDING_MAX = 12
LISTENERS_MAX = 8
# Without a server for so long, who connects to its ports is turned away; before, they wait for the next one.
WAIT_FOR_SERVER_SECONDS = 10.0

ORPHAN_SECONDS = 600.0
# So that a server that is told to end has ended with everything within five seconds.
STOP_GRACE_SECONDS = 3.0
STOP_GRACE_SECONDS_MAX = 24 * 3600.0

LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_FILES_MAX = 3
LOG_FILES_LIMIT = 100

# Exit codes of `python -m rota.runtime.keeper`.
EXIT_ALREADY_RUNS = 3
EXIT_CANNOT_START = 4


def hash_of(key: str) -> str:
    """The name of a key's record and cgroup."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def name_of(home: Path) -> str:
    """The name of a home's keeper, and of the cgroup of all that it runs. A copy of the home has another."""
    return f"rota-{hash_of(str(home.resolve()))}"
