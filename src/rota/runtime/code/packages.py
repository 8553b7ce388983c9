"""Packages that functions require: installed once for each list of them, by pip, in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rota.runtime import sandbox
from rota.runtime.code.cache import CodeRefused
from rota.runtime.code.places import PACKAGES, cached, coming, is_there

INSTALL_SECONDS_MAX = 600.0
OUTPUT_BYTES_MAX = 64 * 1024
LINES_SHOWN_MAX = 5
"""Of what pip said last."""
AT_ONCE_MAX = 2
TARGET = "/workspace"
PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Settings of the server's own environment that say where packages come from."""
INSTALLER_KEY = "functions/packages"
"""What the uid of the sandbox is made from, where Rota can give it one."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\n\r\0]*")


def environment_name(requirements: Sequence[str]) -> str:
    """The name of the packages: the same for all who require the same, of the same Python."""
    if not requirements:
        return ""
    which = [platform.python_implementation(), platform.python_version(), platform.machine(), *sorted(requirements)]
    return hashlib.sha256("\n".join(which).encode()).hexdigest()


class Packages:
    """The packages of all functions of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home.absolute()
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._installing: dict[str, asyncio.Task[None]] = {}

    def has(self, name: str) -> bool:
        return is_there(cached(self._home, PACKAGES, name))

    async def install(self, requirements: Sequence[str]) -> None:
        """Have them there. Who asks for what is being installed waits for it. Raises `CodeRefused`."""
        name = environment_name(requirements)
        if self.has(name):
            return
        task = self._installing.get(name)
        if task is None:
            task = self._installing[name] = asyncio.create_task(self._install(name, requirements), name="packages")
            task.add_done_callback(lambda _: self._installing.pop(name, None))
        await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._installing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _install(self, name: str, requirements: Sequence[str]) -> None:
        for one in requirements:
            if not _REQUIREMENT.fullmatch(one):
                raise CodeRefused("BadRequirement", f"requirements: {one!r} must name a package, such as requests>=2")
        async with self._at_once:
            with coming(cached(self._home, PACKAGES, name)) as folder:
                await self._run_pip(folder, requirements)

    async def _run_pip(self, folder: Path, requirements: Sequence[str]) -> None:
        scratch = folder.with_name(f"{folder.name}-sandbox")
        try:
            made = await asyncio.to_thread(self._command, folder, scratch, requirements)
            code, said = await _ran(made)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
            await asyncio.to_thread(_close, folder)
        if code != 0:
            raise CodeRefused("RequirementsFailed", f"pip ended with {code}: {_last_lines(said)}")

    def _command(self, folder: Path, scratch: Path, requirements: Sequence[str]) -> sandbox.Command:
        env = {key: os.environ[key] for name in PASSED for key in (name, name.lower()) if key in os.environ}
        env |= {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}
        if not sandbox.available().ok:
            argv = _pip(str(folder), requirements)
            return sandbox.Command([sys.executable, *argv], {"PATH": os.defpath, "HOME": str(folder), **env})
        uid = sandbox.uid_of(INSTALLER_KEY) if os.geteuid() == 0 else None
        if uid is not None:
            sandbox.own(folder, uid)
        return sandbox.command(
            [sys.executable, *_pip(TARGET, requirements)],
            scratch=scratch,
            storage=sandbox.Bind(folder, TARGET),
            env=env,
            cwd="/tmp",
            network="host",
            uid=uid,
            hostname="packages",
            hide=[self._home],
        )


def _pip(target: str, requirements: Sequence[str]) -> list[str]:
    options = ["--quiet", "--no-compile", "--no-warn-script-location", "--root-user-action=ignore"]
    return ["-I", "-m", "pip", "install", *options, "--target", target, "--", *requirements]


async def _ran(made: sandbox.Command) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *made.argv,
        env=made.env,
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = bytearray()
    try:
        async with asyncio.timeout(INSTALL_SECONDS_MAX):
            while piece := await process.stdout.read(OUTPUT_BYTES_MAX):
                said += piece
                del said[:-OUTPUT_BYTES_MAX]
            code = await process.wait()
    except TimeoutError:
        raise CodeRefused("RequirementsFailed", f"pip took longer than {INSTALL_SECONDS_MAX:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return code, said.decode(errors="replace")


def _last_lines(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("[notice]")]
    return "\n".join(lines[-LINES_SHOWN_MAX:])


def _close(folder: Path) -> None:
    """What was installed is Rota's own from now on, and anybody may read it."""
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(at, name)
            if path.is_symlink():
                continue
            if os.geteuid() == 0:
                os.chown(path, 0, 0, follow_symlinks=False)
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    if os.geteuid() == 0 and folder.exists():
        os.chown(folder, 0, 0)
    with contextlib.suppress(FileNotFoundError):
        folder.chmod(0o755)
