"""`rota rollout`."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from rota.api import Kind, Revision, WorkerPool, Workload
from rota.cli.command import command, complain
from rota.cli.following import follow_named, key_in
from rota.cli.missing_names import complain_missing
from rota.cli.naming import Target, reference, targets
from rota.cli.options import Targets, seconds
from rota.cli.output import NOTHING, Columns, print_line
from rota.cli.session import FAILED, Session, bad_usage
from rota.cli.usage import Group
from rota.client import Client

app = typer.Typer(
    cls=Group,
    help="Follow a change of template, go back to an earlier one, or restart instances.",
    rich_markup_mode=None,
)


@app.callback(no_args_is_help=True)
def _group() -> None:
    """Follow a change of template, go back to an earlier one, or restart instances."""


@command
async def status(
    session: Session,
    which: Targets = None,
    within: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="Wait at most this long: 30s, 5m, 1h.")
    ] = "10m",
) -> int:
    """Show the progress of a rollout of a pool or a workload, until it is done."""
    target = _one(which, (WorkerPool.api, Workload.api), "a pool or a workload, such as wp/boxes or wl/web")
    limit_seconds = seconds(within)
    reported = ""
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
                    if now != reported:
                        print_line(f"{name}: {now}")
                        reported = now
                    if done:
                        return 0
        except TimeoutError:
            complain(f"{name} is not there yet after {within}: {reported}")
    return FAILED


def progress(obj: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a rollout is done, and its progress in words."""
    current: dict[str, Any] = obj.get("status") or {}
    if current.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return False, "its newest form is not observed yet"
    updated, ready, there = (current.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "replicas"))
    is_pool = "placements" not in obj["spec"]
    wanted = _wanted(obj["spec"], there) if is_pool else current.get("desiredReplicas", 0)
    far = f"{updated} of {wanted} are of the newest template, {ready} ready"
    if there > wanted:
        far += f", {there - wanted} to go"
    conditions = {one["type"]: one for one in current.get("conditions", [])}
    reported = conditions.get("Ready" if is_pool else "Available", {})
    is_well = current.get("phase") == "Ready" if is_pool else reported.get("status") == "True"
    if is_well and (updated, ready, there) == (wanted, wanted, wanted):
        return True, f"{far}: done"
    is_blocked = current.get("phase") == "Degraded" if is_pool else not is_well
    if is_blocked and reported.get("message"):
        far += f"; {reported.get('reason')}: {reported['message']}"
    return False, far


def _wanted(spec: dict[str, Any], there: int) -> int:
    """Return the wanted number of replicas: of a pool that scales, the present number within its bounds."""
    bounds = spec.get("scale")
    if bounds is None:
        return int(spec.get("replicas", 1))
    least = int(bounds.get("min", 1))
    return max(least, min(there, int(bounds.get("max", least))))


@command
async def restart(
    session: Session,
    which: Targets = None,
    city: Annotated[
        str | None,
        typer.Option("--city", metavar="CITY", help="Restart only the instances of a workload in this city."),
    ] = None,
) -> None:
    """Restart all instances of a pool or a workload, one after the other."""
    from rota.control.instances.template import RESTARTED, TEMPLATE_RESTARTED

    wanted = _named(which, (WorkerPool.api, Workload.api), "a pool or a workload, such as wp/boxes or wl/web")
    if city is not None and any(kind is not Workload.api for kind, _ in wanted):
        raise bad_usage("--city is for workloads, such as wl/web")
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    async with session.client() as client:
        for kind, name in wanted:
            if city is not None:
                await _restart_city(client, name, city.lower(), now)
            elif kind is Workload.api:
                stamp = {"metadata": {"annotations": {TEMPLATE_RESTARTED: now}}}
                await client.patch(kind, name, {"spec": {"template": stamp}})
            else:
                await client.patch(kind, name, {"metadata": {"annotations": {RESTARTED: now}}})
            print_line(f"{reference(kind, name)} restarts{f' in {city.lower()}' if city is not None else ''}")


