"""The names of refs and remotes: those that are allowed, and the full names of a short one."""

from __future__ import annotations

import re
from typing import NamedTuple

from rota.runtime.workspace.failures import WorkspaceError

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
SHORT_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# As in `git check-ref-format`, without characters of revision expressions.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|^[-./]|[/.]$|\.lock(/|$)|^@$")
_REMOTE_NAME = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]*")
_ADDRESS = re.compile(r"(https|ssh|file)://[^\s\x00-\x1f\x7f]+")


class Resolved(NamedTuple):
    """A commit, and the branch whose tip it is, if the ref was a branch."""

    commit: str
    branch: str | None


def checked_ref(ref: str) -> str:
    if _FORBIDDEN.search(ref):
        raise WorkspaceError("InvalidWorkspace", f"{ref!r} is not a name of a branch, tag or commit")
    return ref


def checked_address(url: str) -> str:
    """Return an address if its scheme is allowed and its host cannot pass for an option. Raises WorkspaceError."""
    if not _ADDRESS.fullmatch(url) or re.match(r"ssh://([^@/]*@)?-", url):
        raise WorkspaceError("InvalidWorkspace", "a repository's address must begin with https, ssh or file://")
    return url


def checked_remote(name: str) -> str:
    if not _REMOTE_NAME.fullmatch(name) or name == "origin" or _FORBIDDEN.search(name):
        raise WorkspaceError("InvalidWorkspace", f"{name!r} cannot be the name of a further remote")
    return name


def is_fixed(ref: str | None) -> bool:
    """Report whether a ref is a full commit id, and so never points to another commit."""
    return ref is not None and COMMIT.fullmatch(ref) is not None


def is_named(ref: str | None) -> bool:
    """Report whether a ref is neither a branch nor a tag. A mirror fetches such a ref only on request."""
    return ref is not None and ref.startswith("refs/") and not ref.startswith(("refs/heads/", "refs/tags/"))


def candidates(ref: str) -> list[str]:
    """Return the full names that a short name may mean, in the order in which they are tried."""
    if ref.startswith("refs/"):
        return [ref]
    return [f"refs/heads/{ref}", f"refs/tags/{ref}"]
