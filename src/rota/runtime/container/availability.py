"""Which engine this host has: found out once, when it is first asked for, and remembered in the home."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import resource
import shutil
import sys
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from rota.runtime.container.client import PATH
from rota.runtime.container.engine import Engine
from rota.runtime.container.facts import Facts
from rota.runtime.container.trial import ask_docker, try_podman

REMEMBERED = "container-engine.json"
RETRY_SECONDS = 60
"""That there is none is looked at again after this: somebody may have put it right."""
ENGINES: tuple[tuple[str, Callable[[str], Awaitable[Facts | str]]], ...] = (
    ("podman", try_podman),
    ("docker", ask_docker),
)
MISSING = "neither podman nor docker is installed; install the package podman"
# What the answer depends on: when one of these changes, it is found out anew.
PROGRAMS = ("podman", "docker", "conmon", "crun", "runc", "runsc")
SETTINGS = (
    "/etc/containers/containers.conf",
    "/usr/share/containers/containers.conf",
    "/proc/sys/kernel/random/boot_id",
)
USERS_SETTINGS = "containers/containers.conf"


class Found(NamedTuple):
    """The engine of this host; if there is none, why, and what to do about it."""

    engine: Engine | None
    why_not: str


class _Remembered(Struct):
    seen: str
    facts: Facts


class _Answer(NamedTuple):
    seen: str
    time: float
    found: Found


_answer: _Answer | None = None
_locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()


async def available(home: Path | None = None) -> Found:
    """The engine to use. Takes a moment when it is first asked for, and next to nothing afterwards.

    home  where an engine that was found is remembered, so that the next process need not try; None: try, leave nothing
    """
    global _answer
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        seen = _seen()
        if _answer is not None and _answer.seen == seen and _is_good(_answer):
            return _answer.found
        facts = _recalled(home, seen) if home is not None else None
        found = await _found() if facts is None else Found(Engine(facts), "")
        if home is not None and facts is None and found.engine is not None:
            _remember(home, _Remembered(seen, found.engine.facts))
        _answer = _Answer(seen, time.monotonic(), found)
        return found


def forget() -> None:
    """Find out anew when next asked."""
    global _answer
    _answer = None


def _is_good(answer: _Answer) -> bool:
    return answer.found.engine is not None or time.monotonic() - answer.time < RETRY_SECONDS


async def _found() -> Found:
    if sys.platform != "linux":
        return Found(None, f"containers are run on Linux only, and this is {sys.platform}")
    reasons = []
    for name, find_out in ENGINES:
        program = _program(name)
        if program is None:
            continue
        result = await find_out(program)
        if isinstance(result, Facts):
            return Found(Engine(result), "")
        reasons.append(f"{name} cannot run a container: {result}")
    return Found(None, "; ".join(reasons) or MISSING)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}")


def _seen() -> str:
    """All that the answer depends on, as far as that can be told without trying."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / USERS_SETTINGS
    paths = [*map(_program, PROGRAMS), *SETTINGS, str(own), os.environ.get("CONTAINERS_CONF")]
    limits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)]
    host = (platform.release(), os.geteuid(), limits, os.environ.get("DOCKER_HOST"), os.environ.get("DOCKER_CONTEXT"))
    return hashlib.sha256(repr((host, [_state(path) for path in paths if path])).encode()).hexdigest()


def _state(path: str) -> tuple[str, int, int] | str:
    if path.startswith("/proc/"):
        with contextlib.suppress(OSError):
            return Path(path).read_text()
        return ""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return path, status.st_mtime_ns, status.st_size


def _recalled(home: Path, seen: str) -> Facts | None:
    try:
        remembered = msgspec.json.decode((home / REMEMBERED).read_bytes(), type=_Remembered)
    except (OSError, msgspec.MsgspecError):
        return None
    return remembered.facts if remembered.seen == seen else None


def _remember(home: Path, what: _Remembered) -> None:
    """A home that cannot be written to is no reason to have no engine."""
    new = home / f"{REMEMBERED}.{os.getpid()}"
    with contextlib.suppress(OSError):
        new.write_bytes(msgspec.json.encode(what))
        new.replace(home / REMEMBERED)
