"""What a deploy did, or would do, on the screen."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from rota.cli.output import Part, line, printable
from rota.manifest.deploying import Deployment, Doomed, Step, named
from rota.manifest.deploying_changes import ABSENT, Change

MARKS: dict[str, Part] = {"created": ("+", "green"), "updated": ("~", "yellow"), "deleted": ("-", "red")}
OUTCOMES = ("created", "updated", "unchanged", "deleted")
NOT_SET = "(not set)"
HIDDEN = "***"
VALUE_LENGTH_MAX = 60
"""Characters of a value that are shown."""
FIELDS_MAX = 40
"""Fields that are shown of one object."""


class Deployed:
    """Writes a line for each object that changes, and at the end how many of each kind there were."""

    def __init__(self, deployment: Deployment, namespace: str, *, dry_run: bool) -> None:
        self._deployment = deployment
        self._namespace = namespace
        self._note = " (dry run)" if dry_run else ""
        self._counts: Counter[tuple[str, str]] = Counter()

    def write_code(self) -> None:
        for digest in self._deployment.missing:
            packed = self._deployment.project.packs[digest]
            line(("^", "cyan"), f" code {digest[:19]}…: {packed.files} files, {len(packed.content)} bytes{self._note}")

    def write(self, one: Step | Doomed) -> None:
        outcome = "deleted" if isinstance(one, Doomed) else one.outcome
        self._counts[one.kind.name, outcome] += 1
        if outcome == "unchanged":
            return
        line(MARKS[outcome], f" {named(one, self._namespace)} {outcome}{self._note}")
        if isinstance(one, Step):
            for change in one.changes[:FIELDS_MAX]:
                _write_change(change)
            if len(one.changes) > FIELDS_MAX:
                line("    ", (f"… and {len(one.changes) - FIELDS_MAX} more fields", "dim"))

    def write_summary(self) -> None:
        """How many of each kind were created, updated, left and deleted."""
        for kind in sorted({kind for kind, _ in self._counts}):
            counts = [f"{self._counts[kind, outcome]} {outcome}" for outcome in OUTCOMES[:3]]
            if gone := self._counts[kind, "deleted"]:
                counts.append(f"{gone} deleted")
            line((f"{kind}: ", "bold"), f"{', '.join(counts)}{self._note}")
        if not self._counts:
            line(f"nothing is declared{self._note}")


def _write_change(change: Change) -> None:
    path = printable(".".join(change.path))
    before, after = (_text(change.path, value) for value in (change.before, change.after))
    line("    ", (path, "dim"), "  ", (before, "red"), " → ", (after, "green"))


def _text(path: tuple[str, ...], value: Any) -> str:
    if value is ABSENT:
        return NOT_SET
    text = json.dumps(_hidden(value, within=path[-1]), ensure_ascii=False)
    return printable(text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 1]}…")


def _hidden(value: Any, *, within: str) -> Any:
    """A value without those of environment variables and headers: they may be secret."""
    if within == "headers" and isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    if isinstance(value, dict):
        shown = {name: _hidden(inner, within=name) for name, inner in value.items()}
        return shown | {"value": HIDDEN} if within == "env" and "value" in value else shown
    if isinstance(value, list):
        return [_hidden(item, within=within) for item in value]
    return value
