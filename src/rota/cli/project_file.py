"""The option for the project file."""

from __future__ import annotations

from typing import Annotated

import typer

ProjectFile = Annotated[
    str,
    typer.Option("--filename", "-f", metavar="PATH", help="The project file, or the folder in which rota.yaml is."),
]
