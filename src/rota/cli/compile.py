"""`rota compile`."""

from __future__ import annotations

import json
import os

from rota.cli.command import command
from rota.cli.options import ManifestFormat, Output, ProjectFile
from rota.cli.output import print_line
from rota.cli.session import Session


@command
def compile_(
    _: Session,
    filename: ProjectFile = "rota.yaml",
    output: Output = ManifestFormat.yaml,
) -> None:
    """Print the objects that a project file declares, as manifests. No server is asked."""
    from rota.manifest import dumps
    from rota.manifest.project import load_project

    objects = [manifest.object for manifest in load_project(filename, os.environ).manifests]
    if output is ManifestFormat.json:
        print_line(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2, ensure_ascii=False))
    elif objects:
        print_line(dumps(*objects).rstrip("\n"))
