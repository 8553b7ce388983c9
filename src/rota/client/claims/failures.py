"""Errors of claims and of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.registry import ApiError

if TYPE_CHECKING:
    from rota.client.claims.result import Result


class NoneFree(ApiError):  # noqa: N818 - says what is
    """No instance was free in time. `retry_after` is the number of seconds after which a retry makes sense."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(429, "TooManyRequests", message, details={"retryAfterSeconds": retry_after})
        self.retry_after = retry_after


class ClaimLost(ApiError):  # noqa: N818 - says what became of it
    """The claim is over, and its holder has lost the instance. `why` is one word for programs."""

    def __init__(self, name: str, why: str, message: str) -> None:
        said = f'the claim "{name}" is over ({why})' + (f": {message}" if message else "")
        super().__init__(409, "ClaimLost", said)
        self.name = name
        self.why = why


class CommandFailed(Exception):  # noqa: N818 - says what became of it
    """A command ended with an exit code other than 0. `result` has its output."""

    def __init__(self, result: Result, said: str) -> None:
        super().__init__(f"the command ended with exit code {result.exit_code}" + (f": {said}" if said else ""))
        self.result = result


class TreeRefused(ValueError):  # noqa: N818 - says what became of it
    """A tree that is too large or contains what is not allowed. Nothing was written outside its place."""
