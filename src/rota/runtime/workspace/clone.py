"""Makes a worker's own clone from the mirror, in an empty folder."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from rota.api.pool import WorkspaceSpec
from rota.runtime.workspace.credentials import without_credentials
from rota.runtime.workspace.failures import WorkspaceError
from rota.runtime.workspace.mirror import QUICK_SECONDS_MAX, Mirror, WorkspaceLimits
from rota.runtime.workspace.refs import Resolved, checked_address, checked_remote

# A repack of the mirror meanwhile removes the packs that were listed.
ATTEMPTS = 3
ORIGIN = "refs/remotes/origin/"


async def clone(mirror: Mirror, place: Path, spec: WorkspaceSpec, resolved: Resolved, tree: Path) -> None:
    """Make the repository with its working tree and remotes. Nothing in it names the mirror."""
    limits, git = mirror.limits, mirror.git
    await git.must("ls-tree", "-r", "-l", "-z", resolved.commit, cwd=place,
                   seconds_max=limits.clone_seconds_max, consume=_Measure(limits))  # fmt: skip
    await git.must("init", "--quiet", "--template=", tree, cwd=tree.parent, seconds_max=QUICK_SECONDS_MAX)
    if spec.depth is None:
        await asyncio.to_thread(_copy_packs, place, tree / ".git")
        await _copy_refs(mirror, place, tree)
    else:
        await _fetch_part(mirror, place, spec.depth, resolved, tree)
    await _add_remotes(mirror, spec, tree)
    at = ["-B", resolved.branch] if resolved.branch is not None else ["--detach"]
    options = ("--quiet", "--force", "--no-recurse-submodules")
    await git.must("checkout", *options, *at, resolved.commit, cwd=tree, seconds_max=limits.clone_seconds_max)
    if resolved.branch is not None:
        for key, value in (("remote", "origin"), ("merge", f"refs/heads/{resolved.branch}")):
            arguments = ("config", f"branch.{resolved.branch}.{key}", value)
            await git.must(*arguments, cwd=tree, seconds_max=QUICK_SECONDS_MAX)


def _copy_packs(place: Path, repository: Path) -> None:
    """Copy packs as whole files, which is fastest. A mirror holds only packs; git writes an index after its pack."""
    source, target = place / "objects" / "pack", repository / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        try:
            for index in source.glob("*.idx"):
                for path in (index.with_suffix(".pack"), index):
                    shutil.copyfile(path, target / path.name, follow_symlinks=False)
                    (target / path.name).chmod(0o444)
            return
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
            for path in target.iterdir():
                path.unlink()


async def _copy_refs(mirror: Mirror, place: Path, tree: Path) -> None:
    lines: list[bytes] = []
    arguments = ("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags")
    await mirror.git.must(*arguments, cwd=place, seconds_max=QUICK_SECONDS_MAX, consume=lines.append)
    pairs = [line.split(" ", 1) for line in b"".join(lines).decode(errors="surrogateescape").split("\n") if line]
    renamed = sorted((re.sub(r"^refs/heads/", ORIGIN, name), commit) for commit, name in pairs)
    packed = "".join(f"{commit} {name}\n" for name, commit in renamed)
    (tree / ".git" / "packed-refs").write_text(packed, encoding="utf-8", errors="surrogateescape")


async def _fetch_part(mirror: Mirror, place: Path, depth: int, resolved: Resolved, tree: Path) -> None:
    target = f":{ORIGIN}{resolved.branch}" if resolved.branch is not None else ""
    arguments = ("fetch", "--quiet", f"--depth={depth}", "--no-tags", "--no-write-fetch-head",
                 f"file://{place}", f"+{resolved.commit}{target}")  # fmt: skip
    await mirror.git.must(*arguments, cwd=tree, seconds_max=mirror.limits.clone_seconds_max)


async def _add_remotes(mirror: Mirror, spec: WorkspaceSpec, tree: Path) -> None:
    remotes = [("origin", spec.repo), *((checked_remote(each.name), each.url) for each in spec.remotes)]
    for name, url in remotes:
        address = without_credentials(checked_address(url))[0]
        await mirror.git.must("remote", "add", name, address, cwd=tree, seconds_max=QUICK_SECONDS_MAX)


class _Measure:
    """Counts the files and bytes of a tree, and raises at the bound. Few git objects can make billions of files."""

    def __init__(self, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self._files = self._bytes = self._depth = 0
        self._rest = b""

    def __call__(self, chunk: bytes) -> None:
        *entries, self._rest = (self._rest + chunk).split(b"\0")
        for entry in entries:
            about, _, path = entry.partition(b"\t")
            size = about.split()[-1]
            self._depth = max(self._depth, path.count(b"/"))
            self._bytes += int(size) if size.isdigit() else 0
        self._files += len(entries)
        if self._files > self._limits.tree_files_max:
            raise WorkspaceError("TooLarge", f"the tree has more than {self._limits.tree_files_max} files")
        if self._depth > self._limits.tree_depth_max:
            raise WorkspaceError("TooLarge", f"the tree is more than {self._limits.tree_depth_max} folders deep")
        if self._bytes > self._limits.tree_bytes_max:
            raise WorkspaceError("TooLarge", f"the tree is larger than {self._limits.tree_bytes_max} bytes")
