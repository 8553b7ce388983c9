"""`rota schema`."""

from __future__ import annotations

import json

from rota.cli.command import command
from rota.cli.output import print_line
from rota.cli.session import Session


@command
def schema(_: Session) -> None:
    """Print the JSON Schema of the project file, for editors that check and complete it while it is written."""
    from rota.manifest.project_schema import project_schema

    print_line(json.dumps(project_schema(), indent=2, ensure_ascii=False))
