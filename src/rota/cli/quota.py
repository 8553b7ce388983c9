"""`rota quota`."""

from __future__ import annotations

from rota.api import Quota
from rota.api.cell import QuotaStatus, Used
from rota.cli.command import command
from rota.cli.output import Columns, print_line
from rota.cli.session import FAILED, Session
from rota.client import Client
from rota.registry import ApiError

NAME = "default"
COUNTED = ("instances", "cpu", "memory", "storage")


@command
async def quota(session: Session) -> int:
    """Show how much of the namespace's budget is used, who holds it, and who waits for it."""
    async with session.client() as client:
        found = await _find(client)
        if found is None:
            print_line(f"namespace {client.namespace} has no Quota named {NAME}: nothing is limited")
            return 0
        status = found.status or QuotaStatus()
        used = status.used or Used()
        rows = [
            (name, getattr(used, name) or 0, getattr(found.spec.hard, name))
            for name in COUNTED
            if getattr(used, name) or getattr(found.spec.hard, name) is not None
        ]
        Columns(("BUDGET", "USED", "OF")).write(rows)
        if status.holders:
            print_line("")
            Columns(("HELD BY", "INSTANCES", "CPU EACH", "MEMORY EACH", "STORAGE EACH")).write(
                [
                    (f"{one.kind}/{one.name}", one.count, each.cpu, each.memory, each.storage)
                    for one in status.holders
                    for each in (one.requests or Used(),)
                ]
            )
        if status.waiting:
            print_line("")
            Columns(("WAITING", "INSTANCES", "WHY")).write(
                [(f"{one.kind}/{one.name}", one.count, one.message) for one in status.waiting]
            )
            listed = sum(one.count for one in status.waiting)
            if status.waiting_instances > listed:
                print_line(f"and {status.waiting_instances - listed} instances of others")
        enforced = status.condition("Enforced")
        if enforced is None or enforced.status != "True":
            print_line("")
            print_line("no server enforces it yet" if enforced is None else enforced.message)
            return FAILED
    return 0


async def _find(client: Client) -> Quota | None:
    try:
        return await client.get(Quota, NAME)
    except ApiError as error:
        if error.code == 404:
            return None
        raise
