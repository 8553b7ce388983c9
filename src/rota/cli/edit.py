"""`rota edit`."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rota.api import Kind
from rota.cli.command import command
from rota.cli.naming import reference, targets
from rota.cli.options import Targets
from rota.cli.output import note, print_line
from rota.cli.previews import BOOKKEEPING
from rota.cli.session import CommandError, Session, bad_usage
from rota.client import Client
from rota.manifest import ManifestError, dumps, loads
from rota.registry import ApiError

Object = dict[str, Any]

HEADING = "# Edit the object and save. Lines that begin with # are left out; an empty file changes nothing.\n"
KEPT = "resourceVersion"
"""The field that makes an update fail if another client has changed the object meanwhile."""


@command
async def edit(session: Session, which: Targets = None) -> None:
    """Change objects in your editor: $VISUAL, $EDITOR, or vi. What is refused is opened again, with the reason."""
    wanted = targets(which or [])
    if not all(target.name for target in wanted):
        raise bad_usage("name the objects: KIND NAME, or KIND/NAME")
    async with session.client() as client:
        for kind, name in wanted:
            await _edit(client, kind, name)


async def _edit(client: Client, kind: Kind, name: str) -> None:
    live = await client.get(kind, name)
    body = dumps(_editable(live))
    before, complaint = body, ""
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        file = Path(folder) / f"{kind.singular}-{name}.yaml"
        while True:
            file.write_text(HEADING + complaint + body)
            _open(file)
            body = _without_comments(file.read_text())
            if not body.strip() or body == before:
                _give_up(complaint, body)
                return
            before = body
            try:
                changed = _changed(body, kind, live)
                await client.update(changed)
            except ManifestError as error:
                complaint = _commented(_located(error))
            except CommandError as error:
                complaint = _commented(str(error))
            except ApiError as error:
                complaint = _commented(error.message)
                if error.code == 409:
                    live = await client.get(kind, name)
                    complaint += _commented("it was changed meanwhile; saving again writes your version over that")
                    before = ""
            else:
                print_line(f"{reference(kind, name)} edited")
                return


def _editable(obj: Object) -> Object:
    """Return what a person may change, and what identifies the object."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in BOOKKEEPING}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": meta}


def _open(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(file)], check=False)
    except OSError as error:
        raise CommandError(f"the editor {editor} cannot be started: {error.strerror}; set EDITOR to another") from None
    if done.returncode:
        raise CommandError(f"the editor {editor} failed with code {done.returncode}; nothing was changed")


def _without_comments(text: str) -> str:
    return "".join(each for each in text.splitlines(keepends=True) if not each.startswith("#"))


def _commented(text: str) -> str:
    return "".join(f"# {each}\n" for each in text.splitlines()) + "#\n"


def _located(error: ManifestError) -> str:
    """Return the problems, with line numbers of the file in which they are written above the object."""
    above = HEADING.count("\n") + len(error.problems) + 1
    return "\n".join(
        f"line {each.line_number + above}: " + ": ".join(filter(None, (each.path, each.message)))
        for each in error.problems
    )


def _give_up(complaint: str, body: str) -> None:
    if not complaint:
        note("nothing was changed")
        return
    with tempfile.NamedTemporaryFile("w", prefix="rota-edit-", suffix=".yaml", delete=False) as kept:
        kept.write(body)
    reasons = "\n".join(each.removeprefix("#").strip() for each in complaint.splitlines()).strip()
    raise CommandError(f"{reasons}\nnothing was changed; what you wrote is in {kept.name}")


def _changed(body: str, kind: Kind, live: Object) -> Object:
    found = loads(body, "line")
    if len(found) != 1 or found[0].kind is not kind or found[0].name != live["metadata"]["name"]:
        raise CommandError(f"exactly this {kind.name} must be here: its kind and name cannot be changed")
    obj = found[0].object
    return {**obj, "metadata": {**obj["metadata"], KEPT: live["metadata"][KEPT]}}
