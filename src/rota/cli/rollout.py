"""`rota rollout`."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from rota.api import WorkerPool
from rota.cli.command import command, complain
from rota.cli.durations import seconds
from rota.cli.existing import complain_missing
from rota.cli.following import follow_named, key_in
from rota.cli.naming import Target, reference, targets
from rota.cli.options import Targets
from rota.cli.output import line
from rota.cli.session import FAILED, Session, bad_usage
from rota.cli.usage import Group

app = typer.Typer(
    cls=Group, help="See how far a change of template is, or start its instances anew.", rich_markup_mode=None
)


@app.callback(no_args_is_help=True)
def _group() -> None:
    """See how far a change of template is, or start its instances anew."""


@command
async def status(
    session: Session,
    which: Targets = None,
    within: Annotated[str, typer.Option("--timeout", metavar="SPAN", help="How long at most: 30s, 5m, 1h.")] = "10m",
) -> int:
    """Tell how far a pool is on its way to its newest template, until it is there."""
    target, *others = _pools(which)
    if others:
        raise bad_usage("name one pool")
    limit_seconds = seconds(within)
    said = ""
    async with session.client() as client:
        at = key_in(client, target.kind, target.name)
        name = reference(target.kind, target.name)
        try:
            async with (
                asyncio.timeout(limit_seconds),
                contextlib.aclosing(follow_named(client, target.kind, [at])) as changes,
            ):
                async for key, obj in changes:
                    if key != at:
                        continue
                    if obj is None:
                        await complain_missing(client, target.kind, target.name)
                        return FAILED
                    done, now = progress(obj)
                    if now != said:
                        line(f"{name}: {now}")
                        said = now
                    if done:
                        return 0
        except TimeoutError:
            complain(f"{name} is not there yet after {within}: {said}")
    return FAILED


def progress(pool: dict[str, Any]) -> tuple[bool, str]:
    """Whether a pool has come to what it asks for, and how far it is."""
    seen: dict[str, Any] = pool.get("status") or {}
    if seen.get("observedGeneration", 0) < pool["metadata"].get("generation", 0):
        return False, "its newest form is not observed yet"
    updated, ready, there = (seen.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "replicas"))
    wanted = _wanted(pool["spec"], there)
    far = f"{updated} of {wanted} are of the newest template, {ready} ready"
    if there > wanted:
        far += f", {there - wanted} to go"
    if seen.get("phase") == "Ready" and (updated, ready, there) == (wanted, wanted, wanted):
        return True, f"{far}: done"
    conditions = {one["type"]: one for one in seen.get("conditions", [])}
    blocked = conditions.get("Ready", {})
    if seen.get("phase") == "Degraded" and blocked.get("message"):
        far += f"; {blocked.get('reason')}: {blocked['message']}"
    return False, far


def _wanted(spec: dict[str, Any], there: int) -> int:
    """How many there shall be. A pool that scales has as many as it needs now, within its bounds."""
    bounds = spec.get("scale")
    if bounds is None:
        return int(spec.get("replicas", 1))
    least = int(bounds.get("min", 1))
    return max(least, min(there, int(bounds.get("max", least))))


@command
async def restart(session: Session, which: Targets = None) -> None:
    """Start all instances of a pool anew, one after the other."""
    from rota.control.instances.template import RESTARTED

    wanted = _pools(which)
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    async with session.client() as client:
        for kind, name in wanted:
            await client.patch(kind, name, {"metadata": {"annotations": {RESTARTED: now}}})
            line(f"{reference(kind, name)} restarts")


def _pools(which: list[str] | None) -> list[Target]:
    wanted = targets(which or [])
    if any(not one.name or one.kind is not WorkerPool.api for one in wanted):
        raise bad_usage("name a pool, such as wp/boxes")
    return wanted


app.command("status")(status)
app.command("restart")(restart)
