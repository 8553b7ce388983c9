"""Writes the options of bubblewrap to a file, and makes the command that reads them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rota.api.egress import Network, Target
from rota.runtime import egress
from rota.runtime.sandbox import filter as calls
from rota.runtime.sandbox import system

TMP_BYTES_MAX = 1 << 30
SHM_BYTES_MAX = 256 << 20
# Nothing is bound at, above or below these: files of an instance would run as part of the system, or as root.
RESERVED = tuple(map(PurePosixPath, ("/proc", "/dev", "/sys", "/boot", "/nix", *system.SYSTEM, *system.MERGED)))
# Folders that exist in each sandbox, or to which nothing can be added.
TMP, ETC = PurePosixPath("/tmp"), PurePosixPath("/etc")
FOLDERS = (*map(PurePosixPath, ("/tmp", "/run", "/var")),)
# A link, through which a bind would end up in another place.
LINK = PurePosixPath("/var/tmp")
# The longest name and path of the kernel, less the prefix that bubblewrap adds.
NAME_BYTES_MAX, PATH_BYTES_MAX = 255, 4000
MADE = (*map(PurePosixPath, (*system.SYSTEM, *system.MERGED, "/tmp")),)
# Files of /proc that change the machine. An instance could write them only as root, which it never is.
SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
# A shell's redirections take one digit.
SINGLE_DIGITS = range(3, 10)
# Capabilities by which the stage becomes another uid, in a user namespace of its own. It drops them at once.
TRANSITION = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")


class Bind(NamedTuple):
    """A file or folder of the host, and its path in the sandbox."""

    source: Path
    target: str


class Command(NamedTuple):
    """An argv to execute, with its complete environment."""

    argv: list[str]
    env: dict[str, str]


class Plan(NamedTuple):
    """The arguments of `command`, which explains them."""

    argv: Sequence[str]
    scratch: Path
    storage: Bind | None
    read_only: Sequence[Bind]
    files: Mapping[str, bytes]
    env: Mapping[str, str]
    cwd: str | None
    network: Network
    uid: int | None
    hostname: str
    hide: Sequence[Path]
    fds: Sequence[int]
    targets: Sequence[Target] = ()
    is_init: bool = False


def compose(plan: Plan) -> Command:
    """Write the scratch folder, and return the command that uses it."""
    _check(plan)
    ways = egress.environment() if plan.network == "egress" else {}
    environment = system.packed_environment(_home(plan), {**ways, **plan.env})
    shutil.rmtree(plan.scratch, ignore_errors=True)
    plan.scratch.mkdir(mode=0o700, parents=True)
    uid = os.geteuid() if plan.uid is None else plan.uid
    arguments = [*_namespaces(plan), *_disk(plan, uid)]
    (plan.scratch / "arguments").write_bytes(b"".join(os.fsencode(each) + b"\0" for each in arguments))
    # If Rota is root, the stage makes the user namespace, after which no other can be made.
    is_staged, machine = plan.uid is not None, platform.machine()
    (plan.scratch / "filter").write_bytes(calls.program(machine, is_last=not is_staged))
    redirected = ["arguments", "filter"]
    if is_staged:
        (plan.scratch / "last-filter").write_bytes(calls.program(machine))
        redirected.append("last-filter")
    digits = [digit for digit in SINGLE_DIGITS if digit not in plan.fds]
    numbers = dict(zip(redirected, digits, strict=False))
    shell = " ".join(['exec "$@"', *(f'{number}<"$0/{name}"' for name, number in numbers.items())])
    bwrap = [system.program("bwrap"), "--args", str(numbers["arguments"]), "--seccomp", str(numbers["filter"]), "--"]
    proxy, launch = "", []
    if plan.network == "egress":
        free = next(digit for digit in digits if digit not in numbers.values())
        proxy = f"{free}:{egress.PORT}"
        launch = egress.launched(plan.scratch, plan.targets, free, plan.uid)
    inside = system.staged(plan.argv, uid, plan.fds, filter_=numbers.get("last-filter"), proxy=proxy)
    return Command(["/bin/sh", "-c", shell, str(plan.scratch), *launch, *bwrap, *inside], environment)


def _namespaces(plan: Plan) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", plan.hostname)
    if plan.network != "host":
        yield "--unshare-net"
    yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL")
    if plan.uid is None:
        yield "--unshare-user"
        # Bubblewrap's own first process would have the uid of all others, and any of them could hide in it.
        if plan.is_init:
            yield "--as-pid-1"
    else:
        for capability in TRANSITION:
            yield from ("--cap-add", capability)


def _disk(plan: Plan, uid: int) -> Iterator[str]:
    system_binds = [Bind(folder, str(folder)) for folder in system.python_folders()]
    masks = sorted({*_masks(plan, [*map(_same, system.SYSTEM), *system_binds, *plan.read_only])})
    links = system.python_links()
    shown = [*system.ETC, *(bind.target for bind in (*system_binds, *plan.read_only)), *plan.files, _home(plan)]
    shown += map(str, links)
    # First, since binds may lie below it: Rota itself may be installed there.
    yield from ("--size", str(TMP_BYTES_MAX), "--perms", "1777", "--tmpfs", "/tmp")
    yield from _parents(shown)
    yield from system.options()
    for bind in system_binds:
        yield from ("--ro-bind", str(bind.source), bind.target)
    for link in links:
        yield from ("--symlink", os.path.realpath(sys.executable), str(link))
    yield from ("--proc", "/proc", "--dev", "/dev")
    for place in filter(os.path.exists, SETTINGS):
        yield from ("--ro-bind", place, place)
    yield from ("--size", str(SHM_BYTES_MAX), "--perms", "1777", "--tmpfs", "/dev/shm")
    own = plan.scratch / "etc"
    own.mkdir()
    networked = plan.network == "host"
    for name, content in system.etc(uid, _home(plan), plan.hostname, networked=networked).items():
        (own / name).write_text(content, encoding="utf-8")
        (own / name).chmod(0o444)
        yield from ("--ro-bind", str(own / name), f"/etc/{name}")
    for bind in plan.read_only:
        yield from ("--ro-bind", str(bind.source), bind.target)
    for mask in masks:
        yield from ("--perms", "0755", "--tmpfs", mask)
    yield from _files(plan, uid)
    if plan.storage is not None:
        yield from ("--bind", str(plan.storage.source), plan.storage.target)
    for place in (*masks, "/dev", "/"):
        yield from ("--remount-ro", place)
    yield from ("--chdir", plan.cwd or _home(plan))


def _parents(targets: Sequence[str]) -> Iterator[str]:
    """Yield options that make the folders above binds: those that bubblewrap makes by itself only root could enter."""
    folders = {parent for target in targets for parent in PurePosixPath(target).parents}
    for folder in sorted(folders, key=lambda path: len(path.parts)):
        there = any(folder.is_relative_to(shown) for shown in MADE) and not _below_tmp(folder)
        if not there and folder != PurePosixPath("/"):
            yield from ("--perms", "0755", "--dir", str(folder))


def _below_tmp(folder: PurePosixPath) -> bool:
    return folder != TMP and folder.is_relative_to(TMP)


def _files(plan: Plan, uid: int) -> Iterator[str]:
    folder = plan.scratch / "files"
    folder.mkdir()
    for index, (target, content) in enumerate(sorted(plan.files.items())):
        path = folder / str(index)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as file:
            file.write(content)
        if plan.uid is not None:
            os.chown(path, uid, uid)
        yield from ("--ro-bind", str(path), target)


def _masks(plan: Plan, shown: Sequence[Bind]) -> Iterator[str]:
    """Yield the paths inside the sandbox at which a hidden folder would appear, because a shown folder contains it."""
    for hidden in {each.resolve() for each in plan.hide}:
        for source, target in shown:
            real = source.resolve()
            if hidden != real and hidden.is_relative_to(real) and hidden.exists():
                yield str(PurePosixPath(target) / hidden.relative_to(real))


def _same(folder: str) -> Bind:
    return Bind(Path(folder), folder)


def _home(plan: Plan) -> str:
    return plan.storage.target if plan.storage is not None else "/tmp"


def _check(plan: Plan) -> None:
    """Raise ValueError for a plan that would leak, or contradicts itself."""
    if (plan.uid is None) != (os.geteuid() != 0):
        raise ValueError("a sandbox has a uid of its own if, and only if, Rota is root")
    if plan.uid is not None and plan.uid <= 0:
        raise ValueError("a sandbox never has the uid of root")
    if not plan.argv:
        raise ValueError("there is no command to run")
    storage = [plan.storage] if plan.storage is not None else []
    for bind in (*storage, *plan.read_only):
        if not bind.source.is_absolute() or "\0" in str(bind.source):
            raise ValueError(f"{bind.source} must be an absolute path")
    if plan.storage is not None:
        places = plan.scratch.resolve(), plan.storage.source.resolve()
        # Rota empties the scratch folder, and the instance writes to the storage.
        if places[0].is_relative_to(places[1]) or places[1].is_relative_to(places[0]):
            raise ValueError(f"the scratch folder {plan.scratch} and the storage must not contain each other")
        for hidden in plan.hide:
            if hidden.resolve().is_relative_to(plan.storage.source.resolve()):
                raise ValueError(f"the storage {plan.storage.source} would show {hidden}")
    for target in plan.files:
        if target.endswith("/") or PurePosixPath(target) in FOLDERS:
            raise ValueError(f"{target!r} is a folder, and not the place of a file")
    _check_targets([*(bind.target for bind in (*storage, *plan.read_only)), *plan.files])


def _is_system(path: PurePosixPath) -> bool:
    if path.parts[:2] == ETC.parts:
        return len(path.parts) == len(ETC.parts) or system.is_own_etc(path.parts[2])
    python = [PurePosixPath(place) for place in (*system.python_folders(), *system.python_links())]
    return any(path.is_relative_to(place) or place.is_relative_to(path) for place in (*RESERVED, *python))


def _check_targets(targets: Sequence[str]) -> None:
    paths = [PurePosixPath(target) for target in targets]
    for target, path in zip(targets, paths, strict=True):
        # Two slashes at the beginning are one to the kernel, and a root of their own to pathlib.
        is_plain = path.is_absolute() and ".." not in path.parts and not target.startswith("//")
        if not is_plain or len(path.parts) < 2 or "\0" in target:
            raise ValueError(f"{target!r} must be an absolute path without '..', and not the root")
        if len(os.fsencode(target)) > PATH_BYTES_MAX or any(
            len(os.fsencode(each)) > NAME_BYTES_MAX for each in path.parts
        ):
            raise ValueError(f"{target[:NAME_BYTES_MAX]!r} is too long for a path, or a part of it for a name")
        if path.is_relative_to(LINK):
            raise ValueError(f"{target!r} is in {LINK}, which is a link to {TMP}; choose another place, such as /data")
        if _is_system(path):
            raise ValueError(f"{target!r} is the system's own; choose another place, such as /data")
        # Bubblewrap follows links while it makes the place to bind to. In a folder whose content an instance chose,
        # a link would lead it to any place of the host.
        for other in paths:
            if other is not path and path.is_relative_to(other):
                raise ValueError(f"{target!r} must not be inside {str(other)!r}, which is shown too")
