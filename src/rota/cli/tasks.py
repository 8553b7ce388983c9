"""Describe tasks: their progress, their end and their exit code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rota.api import Task
from rota.api.table import duration
from rota.cli import INTERRUPTED
from rota.cli.naming import reference, targets
from rota.cli.output import Part, printable, style_of
from rota.cli.session import FAILED, bad_usage

Object = dict[str, Any]

OVER = ("Succeeded", "Failed", "Cancelled")
TIMED_OUT = 124
EXIT_CODE_MAX = 255
SHORT_SECONDS = 10
NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be executed, or was not found."""
SILENT = "it does not say why"
END_WORDS = {"Succeeded": ("succeeded", "green"), "Failed": ("failed", "red"), "Cancelled": ("was cancelled", "yellow")}


def named_tasks(words: Sequence[str]) -> list[str]:
    """Return the names of tasks on a command line. Raises CommandError."""
    wanted = targets(words)
    if any(not target.name or target.kind is not Task.api for target in wanted):
        raise bad_usage("name tasks, such as task/build")
    return list(dict.fromkeys(target.name for target in wanted))


def status_of(task: Object) -> Object:
    found: Object = task.get("status") or {}
    return found


def is_over(task: Object) -> bool:
    return status_of(task).get("phase") in OVER


def exit_code(task: Object) -> int:
    """Return the exit code that a shell would have seen."""
    status = status_of(task)
    if status["phase"] == "Succeeded":
        return 0
    if status["phase"] == "Cancelled":
        return INTERRUPTED
    if status.get("reason") == "Timeout":
        return TIMED_OUT
    code = status.get("exitCode") or FAILED
    return code if 0 < code <= EXIT_CODE_MAX else FAILED


def progress(task: Object) -> list[Part]:
    """Describe a task that is not over."""
    status = status_of(task)
    phase = status.get("phase") or "Waiting"
    parts = [(phase, style_of(phase) or "yellow")]
    if phase == "Running":
        parts.append((f" on {status.get('instanceName')}", ""))
        if tries := status.get("tries"):
            parts.append((f", try {tries + 1}", ""))
    elif said := _first_line(": ".join(status[part] for part in ("reason", "message") if status.get(part))):
        parts.append((f" ({said})", ""))
    return parts


def ending(task: Object) -> list[Part]:
    """Describe the end of a task on one line, for users who saw its output."""
    status = status_of(task)
    name = reference(Task.api, task["metadata"]["name"])
    parts = [(name, "bold"), (" ", ""), END_WORDS[status["phase"]], (_in_what_time(status), "")]
    if status["phase"] == "Failed":
        parts.append((f": {_why(status)}", ""))
    return parts


def failure(task: Object) -> str:
    """Describe the failure of a task in full."""
    status = status_of(task)
    name = reference(Task.api, task["metadata"]["name"])
    if status["phase"] == "Cancelled":
        return f"{name} was cancelled"
    said = ": ".join(status[part] for part in ("reason", "message") if status.get(part) not in (None, "Failed"))
    return f"{name} failed: {said or SILENT}"


def _why(status: Object) -> str:
    code, reason, message = status.get("exitCode"), status.get("reason"), _first_line(status.get("message") or "")
    if reason == "Failed" and code:
        # The message is the end of the output, which the user has seen, unless the command could not be started.
        return f"exit code {code}" + (f" ({message})" if message and code in NOT_STARTED else "")
    return ": ".join(filter(None, (reason if reason != "Failed" else "", message))) or SILENT


def _first_line(text: str) -> str:
    return printable(text.strip().partition("\n")[0])


def _in_what_time(status: Object) -> str:
    if not status.get("startTime") or not status.get("completionTime"):
        return ""
    began, ended = (datetime.fromisoformat(status[name]).timestamp() for name in ("startTime", "completionTime"))
    return f" in {span(max(ended - began, 0))}"


def span(seconds: float) -> str:
    """Return a time span; a short one with tenths of a second."""
    return f"{seconds:.1f}s" if seconds < SHORT_SECONDS else duration(seconds)
