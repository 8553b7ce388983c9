"""The host's own copies of repositories, from which the trees of workers are made."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.runtime.measuring import NotMeasurable, used
from rota.runtime.space import Shortage
from rota.runtime.workspace.credentials import Credentials, signed_in, without_credentials
from rota.runtime.workspace.discard import remove
from rota.runtime.workspace.failures import Reason, WorkspaceError
from rota.runtime.workspace.git import BLOCK_BYTES, Git, GitOutput
from rota.runtime.workspace.locks import locked
from rota.runtime.workspace.mirrors import MIRRORS, REMOVE_SECONDS_MAX, SUFFIX
from rota.runtime.workspace.network import PORTS, GitNetwork
from rota.runtime.workspace.refs import (
    COMMIT,
    SHORT_COMMIT,
    Resolved,
    candidates,
    checked_address,
    checked_ref,
    is_named,
)

HOST_NETWORK = GitNetwork()
QUICK_SECONDS_MAX = 60
# With more packs than this, a mirror is repacked into one.
PACKS_MAX = 40
CLOCK_SECONDS = 5
# Seconds between two measurements of a mirror that is being fetched.
WATCH_SECONDS = 2.0
REFRESHED = "rota-refreshed"
UNAUTHENTICATED = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "permission denied",
    "terminal prompts disabled",
    "host key verification failed",
    "the requested url returned error: 403",
    "invalid credentials",
)


# Origins say this also of repositories that the credentials may not read.
NOT_FOUND = ("' not found", "does not appear to be a git repository", "does not exist", "repository not found")


class WorkspaceLimits(NamedTuple):
    """The bounds within which repositories are fetched and trees are made."""

    fetch_seconds_max: float = 600
    fetch_bytes_max: int = 8 << 30
    mirror_bytes_max: int = 16 << 30
    clone_seconds_max: float = 300
    tree_bytes_max: int = 16 << 30
    tree_files_max: int = 1_000_000
    tree_depth_max: int = 200
    """The greatest depth of nested folders."""
    discard_seconds_max: float = 300
    # A mirror refreshed less than `fresh_seconds` ago is used as it is; less than `stale_seconds` ago it is used, and
    # refreshed in the background.
    fresh_seconds: float = 2
    stale_seconds: float = 30


class Source(NamedTuple):
    """A repository, and the scope and Secret with which it is read.

    The scope names who may read the mirror: a namespace, and the Secret if there is one. Each scope has a mirror of its
    own, so that nobody sees what only another's credentials can read.
    """

    url: str
    scope: str = ""
    secret: Mapping[str, str] | None = None


class Mirror:
    """All mirrors of a home. Several processes may share it."""

    def __init__(
        self, home: Path, limits: WorkspaceLimits | None = None, *, ssh: str = "ssh", network: GitNetwork = HOST_NETWORK
    ) -> None:
        """`network`: the network for fetching repositories."""
        self.limits = limits or WorkspaceLimits()
        self.folder = home / MIRRORS
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.git = Git(self.folder / "git")
        self._ssh = ssh
        self._network = network
        self._refreshing: dict[Path, asyncio.Task[None]] = {}

    def place(self, source: Source) -> Path:
        """Return the path of a source's mirror, which need not exist yet."""
        return self.folder / place_name(source)

    async def resolve(self, source: Source, ref: str | None) -> Resolved:
        """Return the commit of a ref; None: of the default branch. When this returns, the mirror has that commit."""
        checked_address(source.url)
        if ref is not None:
            checked_ref(ref)
        place, age = self.place(source), self._age(source)
        found = await self._find(place, ref) if age is not None else None
        with contextlib.suppress(FileNotFoundError):
            os.utime(place)
        if found is not None and age is not None:
            if ref is not None and COMMIT.fullmatch(ref):
                return found
            if age < self.limits.fresh_seconds:
                return found
            if age < self.limits.stale_seconds:
                self._refresh_behind(source)
                return found
        try:
            await self.refresh(source, since=time.time())
        except WorkspaceError as error:
            # An origin that is away does not stop work; one that refuses the credentials does.
            if found is None or error.reason not in ("RepositoryUnavailable", "TimedOut"):
                raise
            return found
        found = await self._find(place, ref) or await self._fetch_named(source, ref)
        if found is None:
            raise WorkspaceError("RefNotFound", f"{source_name(source)} has no {ref or 'default branch'}")
        return found

    async def current(self, source: Source, ref: str | None, *, since: float) -> Resolved:
        """Return the commit to which a ref points at its origin, or pointed at a fetch after `since`.

        Raises WorkspaceError if the origin cannot be reached, too, because the mirror may be outdated.
        """
        if is_named(ref):
            found = await self._fetch_named(source, ref)
        else:
            await self.refresh(source, since=since)
            found = await self._find(self.place(source), ref)
        if found is None:
            raise WorkspaceError("RefNotFound", f"{source_name(source)} has no {ref or 'default branch'}")
        return found

    def refreshed(self, source: Source) -> float:
        """Return when a mirror was last refreshed, in seconds since 1970; 0 if it never was."""
        age = self._age(source)
        return 0.0 if age is None else max(0.0, time.time() - age)

    async def refresh(self, source: Source, *, since: float | None = None) -> None:
        """Fetch all branches and tags, unless another process has done so after `since`. One fetch runs at a time."""
        place = self.place(source)
        async with locked(place.with_suffix(".lock")):
            age = self._age(source)
            if since is not None and age is not None and time.time() - age > since:
                return
            if age is None or not await self._is_sound(place):
                # Leftovers of a first fetch that was interrupted.
                await self._remove(place)
                options = ("--quiet", "--bare", "--template=")
                await self.git.must("init", *options, place, cwd=self.folder, seconds_max=QUICK_SECONDS_MAX)
            try:
                await self._fetch(source, place)
            except BaseException:
                # Also when it is cancelled: a lock that git left would make every later fetch fail.
                _remove_leftovers(place)
                raise
            await self._compact(place)
            (place / REFRESHED).touch()
            os.utime(place)

    async def close(self) -> None:
        """Cancel the refreshes that run in the background."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _age(self, source: Source) -> float | None:
        """Return the seconds since a mirror was last refreshed, or None if it never was."""
        try:
            age = time.time() - (self.place(source) / REFRESHED).stat().st_mtime
        except FileNotFoundError:
            return None
        # A clock that was set back must not make an old one fresh until it has caught up.
        return age if age > -CLOCK_SECONDS else math.inf

    async def _is_sound(self, place: Path) -> bool:
        done = await self.git.run("rev-parse", "--is-bare-repository", cwd=place, seconds_max=QUICK_SECONDS_MAX)
        return done.out.strip() == "true"

    def _refresh_behind(self, source: Source) -> None:
        place = self.place(source)
        if place not in self._refreshing:
            task = asyncio.create_task(self._refresh_quietly(source, time.time()))
            self._refreshing[place] = task
            task.add_done_callback(lambda _: self._refreshing.pop(place, None))

    async def _refresh_quietly(self, source: Source, since: float) -> None:
        # A failure is raised to the next caller that finds the mirror too old, and refreshes it itself.
        with contextlib.suppress(WorkspaceError, OSError):
            await self.refresh(source, since=since)

    async def _fetch(self, source: Source, place: Path) -> None:
        names = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        await self._remote(source, place, "fetch", *FETCH, "--prune", ADDRESS, *names)
        said = await self._remote(source, place, "ls-remote", "--symref", ADDRESS, "HEAD")
        for line in said.split("\n"):
            if line.startswith("ref: refs/heads/") and line.endswith("\tHEAD"):
                name = checked_ref(line.removeprefix("ref: ").removesuffix("\tHEAD"))
                arguments = ("symbolic-ref", "HEAD", name)
                await self.git.must(*arguments, cwd=place, seconds_max=QUICK_SECONDS_MAX)

    async def _fetch_named(self, source: Source, ref: str | None) -> Resolved | None:
        """Fetch a commit that is on no branch, or a ref other than a branch or tag. None: the origin refuses it."""
        if ref is None or not (COMMIT.fullmatch(ref) or ref.startswith("refs/")):
            return None
        place = self.place(source)
        kept = f"refs/rota/{ref}" if COMMIT.fullmatch(ref) else ref
        async with locked(place.with_suffix(".lock")):
            try:
                await self._remote(source, place, "fetch", *FETCH, ADDRESS, f"+{ref}:{kept}")
            except WorkspaceError as error:
                if error.reason != "RepositoryUnavailable":
                    raise
                return None
        return await self._find(place, ref)

    async def _remote(self, source: Source, place: Path, *arguments: str) -> str:
        url, inline = without_credentials(source.url)
        credentials = Credentials.from_secret({**inline, **(source.secret or {})})
        known_hosts = self.folder / "git" / "known_hosts"
        self._network.check(url)
        network = self._network if urlsplit(url).scheme in PORTS else HOST_NETWORK
        with signed_in(url, credentials, known_hosts, self._ssh, network.proxy_command) as variables:
            fetching = self.git.run(
                *(url if argument is ADDRESS else argument for argument in arguments),
                cwd=place,
                seconds_max=self.limits.fetch_seconds_max,
                bytes_max=self.limits.fetch_bytes_max,
                signed_in={**variables, **network.environment()},
                network=network,
            )
            done = await self._watched(source, place, fetching)
        if done.code != 0:
            full = await asyncio.to_thread(_reached, place, self.limits.fetch_bytes_max)
            if full:
                raise WorkspaceError("TooLarge", f"{source_name(source)} is larger than {full} bytes")
            reason = _reason(done)
            raise WorkspaceError(reason, f"{source_name(source)}: {credentials.mask(done.complaint) or done.code}")
        return done.out

    async def _watched(self, source: Source, place: Path, fetching: Coroutine[Any, Any, GitOutput]) -> GitOutput:
        """Wait for a fetch. Cancel it when the mirror becomes too large, or the disk short of space."""
        task = asyncio.create_task(fetching)
        shortage = Shortage(str(self.folder))
        try:
            is_done = False
            while not is_done:
                is_done = bool((await asyncio.wait((task,), timeout=WATCH_SECONDS))[0])
                if shortage and not is_done:
                    raise WorkspaceError("RepositoryUnavailable", "the disk of the server is short of space")
                if await asyncio.to_thread(_bytes, place) > self.limits.mirror_bytes_max:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    # Removed with all objects that its origin no longer has: it may be smaller the next time.
                    await self._remove(place)
                    most = self.limits.mirror_bytes_max
                    raise WorkspaceError("TooLarge", f"the mirror of {source_name(source)} is larger than {most} bytes")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @staticmethod
    async def _remove(place: Path) -> None:
        await asyncio.to_thread(remove, place, seconds_max=REMOVE_SECONDS_MAX)

    async def _find(self, place: Path, ref: str | None) -> Resolved | None:
        if ref is None:
            named = await self.git.run("symbolic-ref", "HEAD", cwd=place, seconds_max=QUICK_SECONDS_MAX)
            names = [named.out.strip()] if named.code == 0 else []
        else:
            # A whole commit is that commit, also where a branch or a tag has its name.
            names = [] if COMMIT.fullmatch(ref) else candidates(ref)
            if SHORT_COMMIT.fullmatch(ref):
                names.append(ref)
        for name in names:
            arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            done = await self.git.run(*arguments, cwd=place, seconds_max=QUICK_SECONDS_MAX)
            if done.code == 0:
                branch = name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
                return Resolved(_commit(done.out), branch)
        return None

    async def _compact(self, place: Path) -> None:
        packs = await asyncio.to_thread(lambda: len(list((place / "objects" / "pack").glob("*.pack"))))
        if packs > PACKS_MAX:
            seconds = self.limits.fetch_seconds_max
            await self.git.must("repack", "-a", "-d", "-q", cwd=place, seconds_max=seconds)


# Stands for the address in a command. The address without credentials is put in its place.
ADDRESS = "<address>"
FETCH = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-gc", "--force")


def place_name(source: Source) -> str:
    """Return the name of a source's mirror."""
    url, inline = without_credentials(source.url)
    # Credentials in the address are part of the name, as those of a Secret are.
    identity = "\0".join((url, source.scope, *(f"{key}={value}" for key, value in sorted(inline.items()))))
    return f"{hashlib.sha256(identity.encode()).hexdigest()[:40]}{SUFFIX}"


