"""Print what a task waits for to a user who follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rota.api import Task
from rota.cli.naming import Target
from rota.cli.output import note, printable
from rota.cli.session import CommandError
from rota.cli.why import ask
from rota.client import Client
from rota.registry import ApiError

Object = dict[str, Any]

ASK_SECONDS = 3.0
"""Time that a task must wait before the first request, and between requests."""
WAIT = "wait"
"""The first word of advice that asks for no action."""


async def report_causes(
    client: Client, name: str, is_waiting: Callable[[], bool], around_output: Callable[[], AbstractContextManager[None]]
) -> None:
    """Print what a task waits for, and what to do, once for each cause. Goes on until it is cancelled.

    `around_output` is entered around the output.
    """
    reported = ""
    while True:
        await asyncio.sleep(ASK_SECONDS)
        if not is_waiting():
            continue
        try:
            answer = await ask(client, Target(Task.api, name))
        except CommandError:
            return  # the server there cannot tell
        except (ApiError, OSError):
            continue  # it is away, or the task is gone: whoever follows the task finds out
        cause = f"{answer['root']['id']} {answer['root'].get('reason')}"
        if cause != reported and is_waiting():
            reported = cause
            with around_output():
                for line in _lines(answer):
                    note(line)


def _lines(answer: Object) -> list[str]:
    step, root, advice = answer["step"], answer["root"], " ".join(answer["advice"].split())
    lines = [_said(step)]
    if root["id"] != step["id"]:
        lines.append(f"  {_said(root)}")
    if advice and not advice.startswith(WAIT):
        lines.append(f"  next: {printable(advice)}")
    return lines


def _said(step: Object) -> str:
    reported = step.get("message") or step.get("reason") or step["state"]
    return printable(f"{step['name']}: {reported.strip().partition(chr(10))[0]}")
