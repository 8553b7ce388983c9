"""Runs the program of an engine for a bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WORDS_CHARS_MAX = 400
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Variables by which an engine finds its files. No others of Rota's own environment are passed on.
PASSED = (
    "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS", "CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG",
    "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
)  # fmt: skip
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
TIMED_OUT = -1


class EngineOutput(NamedTuple):
    """The exit code and output of a program."""

    code: int
    out: str
    err: str

    @property
    def failure(self) -> str:
        """The reason of a failure for people: the errors at the end of the output, in one line."""
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines()]
        # Other lines are warnings of attempts that led to the errors.
        errors = [line for line in lines if line.lower().startswith("error")] or lines
        return "; ".join(errors)[-WORDS_CHARS_MAX:] or f"it ended with {self.code}"


def environment(*more: str) -> dict[str, str]:
    """Return the environment of an engine's program. `more`: names of further variables to pass on."""
    passed = {name: os.environ[name] for name in (*PASSED, *more) if name in os.environ}
    return {"HOME": os.path.expanduser("~"), **passed, "PATH": os.environ.get("PATH") or PATH}


async def run_program(argv: Sequence[str], *, seconds_max: float, env: Mapping[str, str] | None = None) -> EngineOutput:
    """Run a program to its end. One that takes too long is killed, and its code is `TIMED_OUT`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment() if env is None else env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return EngineOutput(127, "", f"{argv[0]}: {error.strerror}")
    try:
        async with asyncio.timeout(seconds_max):
            out, err = await process.communicate()
    except TimeoutError:
        return EngineOutput(TIMED_OUT, "", f"it took longer than {seconds_max:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return EngineOutput(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
