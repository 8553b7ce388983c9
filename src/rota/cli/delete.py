"""`rota delete`."""

from __future__ import annotations

import asyncio
import contextlib
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from rota.api import Kind
from rota.cli.command import command, complain
from rota.cli.following import Key, everything, follow_named, key_in
from rota.cli.missing_names import explain_missing
from rota.cli.naming import reference, targets
from rota.cli.options import AllNamespaces, Files, Selector, Targets
from rota.cli.output import note, print_line
from rota.cli.previews import manifests
from rota.cli.session import FAILED, Session, bad_usage
from rota.client import ALL_NAMESPACES, Client
from rota.registry import ApiError
from rota.registry.options import Propagation


class Cascade(StrEnum):
    """The fate of objects that belong to the deleted one."""

    background = "background"
    foreground = "foreground"
    orphan = "orphan"


PROPAGATION: dict[Cascade, Propagation] = {
    Cascade.background: "Background",
    Cascade.foreground: "Foreground",
    Cascade.orphan: "Orphan",
}


class Doomed(NamedTuple):
    """One object to delete."""

    kind: Kind
    name: str
    namespace: str | None


@command
async def delete(
    session: Session,
    which: Targets = None,
    filename: Files = None,
    selector: Selector = "",
    all_: Annotated[bool, typer.Option("--all", help="Delete all objects of the kind in the namespace.")] = False,
    all_namespaces: AllNamespaces = False,
    cascade: Annotated[
        Cascade,
        typer.Option(
            "--cascade",
            help="Delete dependent objects after the owner (background), before it (foreground), or never (orphan).",
        ),
    ] = Cascade.background,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when the objects are gone, or at once.")
    ] = True,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Do not fail if an object does not exist.")
    ] = False,
) -> int:
    """Delete objects by name or by label, or those in manifests."""
    if filename and (which or selector or all_):
        raise bad_usage("-f names the objects: it does not go with kinds, names, --selector or --all")
    async with session.client() as client:
        if filename:
            # In reverse, so that a namespace goes last.
            found = manifests(filename, session.settings.namespace)
            doomed = [Doomed(m.kind, m.name, m.namespace) for m in reversed(found)]
        else:
            doomed = await _selected(client, which or [], selector, all_=all_, everywhere=all_namespaces)
            if not doomed:
                note("nothing to delete")
        asked = [await _ask(client, each, PROPAGATION[cascade], lenient=ignore_not_found) for each in doomed]
        waiting: dict[Kind, dict[Key, str]] = {}
        for (kind, name, namespace), uid in zip(doomed, asked, strict=True):
            if uid and wait:
                waiting.setdefault(kind, {})[key_in(client, kind, name, namespace)] = uid
            elif uid:
                print_line(f"{reference(kind, name)} is being deleted")
        async with asyncio.TaskGroup() as group:
            for kind, uids in waiting.items():
                group.create_task(_wait_until_gone(client, kind, uids))
    return FAILED if None in asked else 0


async def _selected(client: Client, words: list[str], labels: str, *, all_: bool, everywhere: bool) -> list[Doomed]:
    wanted = targets(words)
    if wanted[0].name:
        if labels or all_ or everywhere:
            raise bad_usage("a name does not go with --selector, --all or --all-namespaces")
        return [Doomed(kind, name, None) for kind, name in wanted]
    if not labels and not all_:
        raise bad_usage("name the objects, or select them with --selector or --all")
    doomed = []
    for kind, _ in wanted:
        found, _ = await everything(client, kind, namespace=ALL_NAMESPACES if everywhere else None, labels=labels)
        doomed += [Doomed(kind, obj["metadata"]["name"], obj["metadata"].get("namespace")) for obj in found]
    return doomed


async def _ask(client: Client, each: Doomed, propagation: Propagation, *, lenient: bool) -> str | None:
    """Request one deletion. Returns the uid of an object that still exists, an empty text if it is gone, None if it was
    refused."""
    try:
        left = await client.delete(each.kind, each.name, namespace=each.namespace, propagation=propagation)
    except ApiError as error:
        if error.code == 404 and lenient:
            return ""
        if error.code not in (403, 404, 409):
            raise
        await explain_missing(client, error)
        complain(error.message)
        return None
    if left is None:
        print_line(f"{reference(each.kind, each.name)} deleted")
        return ""
    uid: str = left["metadata"]["uid"]
    return uid


async def _wait_until_gone(client: Client, kind: Kind, uids: dict[Key, str]) -> None:
    """Return when all of these objects are gone."""
    left = dict(uids)
    async with contextlib.aclosing(follow_named(client, kind, uids)) as changes:
        async for at, obj in changes:
            # A new object of the same name has another uid.
            if at in left and (obj is None or obj["metadata"]["uid"] != left[at]):
                del left[at]
                print_line(f"{reference(kind, at[1])} deleted")
            if not left:
                return
