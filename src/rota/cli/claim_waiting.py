"""Print what a claim waits for while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from rota.cli.gateway import call
from rota.cli.output import note
from rota.client import Client, ConnectionFailed
from rota.client.claims import ClaimContext
from rota.registry import ApiError

FIRST_SECONDS = 1.0
"""A claim that is bound sooner gets no message."""
PAUSE_SECONDS = 2.0
"""Time between two requests."""


@asynccontextmanager
async def reporting_wait(client: Client, claim_context: ClaimContext, pool: str) -> AsyncIterator[asyncio.Task[None]]:
    """Print what a claim waits for, again when that changes, until the task is cancelled or the block ends."""
    task = asyncio.create_task(_report(client, claim_context, pool))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _report(client: Client, claim_context: ClaimContext, pool: str) -> None:
    await asyncio.sleep(FIRST_SECONDS)
    reported: object = None
    while True:
        try:
            step = await _step(client, claim_context)
            if step["state"] == "Failed":
                return  # The claim itself raises the error.
            lasting, message = _compared_and_message(step)
        except (ApiError, ConnectionFailed):
            lasting, message = "unknown", f"waits for an instance of WorkerPool/{pool}"
            if reported is not None:
                lasting = reported  # Not news: the server may be starting again.
        if lasting != reported:
            note(f"claim {claim_context.name} {message}")
            reported = lasting
        await asyncio.sleep(PAUSE_SECONDS)


async def _step(client: Client, claim_context: ClaimContext) -> dict[str, Any]:
    path = f"/v1/why/claims/{quote(client.namespace, safe='')}/{quote(claim_context.name, safe='')}"
    step: dict[str, Any] = (await call(client, "GET", path))["step"]
    return step


def _compared_and_message(step: dict[str, Any]) -> tuple[object, str]:
    """Return what identifies a step and its causes, without counts and times, which always change; and the message."""
    message = step.get("message") or "waits"
    causes = [one for one in step.get("causes", ()) if not one.get("hidden")]
    lines = [message, *(f"  {one['name']}: {one.get('message') or one['state']}" for one in causes)]
    return (message, [(one["name"], one.get("reason")) for one in causes]), "; ".join(map(str.strip, lines))
