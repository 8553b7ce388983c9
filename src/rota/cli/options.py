"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_kinds(incomplete: str) -> list[str]:
    """Return the kinds that begin with a text, for the shell."""
    from rota.cli.naming import complete

    return complete(incomplete)


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KIND[,KIND…] [NAME…] | KIND/NAME…]",
        help="Which objects: a kind, a kind and names, or both joined by a slash.",
        autocompletion=complete_kinds,
        show_default=False,
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="PATH",
        help="A file, a folder with all below it, or - for standard input; repeatable.",
    ),
]
Selector = Annotated[
    str, typer.Option("--selector", "-l", metavar="LABELS", help="Only objects with these labels: a=b,c!=d,e in (f,g).")
]
FieldSelector = Annotated[
    str, typer.Option("--field-selector", metavar="FIELDS", help="Only objects with these fields: metadata.name=a.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="The objects of all namespaces.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change, until Ctrl-C.")]
Force = Annotated[bool, typer.Option("--force", help="Take fields over that somebody else owns.")]
