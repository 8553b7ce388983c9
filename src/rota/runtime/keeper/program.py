"""The last steps between a fork of the keeper and the execution of a program."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from rota.runtime.keeper import kernel

# A failed start writes its error to this descriptor; a successful exec closes it.
REPORT = 3
_REPORT_BYTES_MAX = 4096
_EXIT_NOT_STARTED = 127


@dataclass(frozen=True)
class ProcessPlan:
    """Everything that a fork needs, decided before the fork."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    streams: tuple[int, int, int]
    uid: int | None = None
    gid: int | None = None
    rlimits: dict[int, tuple[int, int]] = field(default_factory=dict)
    group_files: tuple[str, ...] = ()
    minded: bool = False
    minder_arguments: tuple[str, ...] = ()
    new_namespace: bool = False
    tty: bool = False
    wrappers: int = 0
    oom_score: str | None = None


def guarded(body: Callable[[], None]) -> NoReturn:
    """Run a body and exit, so that no exception makes a fork run on in the keeper's code."""
    try:
        body()
    except OSError as error:
        _report(f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else str(error.strerror or error))
    except BaseException as error:
        _report(f"{type(error).__name__}: {error}")
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _report(message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(REPORT, message.encode()[:_REPORT_BYTES_MAX])


def become(plan: ProcessPlan, is_orphan: Callable[[], bool]) -> None:
    """Set up this process and execute the program."""
    os.setsid()
    if plan.tty:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for limit, values in plan.rlimits.items():
        resource.setrlimit(limit, values)
    os.umask(0o022)
    _set_user(plan)
    # Set here, because a change of user clears it.
    kernel.die_with_parent(signal.SIGKILL)
    # The parent may have died before that call.
    if is_orphan():
        os._exit(_EXIT_NOT_STARTED)
    kernel.no_new_privileges()
    os.chdir(plan.cwd)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _execute(plan)


def _execute(plan: ProcessPlan) -> NoReturn:
    """Execute a program as os.execvpe does, but without imports, which could load a tenant's module here."""
    name = plan.argv[0]
    places = [""] if "/" in name else [f"{place or '.'}/" for place in plan.env.get("PATH", os.defpath).split(":")]
    failure = errno.ENOENT
    for place in places:
        try:
            os.execve(place + name, plan.argv, plan.env)
        except OSError as error:
            # Like a shell, skip folders of PATH that may not be searched.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and (not place or os.path.lexists(place + name)):
                failure = error.errno or failure
    raise OSError(failure, os.strerror(failure), name)


def _set_user(plan: ProcessPlan) -> None:
    if plan.gid is not None:
        os.setgroups([plan.gid])
        os.setresgid(plan.gid, plan.gid, plan.gid)
    if plan.uid is not None:
        os.setresuid(plan.uid, plan.uid, plan.uid)