async def _restart_city(client: Client, name: str, city: str, now: str) -> None:
    placements = (await client.get(Workload, name)).spec.placements
    there = [i for i, one in enumerate(placements) if city in one.city_codes]
    if not there:
        cities = sorted({code for one in placements for code in one.city_codes})
        raise bad_usage(f"workload {name} is not placed in {city}; its cities are {', '.join(cities)}")
    changes: list[dict[str, Any]] = []
    for i in there:
        at = f"/spec/placements/{i}"
        # The placement that was read is the one that is changed.
        changes.append({"op": "test", "path": f"{at}/name", "value": placements[i].name})
        if placements[i].restarted_at:
            changes.append({"op": "add", "path": f"{at}/restartedAt/{city}", "value": now})
        else:
            changes.append({"op": "add", "path": f"{at}/restartedAt", "value": {city: now}})
    await client.patch(Workload, name, changes, type="json")


@command
async def history(session: Session, which: Targets = None) -> None:
    """List the templates that a workload has had, the newest last."""
    target = _one(which, (Workload.api,), "a workload, such as wl/web")
    async with session.client() as client:
        found = await _revisions(client, (await client.get(Workload, target.name)).metadata.uid)
    rows = [[str(one.spec.number), one.spec.template_hash, _described(one), _since(one)] for one in found]
    Columns(["REVISION", "TEMPLATE", "RUNS", "MADE"]).write(rows)


@command
async def undo(
    session: Session,
    which: Targets = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to-revision", metavar="NUMBER", min=1, help="Choose a revision; without it, the one before the newest."
        ),
    ] = None,
) -> None:
    """Roll a workload back to an earlier template."""
    target = _one(which, (Workload.api,), "a workload, such as wl/web")
    async with session.client() as client:
        workload = await client.get(Workload, target.name)
        found = await _revisions(client, workload.metadata.uid)
        earlier = found[:-1]
        chosen = next((one for one in reversed(earlier) if to is None or one.spec.number == to), None)
        if chosen is None:
            there = ", ".join(str(one.spec.number) for one in earlier) or "none"
            what = f"no revision {to}" if to is not None else "no earlier revision"
            raise bad_usage(f"workload {target.name} has {what} to go back to; there is {there}")
        template = msgspec.to_builtins(chosen.spec.template)
        changes = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": workload.metadata.resource_version},
            {"op": "replace", "path": "/spec/template", "value": template},
        ]
        await client.patch(Workload, target.name, changes, type="json")
        print_line(f"{reference(Workload.api, target.name)} goes back to revision {chosen.spec.number}")


async def _revisions(client: Client, workload: str) -> list[Revision]:
    """Return the revisions of a workload, the newest last."""
    every = (await client.list(Revision)).items
    own = [one for one in every if any(ref.uid == workload for ref in one.metadata.owner_references)]
    return sorted(own, key=lambda one: one.spec.number)


def _described(revision: Revision) -> str:
    """Return what a revision runs, in short."""
    containers = revision.spec.template.spec.containers
    return "; ".join(one.image or " ".join((*one.command, *one.args)) or one.name for one in containers)


def _since(revision: Revision) -> str:
    made = revision.metadata.creation_timestamp
    return made.astimezone().strftime("%Y-%m-%d %H:%M:%S") if made is not None else NOTHING


def _one(which: list[str] | None, kinds: tuple[Kind, ...], example: str) -> Target:
    target, *others = _named(which, kinds, example)
    if others:
        raise bad_usage(f"name one: {example}")
    return target


def _named(which: list[str] | None, kinds: tuple[Kind, ...], example: str) -> list[Target]:
    wanted = targets(which or [])
    if any(not one.name or one.kind not in kinds for one in wanted):
        raise bad_usage(f"name {example}")
    return wanted


app.command("status")(status)
app.command("restart")(restart)
app.command("history")(history)
app.command("undo")(undo)
