"""Why a function cannot be called on a worker: what its runner tells."""

from __future__ import annotations

from typing import NamedTuple

IMPORT_FAILED, TIMED_OUT, COMMAND_NOT_FOUND = "ImportFailed", "TimedOut", "CommandNotFound"
"""Reasons."""


class NotLoaded(NamedTuple):
    """The code was not loaded."""

    reason: str
    message: str
    said: str = ""
    """What was written on the way, with the traceback if there is one."""
