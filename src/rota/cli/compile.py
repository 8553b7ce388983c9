"""`rota compile`."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.output import line
from rota.cli.project_file import ProjectFile
from rota.cli.session import Session


class Form(StrEnum):
    """The format of printed manifests."""

    yaml = "yaml"
    json = "json"


@command
def compile_(
    _: Session,
    filename: ProjectFile = "rota.yaml",
    output: Annotated[Form, typer.Option("--output", "-o", help="The form in which they are printed.")] = Form.yaml,
) -> None:
    """Print the objects that a project file declares, as manifests. No server is asked."""
    from rota.manifest import dumps
    from rota.manifest.project import load_project

    objects = [manifest.object for manifest in load_project(filename, os.environ).manifests]
    if output is Form.json:
        line(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2, ensure_ascii=False))
    elif objects:
        line(dumps(*objects).rstrip("\n"))
