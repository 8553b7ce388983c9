"""Installs the packages that functions require: once for each list of them, by pip, in a sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
import os
import platform
import re
import stat
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from rota.api.egress import CLOSED, Policy
from rota.runtime import egress, sandbox
from rota.runtime.code import pip_settings
from rota.runtime.code.building import Building, Exceeded
from rota.runtime.code.cache import FILE_MODE, CodeRefused
from rota.runtime.code.pip_failures import cause, is_unexplained, redacted, unanswered
from rota.runtime.code.pip_settings import PROXIES, Settings, settings
from rota.runtime.code.places import FOLDER_MODE, PACKAGES, begin_folder, cached, finish_folder, is_there, packages_log
from rota.runtime.defaults import default_memory
from rota.runtime.egress.program import REFUSED
from rota.runtime.egress.refusals import refusals
from rota.runtime.modes import TooDeep, take_over
from rota.runtime.removing import Removals
from rota.runtime.runner.tasklog import LINE_BYTES_MAX, TaskLog

log = logging.getLogger(__name__)

AT_ONCE_MAX = 2
AT_ONCE_OF_ONE_MAX = 1
"""The most installations of one tenant at once, so that no tenant takes all of AT_ONCE_MAX."""
NAMED_MAX = 4
"""The most unreachable hosts that a failure names."""
TARGET = "/workspace"
CONFIG = f"{pip_settings.INSIDE}/pip.conf"
INSTALLER_KEY = "functions/packages"
"""The key of the sandbox's uid, if Rota is root."""
NO_PIP = (
    "the Python that runs Rota has no pip, which installs what functions require: "
    f"run `{sys.executable} -m ensurepip`, or install pip there in another way"
)
NO_POLICY = Policy()
_NO_INDEX = re.compile(r"^no-index *= *(1|true|yes|on) *$", re.MULTILINE | re.IGNORECASE)
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\n\r\0]*")


def environment_name(requirements: Sequence[str]) -> str:
    """Return the name of the folder of packages: a hash of the requirements and the version of Python."""
    if not requirements:
        return ""
    which = [platform.python_implementation(), platform.python_version(), platform.machine(), *sorted(requirements)]
    return hashlib.sha256("\n".join(which).encode()).hexdigest()


