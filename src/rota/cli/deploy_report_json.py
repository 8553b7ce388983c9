"""Print what a deploy did, or would do, as one JSON value. Its names do not change between versions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rota.cli.deploy_report import OUTCOMES, hidden
from rota.cli.function_states import State
from rota.cli.output import print_line
from rota.engine.references import shown
from rota.manifest.deploy import Deployment, Removal, Step
from rota.manifest.deploy_diff import ABSENT, Change

Json = dict[str, Any]
LOADED = {"Ready": True, "NotLoaded": False}
"""The verdicts that decide whether a function could be loaded."""


class DeployReportJson:
    """Collects the same entries as `DeployReport`, and prints them at the end."""

    def __init__(self, deployment: Deployment, namespace: str, *, dry_run: bool) -> None:
        self._deployment = deployment
        self._head = {"project": deployment.project.name, "namespace": namespace, "dryRun": dry_run}
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
        self._changes: list[Json] = []
        self._functions: list[Json] = []
        self._urls: Mapping[str, str] = {}

    def write_code(self) -> None:
        """Do nothing: `write_end` prints the code."""

    def write(self, one: Step | Removal) -> None:
        outcome = one.outcome
        self._counts[one.kind.name][outcome] += 1
        if outcome == "unchanged":
            return
        fields = [_field(change) for change in one.changes] if isinstance(one, Step) else []
        self._changes.append({"kind": one.kind.name, "name": one.name, "outcome": outcome, "fields": fields})

    def write_stopped(self) -> None:
        """Print what was done before an error."""
        self._print(finished=False)

    def write_summary(self) -> None:
        """Do nothing: `write_end` prints the counts."""

    def write_state(self, name: str, state: State) -> None:
        said = {"name": name, "ready": state.verdict == "Ready", "loaded": LOADED.get(state.verdict)}
        self._functions.append({**said, "reason": state.reason, "message": state.message})

    def write_end(self, urls: Mapping[str, str]) -> None:
        self._urls = urls
        self._print(finished=True)

    def _print(self, *, finished: bool) -> None:
        project, missing = self._deployment.project, self._deployment.missing
        packs = [project.packs[digest] for digest in missing]
        lacking = [
            {"object": shown(one.id), "neededBy": [shown(id_) for id_ in one.referrers]}
            for one in self._deployment.missing_references
        ]
        said = {
            **self._head,
            "finished": finished,
            "counts": dict(sorted(self._counts.items())),
            "changes": self._changes,
            "code": [{"digest": one.digest, "files": one.files, "bytes": len(one.content)} for one in packs],
            "lacking": lacking,
            "left": [{"kind": one.kind.name, "name": one.name} for one in self._deployment.unpruned],
            "functions": sorted(self._functions, key=lambda one: str(one["name"])),
            "urls": dict(self._urls),
        }
        print_line(json.dumps(said, indent=2, ensure_ascii=False))


def _field(change: Change) -> Json:
    """Return a field that changes. `before` or `after` is left out where the field is not set."""
    values = {"before": change.before, "after": change.after}
    said = {name: hidden(value, within=change.path[-1]) for name, value in values.items() if value is not ABSENT}
    return {"path": list(change.path), **said}
