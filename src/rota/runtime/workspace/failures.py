"""The errors of workspaces."""

from __future__ import annotations

from typing import Literal

Reason = Literal[
    "InvalidWorkspace",
    "AuthenticationFailed",
    "RepositoryNotFound",
    "RepositoryUnavailable",
    "RefNotFound",
    "TooLarge",
    "TimedOut",
    "SetupFailed",
    "ProgramNotFound",
    "GitFailed",
]


class WorkspaceError(RuntimeError):
    """A workspace cannot be prepared. The reason is one CamelCase word, as in a condition."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class MustReplace(RuntimeError):  # noqa: N818 - named for what has to be done
    """Something of the last holder cannot be removed: the instance and its storage must be replaced."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; the instance must be replaced, with new storage")
