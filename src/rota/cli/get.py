"""`rota get`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import typer

from rota.cli.command import command, complain
from rota.cli.following import everything, follow
from rota.cli.formats import (
    FORMATS,
    Format,
    KindGroup,
    TableOf,
    format_named,
    listed,
    without_managed_fields,
    write_document,
    write_names,
)
from rota.cli.missing_names import explain_missing, note_nothing_found
from rota.cli.naming import Target, targets
from rota.cli.options import AllNamespaces, FieldSelector, Selector, Targets, Watch
from rota.cli.output import print_line
from rota.cli.patience import AWAY_SECONDS_MAX, Patience
from rota.cli.session import FAILED, Session, bad_usage
from rota.client import ALL_NAMESPACES, Client
from rota.registry import ApiError

Object = dict[str, Any]


@command
async def get(
    session: Session,
    which: Targets = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help=f"Choose the format: {FORMATS}.")
    ] = "",
    watch: Watch = False,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    field_selector: FieldSelector = "",
    show_managed_fields: Annotated[
        bool, typer.Option("--show-managed-fields", help="Keep the managed fields in json and yaml.")
    ] = False,
) -> int:
    """Show objects, as a table or in full."""
    wanted, form = targets(which or []), format_named(output)
    named = bool(wanted[0].name)
    if named and (selector or field_selector or all_namespaces):
        raise bad_usage("a name does not go with --selector, --field-selector or --all-namespaces")
    query = Query(ALL_NAMESPACES if all_namespaces else None, selector, field_selector)
    async with session.client() as client:
        if watch:
            await _watch(client, wanted, query, form)
            return 0
        groups, failed = await (_by_name(client, wanted) if named else _by_kind(client, wanted, query))
        if not show_managed_fields:
            groups = [KindGroup(kind, [without_managed_fields(obj) for obj in objects]) for kind, objects in groups]
        _write(groups, form, named=named, with_namespace=all_namespaces)
        if not named and not any(group.objects for group in groups):
            await note_nothing_found(client, everywhere=all_namespaces)
    return failed


class Query:
    """The selection of objects that holds for each kind."""

    def __init__(self, namespace: str | None, labels: str, fields: str) -> None:
        self.namespace = namespace
        self.labels = labels
        self.fields = fields

    def of(self, target: Target) -> dict[str, Any]:
        fields = f"metadata.name={target.name}" if target.name else self.fields
        return {"namespace": self.namespace, "labels": self.labels, "fields": fields}


async def _by_name(client: Client, wanted: list[Target]) -> tuple[list[KindGroup], int]:
    """Return the named objects and the exit code. Prints an error for each that does not exist."""
    groups: dict[str, KindGroup] = {}
    failed = 0
    for kind, name in wanted:
        try:
            obj = await client.get(kind, name)
        except ApiError as error:
            if error.code != 404:
                raise
            await explain_missing(client, error)
            complain(error.message)
            failed = FAILED
        else:
            groups.setdefault(kind.name, KindGroup(kind, [])).objects.append(obj)
    return [*groups.values()], failed


async def _by_kind(client: Client, wanted: list[Target], query: Query) -> tuple[list[KindGroup], int]:
    return [
        KindGroup(target.kind, (await everything(client, target.kind, **query.of(target)))[0]) for target in wanted
    ], 0


def _write(groups: list[KindGroup], form: Format, *, named: bool, with_namespace: bool) -> None:
    objects = [obj for group in groups for obj in group.objects]
    if form.name == "name":
        write_names(groups)
    elif not form.is_table:
        if objects or not named:
            write_document(objects[0] if named and len(objects) == 1 else listed(objects), form)
    else:
        filled = [group for group in groups if group.objects]
        for i, (kind, members) in enumerate(filled):
            if i:
                print_line("")
            TableOf(kind, form, with_namespace=with_namespace, with_kind=len(groups) > 1).write(members)


async def _watch(client: Client, wanted: list[Target], query: Query, form: Format) -> None:
    """Follow every kind, or named object, and print changes as they come."""
    tables = {
        target.kind.name: TableOf(
            target.kind,
            form,
            with_namespace=query.namespace == ALL_NAMESPACES,
            with_kind=len({t.kind.name for t in wanted}) > 1,
        )
        for target in wanted
    }
    # Shared, so that one message says that the server is away.
    away = Patience(seconds_max=AWAY_SECONDS_MAX)
    async with asyncio.TaskGroup() as following:
        for target in wanted:
            following.create_task(_follow(client, target, query, form, tables[target.kind.name], away))


async def _follow(client: Client, target: Target, query: Query, form: Format, table: TableOf, away: Patience) -> None:
    async with contextlib.aclosing(follow(client, target.kind, **query.of(target), patience=away)) as batches:
        async for changed, gone in batches:
            objects = [*changed, *gone]
            if form.is_table:
                if objects:
                    table.write(objects)
            elif form.name == "name":
                write_names([KindGroup(target.kind, objects)])
            else:
                for obj in objects:
                    if form.name == "yaml":
                        print_line("---")
                    write_document(without_managed_fields(obj), form)
