"""Finds out whether this host can make a sandbox, by making one."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rota.runtime.sandbox import filter as calls
from rota.runtime.sandbox.compose import Bind, Command, Plan, compose
from rota.runtime.sandbox.identity import UID_FIRST, own

TRIAL_SECONDS_MAX = 20
SAYING = "inside"
MESSAGE_CHARACTERS_MAX = 300

# A setting of the kernel, the value that forbids sandboxes to ordinary users, and the hint for people.
SETTINGS = (
    ("/proc/sys/user/max_user_namespaces", "0", "user namespaces are turned off (sysctl user.max_user_namespaces)"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0",
     "user namespaces are for root alone (sysctl kernel.unprivileged_userns_clone=1 allows them)"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
     "AppArmor restricts user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, "
     "or a profile for bwrap, allows them)"),
)  # fmt: skip


class Availability(NamedTuple):
    """The result: a sandbox can be made, or `why_not` has the reason, and what to do."""

    ok: bool
    why_not: str = ""


class SandboxUnavailable(RuntimeError):  # noqa: N818 - named for what is the case
    """This host cannot make a sandbox."""


@functools.cache
def available() -> Availability:
    """Try once, and remember the result until the process ends."""
    if sys.platform != "linux":
        return Availability(False, f"there is no bubblewrap on {sys.platform}")
    if not calls.supported():
        return Availability(False, f"sandboxes are known on {' and '.join(calls.AUDIT_ARCHITECTURE)} only")
    try:
        return _try()
    except FileNotFoundError as error:
        return Availability(False, str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return Availability(False, f"bubblewrap could not be tried: {error}")


def require() -> None:
    """Raise SandboxUnavailable unless a sandbox can be made."""
    found = available()
    if not found.ok:
        raise SandboxUnavailable(f"no sandbox can be made here: {found.why_not}")


def _try() -> Availability:
    with tempfile.TemporaryDirectory(prefix="rota-sandbox-") as folder:
        storage = Path(folder, "storage")
        storage.mkdir()
        uid = UID_FIRST if os.geteuid() == 0 else None
        if uid is not None:
            own(storage, uid)
        # Writes to its storage, which also fails where the file system cannot store such a uid.
        argv = ["/bin/sh", "-c", f"echo {SAYING} > said && cat said"]
        trial = compose(
            Plan(
                argv=argv, scratch=Path(folder, "scratch"), storage=Bind(storage, "/workspace"), read_only=(), files={},
                env={}, cwd=None, network="none", uid=uid, hostname="worker", hide=(), fds=(),
            )
        )  # fmt: skip
        code, out, err = _run(trial)
    if code == 0 and out.decode(errors="replace").strip() == SAYING:
        return Availability(True)
    said = err.decode(errors="replace").strip()[-MESSAGE_CHARACTERS_MAX:] or f"it ended with {code}"
    return Availability(False, "; ".join(["bubblewrap cannot run", said, *_settings()]))


def _run(trial: Command) -> tuple[int, bytes, bytes]:
    """Run a trial to its end, or kill it after a time: a half-made sandbox would wait for ever."""
    with subprocess.Popen(
        trial.argv,
        env=trial.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=TRIAL_SECONDS_MAX)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, err


def _settings() -> list[str]:
    return [saying for path, value, saying in SETTINGS if os.geteuid() != 0 and _setting(path) == value]


def _setting(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
