"""`rota init`."""

from __future__ import annotations

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.output import note, print_line
from rota.cli.session import CommandError, Session

TEMPLATES = "templates"
NAME_LENGTH_MAX = 63


@command
def init(
    _: Session,
    folder: Annotated[
        str, typer.Argument(metavar="[FOLDER]", help="The folder, which is created if it does not exist.")
    ] = ".",
) -> None:
    """Write a small project that runs, with comments on its next steps. Existing files are never replaced."""
    top = Path(folder)
    wanted = contents(project_name(top))
    there = [name for name in wanted if (top / name).exists()]
    if there:
        raise CommandError(f"{top / there[0]} is there already; nothing was written")
    for name, text in wanted.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print_line(f"wrote {path}")
    where = "" if folder == "." else f" -f {shlex.quote(folder)}"
    note(f"next: `rota start`, then `rota deploy{where}`; `rota dev{where}` does both, and again whenever you save")


def project_name(folder: Path) -> str:
    """Return a project name made from the folder's name."""
    plain = re.sub("[^a-z0-9]+", "-", folder.resolve().name.lower())
    return plain[:NAME_LENGTH_MAX].strip("-") or "project"


def contents(name: str) -> dict[str, str]:
    """Return the files of a starter project, by path."""
    from rota.manifest.project_schema import project_schema

    return {
        "rota.yaml": _template("rota.yaml").replace("NAME", name),
        "hello/main.py": _template("hello.py.txt"),
        "rota.schema.json": json.dumps(project_schema(), indent=2, ensure_ascii=False) + "\n",
    }


def _template(name: str) -> str:
    return files("rota.cli").joinpath(TEMPLATES, name).read_text(encoding="utf-8")