class Packages:
    """Installs packages for all functions of a home."""

    def __init__(self, home: Path, policy: Policy = NO_POLICY) -> None:
        """`policy`: the network that pip gets, whichever tenant's function requires the packages."""
        self._home = home.absolute()
        self._policy = policy
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        nets = CLOSED if policy.network == "host" else ()
        self._building = Building(self._home, memory_bytes_max=default_memory() // AT_ONCE_MAX, nets=nets)
        self._removals = Removals()
        self._installing: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Installations that run or wait, by tenant and list."""
        self._tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._lists: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._there: dict[str, asyncio.Event] = {}
        """Set once a list of requirements is installed, by whichever tenant's installation."""

    def has(self, name: str) -> bool:
        return is_there(cached(self._home, PACKAGES, name))

    async def install(self, requirements: Sequence[str], *, needs_sandbox: bool = False, tenant: str = "") -> None:
        """Install packages, unless they are there. Raises `CodeRefused`.

        Tenants take turns, however many of their functions wait. If several tenants require the same list, the first
        turn
        installs it for all. `needs_sandbox`: refuse on a host that can make no sandbox, since a build runs code of the
        package.
        """
        name = environment_name(requirements)
        if self.has(name):
            return
        found = await asyncio.to_thread(sandbox.available)
        if needs_sandbox and not found.ok:
            why = f"only an admin's are installed without a sandbox: {found.why_not}"
            raise CodeRefused("NotIsolated", f"requirements: {why}")
        there = self._there.setdefault(name, asyncio.Event())
        task = self._installing.get((tenant, name))
        if task is None:
            task = asyncio.create_task(self._install(name, requirements, tenant), name="packages")
            self._installing[tenant, name] = task
            task.add_done_callback(lambda _: self._over(tenant, name))
        by_others = asyncio.create_task(there.wait(), name="packages of another's turn")
        try:
            await asyncio.wait((task, by_others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            by_others.cancel()
        if not there.is_set():
            await task

    def _over(self, tenant: str, name: str) -> None:
        del self._installing[tenant, name]
        if not any(one == name for _, one in self._installing):
            self._there.pop(name, None)

    async def close(self) -> None:
        tasks = list(self._installing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _install(self, name: str, requirements: Sequence[str], tenant: str) -> None:
        for one in requirements:
            if not _REQUIREMENT.fullmatch(one):
                raise CodeRefused("BadRequirement", f"requirements: {one!r} must name a package, such as requests>=2")
        of_tenant = self._tenants.setdefault(tenant, asyncio.Semaphore(AT_ONCE_OF_ONE_MAX))
        of_list = self._lists.setdefault(name, asyncio.Lock())
        async with of_tenant, of_list:
            if not self.has(name):
                await self._build(name, requirements)
        if there := self._there.pop(name, None):
            there.set()

    async def _build(self, name: str, requirements: Sequence[str]) -> None:
        async with self._at_once:
            whole = cached(self._home, PACKAGES, name)
            folder = await asyncio.to_thread(begin_folder, whole)
            try:
                await self._run_pip(folder, name, requirements)
                await asyncio.to_thread(finish_folder, folder, whole)
            finally:
                # In the background: the folder of a build may be large.
                self._removals.add(folder)

    async def _run_pip(self, folder: Path, name: str, requirements: Sequence[str]) -> None:
        if importlib.util.find_spec("pip") is None:
            raise CodeRefused("RequirementsFailed", NO_PIP)
        scratch = folder.with_name(f"{folder.name}-sandbox")
        written = InstallLog(packages_log(self._home, name))
        try:
            found = await asyncio.to_thread(self._settings)
            written.begin(found.secrets)
            for note in found.notes:
                written.write(f"{note}\n".encode())
            _check_network(self._policy, found)
            if found.secrets:
                _check_nothing_is_built(requirements)
            made = await asyncio.to_thread(self._command, found, folder, scratch, requirements)
            code, said = await self._building.run(made, (folder, scratch), written.write)
            if code != 0 and is_unexplained(said):
                made = await asyncio.to_thread(self._command, found, folder, scratch, requirements, ["-vv"])
                more = unanswered((await self._building.run(made, (folder, scratch)))[1])
                written.write(more.encode())
                said += more
            refused = refusals(scratch / REFUSED).last if self._policy.network == "egress" else ()
        except Exceeded as error:
            written.write(f"{error}\n".encode())
            raise CodeRefused(error.reason, "; ".join([str(error), *found.notes])) from None
        finally:
            written.close()
            self._removals.add(scratch)
        if code != 0 and refused:
            hosts = ", ".join(f"{one.host} port {one.port} ({one.why})" for one in refused[-NAMED_MAX:])
            message = f"pip reaches what the server was started with by --egress, and not {hosts}"
            raise CodeRefused("IndexUnreachable", "; ".join([redacted(message, found.secrets), *found.notes]))
        if code != 0:
            why = cause(redacted(said, found.secrets), code)
            # A setting that was left out may be the cause.
            raise CodeRefused(why.reason, "; ".join([why.message, *found.notes]))
        try:
            # From now on the files are Rota's own, and readable for any uid.
            await asyncio.to_thread(take_over, folder, _mode)
        except TooDeep as error:
            raise CodeRefused("RequirementsFailed", f"what was installed cannot be kept: {error}") from None

    def _settings(self) -> Settings:
        return settings(os.environ, home=self._home, is_sandboxed=sandbox.available().ok)

    def _command(
        self,
        found: Settings,
        folder: Path,
        scratch: Path,
        requirements: Sequence[str],
        options: Sequence[str] = (),
    ) -> sandbox.Command:
        if found.secrets:
            options = [*options, "--only-binary", ":all:"]
        env = {**found.env, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}
        if self._policy.network == "egress":
            # Instead of the server's own proxies, which cannot be reached from the sandbox.
            proxies = {name for one in PROXIES for name in (one, one.lower())}
            env = {name: value for name, value in env.items() if name not in proxies}
            env |= {"PIP_PROXY": egress.URL, "NO_PROXY": "", "no_proxy": ""}
        if not sandbox.available().ok:
            scratch.mkdir(mode=0o700, exist_ok=True)
            config = scratch / "pip.conf"
            config.touch(mode=0o600)
            config.write_text(found.config, encoding="utf-8")
            env |= {"PATH": os.defpath, "HOME": str(folder), "PIP_CONFIG_FILE": str(config)}
            return sandbox.Command([sys.executable, *_pip(str(folder), requirements, options)], env)
        uid = sandbox.uid_of(INSTALLER_KEY) if os.geteuid() == 0 else None
        if uid is not None:
            sandbox.own(folder, uid)
        return sandbox.command(
            [sys.executable, *_pip(TARGET, requirements, options)],
            scratch=scratch,
            storage=sandbox.Bind(folder, TARGET),
            read_only=found.binds,
            files={**found.files, CONFIG: found.config.encode()},
            env={**env, "PIP_CONFIG_FILE": CONFIG},
            cwd="/tmp",
            network=self._policy.network,
            targets=self._policy.targets,
            uid=uid,
            hostname="packages",
            hide=[self._home],
        )


def _check_network(policy: Policy, found: Settings) -> None:
    """Raise CodeRefused when the server's policy leaves pip no way to an index."""
    if policy.network == "host":
        return
    if policy.network == "none" and not _NO_INDEX.search(found.config):
        why = "requirements are not installed: this server was started with --network none"
        raise CodeRefused("IndexUnreachable", f"{why}; an admin can start it with --network egress --egress INDEX:443")
    available = sandbox.available()
    if not available.ok:
        why = f"requirements are not installed: --network {policy.network} takes a sandbox"
        raise CodeRefused("IndexUnreachable", f"{why}: {available.why_not}")


class InstallLog:
    """The log of the last attempt to install packages: the output of pip, line by line, without secrets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TaskLog | None = None
        self._secrets: Collection[str] = ()
        self._rest = b""

    def begin(self, secrets: Collection[str]) -> None:
        self._secrets = secrets
        try:
            # A new file each time, which followers of the log read from its beginning.
            self._path.unlink(missing_ok=True)
            self._file = TaskLog(self._path)
        except OSError as error:
            # Packages are installed without a log, too.
            log.warning("%s cannot be written: %s", self._path, error.strerror)

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        if self._file is not None and lines:
            text = "".join(f"{line.decode(errors='replace')}\n" for line in lines)
            self._file.write(redacted(text, self._secrets).encode())

    def close(self) -> None:
        if self._rest:
            self.write(b"\n")
        if self._file is not None:
            self._file.close()
            self._file = None


def _check_nothing_is_built(requirements: Sequence[str]) -> None:
    """Refuse addresses of packages while pip has a login, which a build from source could read. Wheels run nothing."""
    for one in requirements:
        if "@" in one or "://" in one:
            why = "an address is not taken while the index needs a login, which a build could read"
            raise CodeRefused("BadRequirement", f"requirements: {one!r}: {why}; name a package of the index")


def _pip(target: str, requirements: Sequence[str], options: Sequence[str]) -> list[str]:
    always = ("--progress-bar=off", "--no-color", "--no-compile", "--no-warn-script-location")
    where = ("--root-user-action=ignore", "--target", target)
    return ["-I", "-m", "pip", "install", *always, *where, *options, "--", *requirements]


def _mode(found: int) -> int:
    return FOLDER_MODE if stat.S_ISDIR(found) else (found & FOLDER_MODE) | FILE_MODE
