"""Options that several commands share."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from rota.cli.session import bad_usage


def complete_kinds(incomplete: str) -> list[str]:
    """Return the kinds that begin with a text, for the shell."""
    from rota.cli.naming import complete

    return complete(incomplete)


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KIND[,KIND…] [NAME…] | KIND/NAME…]",
        help="The objects: a kind, a kind and names, or both joined by a slash.",
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
        help="Read a file, a folder with all below it, or - for standard input; repeatable.",
    ),
]
Selector = Annotated[
    str,
    typer.Option("--selector", "-l", metavar="LABELS", help="Select objects with these labels: a=b,c!=d,e in (f,g)."),
]
FieldSelector = Annotated[
    str, typer.Option("--field-selector", metavar="FIELDS", help="Select objects with these fields: metadata.name=a.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Select objects of all namespaces.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change, until Ctrl-C.")]
Force = Annotated[bool, typer.Option("--force", help="Take over fields that another field manager owns.")]
ProjectFile = Annotated[
    str,
    typer.Option("--filename", "-f", metavar="PATH", help="Read this project file, or the rota.yaml of this folder."),
]


class ManifestFormat(StrEnum):
    """The format of printed objects."""

    yaml = "yaml"
    json = "json"


Output = Annotated[ManifestFormat, typer.Option("--output", "-o", help="Choose the format.")]


# Time spans, as people write them: `30s`, `5m`, `1h30m`, `7d`, or plain seconds.

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
SECONDS_MAX = 10 * 365 * 86400


def seconds(text: str) -> float:
    """Return the seconds of a time span."""
    whole = re.fullmatch(r"\d+(\.\d+)?", text)
    total = float(text) if whole else sum(float(amount) * UNITS[unit] for amount, unit in PART.findall(text))
    if not whole and not re.fullmatch(f"({PART.pattern})+", text):
        raise bad_usage(f'"{text}" is no time span; write 30s, 5m, 1h30m or 7d')
    if total > SECONDS_MAX:
        raise bad_usage(f'"{text}" is longer than ten years')
    return total