def source_name(source: Source) -> str:
    return without_credentials(source.url)[0]


def _commit(said: str) -> str:
    """Return the commit in git's output, its last line: hints precede it if a short name is ambiguous."""
    commit = said.strip().splitlines()[-1]
    assert COMMIT.fullmatch(commit), commit
    return commit


def _reason(done: GitOutput) -> Reason:
    complaint = done.complaint.lower()
    if any(words in complaint for words in UNAUTHENTICATED):
        return "AuthenticationFailed"
    if any(words in complaint for words in NOT_FOUND):
        return "RepositoryNotFound"
    return "RepositoryUnavailable"


def _reached(place: Path, bytes_max: int) -> int:
    """Return the bound if a fetched file has reached it, else 0. Git itself does not report why it ended."""
    bound = bytes_max // BLOCK_BYTES * BLOCK_BYTES
    sizes = [path.stat().st_size for path in place.glob("objects/pack/tmp_*")]
    return bound if max(sizes, default=0) >= bound else 0


def _remove_leftovers(place: Path) -> None:
    """Remove temporary files and locks of an interrupted fetch. Nobody uses them, since the mirror is locked."""
    for path in place.glob("objects/pack/tmp_*"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    # Slashes in the names of branches make folders of any depth.
    folders = [str(place)]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".lock"):
                    os.unlink(entry.path)


def _bytes(place: Path) -> int:
    try:
        return used(place).bytes
    except (NotMeasurable, OSError):
        return 0
