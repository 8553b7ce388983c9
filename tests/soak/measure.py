"""The memory, disk and descriptors of a server, its keeper and its home at one moment."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from rota.client.http import HttpBackend
from rota.runtime.runner.agent import descendants
from rota.server.home import Home

MIB = 1024 * 1024
TABLE = re.compile(r'^rota_table_entries\{table="([^"]+)"\} (\d+)', re.MULTILINE)


class NoServerError(Exception):
    """There is no server at the moment, or it went while it was looked at."""


def server_pid(home: Path) -> int:
    pid = Home(home).server_pid()
    if not pid:
        raise NoServerError
    return pid


def measures(home: Path) -> dict[str, float]:
    """Memory, descriptors, threads, processes, files and the size of the store, by name."""
    try:
        server, keeper = server_pid(home), keeper_pid(home)
        return {
            "memory_mb": _anonymous_mb(server),
            "keeper_mb": _anonymous_mb(keeper) if keeper else 0.0,
            "descriptors": float(len(os.listdir(f"/proc/{server}/fd"))),
            "threads": float(len(os.listdir(f"/proc/{server}/task"))),
            "processes": float(len(descendants(keeper))) if keeper else 0.0,
            "files": float(sum(len(names) for _, _, names in os.walk(home))),
            "store_mb": sum(path.stat().st_size for path in home.glob("rota.db*")) / MIB,
        }
    except (FileNotFoundError, ProcessLookupError):
        raise NoServerError from None


async def tables(backend: HttpBackend) -> dict[str, int]:
    """The sizes of the server's tables, as its metrics tell them."""
    return table_sizes(await metrics(backend))


async def metrics(backend: HttpBackend) -> str:
    return (await backend.raw("GET", "/v1/metrics")).body.decode()


def table_sizes(text: str) -> dict[str, int]:
    return {name: int(count) for name, count in TABLE.findall(text)}


def keeper_pid(home: Path) -> int:
    """The process that keeps the children of a home; 0: there is none."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "rota.runtime.keeper" in words and any(one.startswith(str(home)) for one in words):
                status = Path("/proc", name, "status").read_text()
                found[int(name)] = int(status.partition("PPid:")[2].split()[0])
    # Of a keeper and what it forked, the keeper is the one that none of them is the parent of.
    return next((pid for pid, parent in found.items() if parent not in found), 0)


def _anonymous_mb(pid: int) -> float:
    """Without what is mapped from files, which the system takes back when it needs to."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise NoServerError
    return int(found[1]) / 1024
