"""`rota doctor`: what this host has and lacks, and what each thing is for."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rota.cli.command import command
from rota.cli.output import print_line, style_of
from rota.cli.session import Session

SQLITE_NEEDED = (3, 35, 0)
FREE_BYTES_WANTED = 1 << 30
CLOCK_EARLIEST = 1_704_067_200
"""2024: a clock before that was never set."""
NETWORK_FILE_SYSTEMS = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs"))
MOUNTS = Path("/proc/mounts")
LIMITS = {"cpu": "CPU", "memory": "memory", "pids": "processes"}
"""The resources that a cgroup can limit, by the kernel's names."""


class Finding(NamedTuple):
    """The result of one check."""

    state: str
    """`ok`, `missing` (something does not work) or `absent` (nothing needs it)."""
    what: str
    found: str
    purpose: str


@command
async def doctor(session: Session) -> None:
    """Say what this host has and lacks, and what each thing is for. Changes nothing."""
    home = session.settings.home_path
    findings = [*_software(), *_processes(), await _containers(), *_home(home), _clock()]
    width = max(len(finding.what) for finding in findings)
    for state, what, found, purpose in findings:
        print_line((f"{state:<8}", style_of(state)), (f"{what:<{width}}  ", "bold"), found)
        print_line(" " * (10 + width), (purpose, "dim"))
    missing, absent = ([each.what for each in findings if each.state == state] for state in ("missing", "absent"))
    print_line("")
    print_line(f"To put right: {', '.join(missing)}." if missing else "Everything that Rota needs is here.")
    if absent:
        print_line(f"It does without {', '.join(absent)}, and offers that much less.")


def _software() -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding(
        "ok" if sys.version_info >= (3, 11) else "missing",
        "Python",
        f"{python} ({sys.executable})",
        "runs Rota; 3.11 or newer",
    )
    import sqlite3

    new = sqlite3.sqlite_version_info >= SQLITE_NEEDED
    needed = ".".join(map(str, SQLITE_NEEDED))
    yield Finding("ok" if new else "missing", "SQLite", sqlite3.sqlite_version, f"keeps all objects; {needed} or newer")
    yield _module("uvloop", "a faster event loop for the server; without it, Python's own is used")
    yield _tls()
    yield _program(("kubectl",), "the usual client of Kubernetes; it works with Rota, and is not needed")
    yield _program(("git",), "fetches the repositories of Workspaces")


def _module(name: str, purpose: str) -> Finding:
    from importlib import metadata

    try:
        return Finding("ok", name, metadata.version(name), purpose)
    except metadata.PackageNotFoundError:
        return Finding("absent", name, f"not installed; pip install {name}", purpose)


def _tls() -> Finding:
    purpose = "encrypts what goes over the network; the local socket does without"
    try:
        import ssl
    except ImportError:
        return Finding("missing", "TLS", "this Python has no ssl module", purpose)
    return Finding("ok" if ssl.HAS_TLSv1_3 else "missing", "TLS", ssl.OPENSSL_VERSION, purpose)


def _program(names: tuple[str, ...], purpose: str) -> Finding:
    found = [path for path in map(shutil.which, names) if path]
    what = " or ".join(names)
    return Finding("ok", what, ", ".join(found), purpose) if found else Finding("absent", what, "not found", purpose)


def _processes() -> Iterator[Finding]:
    """Check the process runtime: which limits and which isolation instances can have."""
    from rota.runtime import sandbox

    yield _cgroups()
    ok, why_not = sandbox.available()
    purpose = "keeps the processes of an instance out of your files, and out of each other's"
    whose = "a uid of its own each" if os.geteuid() == 0 else "your own uid"
    found = f"bubblewrap works, with {whose}" if ok else why_not
    yield Finding("ok" if ok else "missing", "sandbox", found, purpose)
    yield Finding(
        "ok" if ok else "missing",
        "isolation",
        "sandbox"
        if ok
        else "none: what an admin starts runs as this user, what others start is refused;"
        " install the package bubblewrap",
        "what pools and functions get, unless they say otherwise",
    )


def _cgroups() -> Finding:
    purpose = "limits instances, and ends all of their processes at once"
    if sys.platform != "linux":
        return Finding("absent", "cgroups", f"not on {sys.platform}; process groups are used instead", purpose)
    from rota.runtime.keeper.cgroup import Cgroups

    # The keeper makes groups in the same way. Trying is the only check.
    groups = Cgroups.make(f"rota-doctor-{os.getpid()}")
    if groups is None:
        found = "this user can make none of version 2; `systemd-run --user --scope -p Delegate=yes rota up` may"
        return Finding("absent", "cgroups", found, purpose)
    held = [name for file, name in LIMITS.items() if (groups.path / f"{file}.max").exists()]
    where = groups.path.parent
    groups.remove()
    limits = (
        f"limits of {', '.join(held)}"
        if held
        else "no limits, which are held in version 1 here (boot with cgroup_no_v1=all)"
    )
    return Finding("ok", "cgroups", f"can be made below {where}; {limits}", purpose)


async def _containers() -> Finding:
    from rota.runtime.container import available

    purpose = "runs instances of the runtime `container`; processes do without"
    engine, why_not = await available()
    if engine is None:
        return Finding("absent", "containers", why_not, purpose)
    facts = engine.facts
    parts = [
        f"{facts.engine} {facts.version}{', without root' if facts.is_rootless else ''}",
        f"limits of {facts.limits}" if facts.limits else "no limits are held",
    ]
    if facts.needed:
        parts.append(f"this host needs {facts.needed}")
    parts.append(f"isolation gvisor by {facts.gvisor}" if facts.gvisor else f"no isolation gvisor: {facts.no_gvisor}")
    return Finding("ok", "containers", "; ".join(parts), purpose)


def _home(home: Path) -> Iterator[Finding]:
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    kind = file_system(place, _mounts())
    shared = kind in NETWORK_FILE_SYSTEMS
    purpose = "where the server keeps everything ($ROTA_HOME)"
    where = f"{home} on {kind or 'an unknown file system'}"
    if shared:
        yield Finding("missing", "home", f"{where}: SQLite's locks are not safe there; use a local disk", purpose)
    elif not os.access(place, os.W_OK):
        yield Finding("missing", "home", f"{where}: this user may not write there", purpose)
    elif home.exists() and home.stat().st_mode & 0o077:
        yield Finding("missing", "home", f"{where}: others may look into it; chmod 700 {home}", purpose)
    else:
        yield Finding("ok", "home", where + ("" if home.exists() else " (made by `rota start`)"), purpose)
    free = shutil.disk_usage(place).free
    enough = free >= FREE_BYTES_WANTED
    yield Finding(
        "ok" if enough else "missing", "free disk", f"{free / (1 << 30):.1f} GiB", "1 GiB or more is wanted there"
    )


def _mounts() -> str:
    try:
        return MOUNTS.read_text()
    except OSError:
        return ""


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system of a path, from a table in the form of /proc/mounts."""
    best, found = "", ""
    resolved = str(path.resolve())
    for entry in mounts.splitlines():
        _, point, kind, *_ = entry.split()
        point = point.replace("\\040", " ")
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, kind
    return found


def _clock() -> Finding:
    import time

    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    purpose = "schedules, leases and certificates go by it"
    if now < CLOCK_EARLIEST:
        return Finding("missing", "clock", f"{text}: it was never set", purpose)
    return Finding("ok", "clock", text, purpose)
