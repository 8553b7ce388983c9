"""The container engine of this host: found by trying when it is first needed, and remembered in the home."""

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
from rota.runtime.container.dialect import Facts
from rota.runtime.container.engine import Engine
from rota.runtime.container.trial import ask_docker, try_podman

REMEMBERED = "container-engine.json"
RETRY_SECONDS = 60
"""Seconds after which a host without an engine is tried again."""
ENGINES: tuple[tuple[str, Callable[[str], Awaitable[Facts | str]]], ...] = (
    ("podman", try_podman),
    ("docker", ask_docker),
)
MISSING = "neither podman nor docker is installed; install the package podman"
# The answer depends on these: when one changes, the engines are tried again.
PROGRAMS = ("podman", "docker", "conmon", "crun", "runc", "runsc")
SETTINGS = (
    "/etc/containers/containers.conf",
    "/usr/share/containers/containers.conf",
    "/proc/sys/kernel/random/boot_id",
)
USERS_SETTINGS = "containers/containers.conf"


class EngineAvailability(NamedTuple):
    """The engine of this host. If it is None, `why_not` has the reason, and what to do."""

    engine: Engine | None
    why_not: str


class _Remembered(Struct):
    fingerprint: str
    facts: Facts


class _Answer(NamedTuple):
    fingerprint: str
    time: float
    found: EngineAvailability


_answer: _Answer | None = None
_locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()


async def available(home: Path | None = None) -> EngineAvailability:
    """Return the engine to use. The first call takes some seconds, later ones next to nothing.

    home  the folder in which the engine is remembered for the next process; None: it is not remembered
    """
    global _answer
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        fingerprint = _fingerprint()
        if _answer is not None and _answer.fingerprint == fingerprint and _is_good(_answer):
            return _answer.found
        facts = _recalled(home, fingerprint) if home is not None else None
        found = await _found() if facts is None else EngineAvailability(Engine(facts), "")
        if home is not None and facts is None and found.engine is not None:
            _remember(home, _Remembered(fingerprint, found.engine.facts))
        _answer = _Answer(fingerprint, time.monotonic(), found)
        return found


def forget() -> None:
    """Try again at the next call of `available`."""
    global _answer
    _answer = None


def _is_good(answer: _Answer) -> bool:
    return answer.found.engine is not None or time.monotonic() - answer.time < RETRY_SECONDS


async def _found() -> EngineAvailability:
    if sys.platform != "linux":
        return EngineAvailability(None, f"containers are run on Linux only, and this is {sys.platform}")
    reasons = []
    for name, find_out in ENGINES:
        program = _program(name)
        if program is None:
            continue
        result = await find_out(program)
        if isinstance(result, Facts):
            return EngineAvailability(Engine(result), "")
        reasons.append(f"{name} cannot run a container: {result}")
    return EngineAvailability(None, "; ".join(reasons) or MISSING)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}")


def _fingerprint() -> str:
    """Return a hash of what determines the engine to use, as far as it can be read without a trial."""
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


def _recalled(home: Path, fingerprint: str) -> Facts | None:
    try:
        remembered = msgspec.json.decode((home / REMEMBERED).read_bytes(), type=_Remembered)
    except (OSError, msgspec.MsgspecError):
        return None
    return remembered.facts if remembered.fingerprint == fingerprint else None


def _remember(home: Path, what: _Remembered) -> None:
    """Remember an engine. A home that cannot be written to is ignored."""
    new = home / f"{REMEMBERED}.{os.getpid()}"
    with contextlib.suppress(OSError):
        new.write_bytes(msgspec.json.encode(what))
        new.replace(home / REMEMBERED)
