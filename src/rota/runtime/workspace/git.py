"""Runs git with a clean environment, settings that no repository can change, and bounds of time and output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rota.runtime.workspace.credentials import as_environment
from rota.runtime.workspace.failures import WorkspaceError
from rota.runtime.workspace.network import GitNetwork

OUTPUT_BYTES_MAX = 1 << 20
COMPLAINT_CHARACTERS_MAX = 2000
READ_BYTES = 1 << 16
BLOCK_BYTES = 512
PATH = "/usr/local/bin:/usr/bin:/bin"
PROTOCOLS = "https:ssh:file"
SLOW_BYTES_PER_SECOND, SLOW_SECONDS = 1000, 60
# Proxies and certificates of the user who runs Rota. No other variables are passed on.
PASSED_ON = (
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)

# Settings of every command. They override the files of any repository.
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "true",
    # Entries name the mirror, and the user that Rota runs as.
    "core.logAllRefUpdates": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "credential.helper": "",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Always one file, so that the file size limit of the process bounds it.
    "fetch.unpackLimit": "1",
    "transfer.unpackLimit": "1",
    "http.lowSpeedLimit": str(SLOW_BYTES_PER_SECOND),
    "http.lowSpeedTime": str(SLOW_SECONDS),
    "init.defaultBranch": "main",
    "advice.detachedHead": "false",
    "protocol.version": "2",
}
# Processes that git starts in the repository it reads from do not get these settings, but read this file. With it, the
# owner of a repository need not be the user that Rota runs as.
USER_FILE = """\
[safe]
	directory = *
[core]
	hooksPath = /dev/null
	fsmonitor = false
[gc]
	auto = 0
[uploadpack]
	allowAnySHA1InWant = true
"""


class GitOutput(NamedTuple):
    """The exit code and output of a command of git."""

    code: int
    out: str
    complaint: str


class Git:
    """Runs git with a home of its own that holds one file of settings and nothing else."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def run(
        self,
        *arguments: str | Path,
        cwd: Path,
        seconds_max: float,
        bytes_max: int | None = None,
        signed_in: Mapping[str, str] | None = None,
        consume: Callable[[bytes], None] | None = None,
        network: GitNetwork | None = None,
    ) -> GitOutput:
        """Run a command. Kills it with all its children when its time is over, or the caller is cancelled.

        Its output is returned, within a bound, or passed in pieces to `consume`, which may raise to stop it. `network`:
        the network that it gets; None: the host's.
        """
        argv = ["git", *map(str, arguments)]
        if network is not None and network.network == "egress":
            with tempfile.TemporaryDirectory(prefix="rota-git-") as scratch:
                around = network.around(argv, Path(scratch))
                return await self._run(around, arguments[0], cwd, seconds_max, bytes_max, signed_in, consume)
        return await self._run(argv, arguments[0], cwd, seconds_max, bytes_max, signed_in, consume)

    async def _run(
        self,
        argv: list[str],
        what: str | Path,
        cwd: Path,
        seconds_max: float,
        bytes_max: int | None,
        signed_in: Mapping[str, str] | None,
        consume: Callable[[bytes], None] | None,
    ) -> GitOutput:
        if bytes_max is not None:
            argv = ["/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(bytes_max // BLOCK_BYTES), *argv]
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=self._environment(signed_in or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stderr is not None
        said = asyncio.create_task(_first(process.stdout, consume))
        complained = asyncio.create_task(_last(process.stderr, COMPLAINT_CHARACTERS_MAX))
        try:
            async with asyncio.timeout(seconds_max):
                out, complaint = await asyncio.gather(said, complained)
                code = await process.wait()
        except BaseException as error:
            await asyncio.shield(_end(process, said, complained))
            if isinstance(error, TimeoutError):
                late = f"git {what} took longer than {seconds_max:g} s"
                raise WorkspaceError("TimedOut", late) from None
            raise
        return GitOutput(code, out.decode(errors="surrogateescape"), complaint.decode(errors="replace").strip())

    async def must(
        self,
        *arguments: str | Path,
        cwd: Path,
        seconds_max: float,
        consume: Callable[[bytes], None] | None = None,
    ) -> str:
        """Run a local command, and return its output. Raises WorkspaceError if it fails."""
        done = await self.run(*arguments, cwd=cwd, seconds_max=seconds_max, consume=consume)
        if done.code != 0:
            raise WorkspaceError("GitFailed", f"git {arguments[0]} failed: {done.complaint or done.code}")
        return done.out

    def _environment(self, signed_in: Mapping[str, str]) -> dict[str, str]:
        user_file = self._home / "gitconfig"
        if not user_file.exists():
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            user_file.write_text(USER_FILE)
        count = int(signed_in.get("GIT_CONFIG_COUNT", 0))
        return {
            "PATH": PATH,
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(user_file),
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_ALLOW_PROTOCOL": PROTOCOLS,
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **signed_in,
            # Before the variables that sign in: the emptied list of helpers must not remove theirs.
            **_settings_first(signed_in, count),
        }


def _settings_first(signed_in: Mapping[str, str], count: int) -> dict[str, str]:
    later = {signed_in[f"GIT_CONFIG_KEY_{index}"]: signed_in[f"GIT_CONFIG_VALUE_{index}"] for index in range(count)}
    return as_environment({**SETTINGS, **later})


async def _first(stream: asyncio.StreamReader, consume: Callable[[bytes], None] | None) -> bytes:
    kept = bytearray()
    while chunk := await stream.read(READ_BYTES):
        if consume is not None:
            consume(chunk)
            continue
        if len(kept) + len(chunk) > OUTPUT_BYTES_MAX:
            raise WorkspaceError("TooLarge", f"git said more than {OUTPUT_BYTES_MAX} bytes")
        kept += chunk
    return bytes(kept)


async def _last(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    kept = b""
    while chunk := await stream.read(READ_BYTES):
        kept = (kept + chunk)[-bytes_max:] if bytes_max else b""
    return kept


async def _end(process: asyncio.subprocess.Process, *readers: asyncio.Task[bytes]) -> None:
    """Kill the process group, because children may outlive git, and drain its pipes: undrained, it never ends."""
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        await _last(stream, 0)
    await process.wait()
