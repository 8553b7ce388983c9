"""Redis and PostgreSQL for the peers: private to a run, in their default configuration, removed at its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

START_SECONDS_MAX = 30.0
END_SECONDS_MAX = 10.0
POLL_SECONDS = 0.02
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""
SNAPSHOTS = "3600 1 300 100 60 10000"
"""Redis' default times of writing to disk. Until the next one, changes are in memory only."""
POSTGRES_FOLDERS = Path("/usr/lib/postgresql")
"""The folder of Debian's PostgreSQL programs, with a folder for each version."""
POSTGRES_USER = "postgres"

_libc = ctypes.CDLL(None)


class Absent(Exception):  # noqa: N818
    """A program to compare with is not installed."""


@contextlib.contextmanager
def running(
    argv: Sequence[str | Path],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end of the block, or of this process if that ends first.

    Everything that the program has started ends with the block.
    """
    with (folder / f"{Path(argv[0]).name}.log").open("ab") as log:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user is not None else None,
            preexec_fn=lambda: _libc.prctl(DIE_WITH_PARENT, signal.SIGTERM),
        )
    try:
        yield process
    finally:
        process.send_signal(end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[bytes], folder: Path, is_up: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not is_up():
        if process.poll() is not None or time.monotonic() > deadline:
            log = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
            raise RuntimeError(f"{process.args!r} does not come up:\n{log}")
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """Run Redis. Yields its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise Absent("redis-server is not here: apt install redis-server")
    port = free_port()
    argv = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", SNAPSHOTS, "--appendonly", "no"]
    with tempfile.TemporaryDirectory() as name, running(argv, Path(name)) as process:
        wait_for(process, Path(name), lambda: answers(port))
        yield f"redis://127.0.0.1:{port}"


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Run PostgreSQL. Yields its URL. It refuses to run as root; then it runs as the user of its package."""
    programs = postgres_programs()
    user = POSTGRES_USER if os.geteuid() == 0 else None
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if user is not None:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid)
        subprocess.run(
            [programs / "initdb", "--pgdata", folder / "data", "--username", "bench", "--auth", "trust"],
            cwd=folder,
            user=user,
            group=user,
            extra_groups=[] if user is not None else None,
            check=True,
            capture_output=True,
            timeout=START_SECONDS_MAX,
        )
        argv: list[str | Path] = [
            programs / "postgres",
            "-D",
            folder / "data",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-k",
            folder,
        ]
        # SIGTERM would wait for clients.
        with running(argv, folder, user=user, end=signal.SIGINT) as process:
            ready: list[str | Path] = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
            wait_for(process, folder, lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
            yield f"postgresql://bench@127.0.0.1:{port}/postgres"


def postgres_programs() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(POSTGRES_FOLDERS.glob("*/bin/initdb"))
    if not folders:
        raise Absent("PostgreSQL is not here: apt install postgresql")
    return folders[-1].parent


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(7).startswith(b"+PONG")
    return False
