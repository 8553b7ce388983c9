"""Print what a deploy did, or would do."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rota.cli.command import complain
from rota.cli.function_states import State
from rota.cli.output import Part, note, print_line, printable
from rota.engine.references import shown
from rota.manifest.deploy import Deployment, Removal, Step, display_name
from rota.manifest.deploy_diff import ABSENT, Change

MARKS: dict[str, Part] = {
    "created": ("+", "green"),
    "updated": ("~", "yellow"),
    "deleted": ("-", "red"),
    "released": ("~", "yellow"),
}
OUTCOMES = ("created", "updated", "unchanged", "deleted", "released")
RARE_OUTCOMES = ("deleted", "released")
"""Counted only if there are any."""
NOT_SET = "(not set)"
HIDDEN = "***"
VALUE_LENGTH_MAX = 60
"""Characters of a value that are shown."""
SAME_LENGTH_MAX = 15
"""Characters shown before the first difference, where there is no room for all."""
FIELDS_MAX = 40
"""Fields that are shown of one object."""

LEFT_MAX = 10
"""Objects that left the file and are named."""
LACKING_MAX = 20
"""Missing objects that are named."""

_SECRET = {"env": "value", "files": "content"}
"""The field of an item that is hidden, by the name of the list."""
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^/?#\s\"]{1,1000}@", re.IGNORECASE)
_QUERY = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^?#\s\"]{1,1000}\?)[^#\s\"]+", re.IGNORECASE)
"""Secrets in URLs: the user, and the query. Bounded, because values are large."""


class DeployReport:
    """Prints a line for each object that changes, and the counts at the end."""

    def __init__(self, deployment: Deployment, namespace: str, *, dry_run: bool) -> None:
        self._deployment = deployment
        self._namespace = namespace
        self._note = " (dry run)" if dry_run else ""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._uncallable: set[str] = set()

    def write_code(self) -> None:
        for digest in self._deployment.missing:
            packed = self._deployment.project.packs[digest]
            print_line(
                ("^", "cyan"), f" code {digest[:19]}…: {packed.files} files, {len(packed.content)} bytes{self._note}"
            )

    def write(self, one: Step | Removal) -> None:
        outcome = one.outcome
        self._counts[one.kind.name, outcome] += 1
        if outcome == "unchanged":
            return
        why = (
            ": no longer in the file; it stays, because the project did not create it" if outcome == "released" else ""
        )
        print_line(MARKS[outcome], f" {display_name(one, self._namespace)} {outcome}{why}{self._note}")
        if isinstance(one, Step):
            for change in one.changes[:FIELDS_MAX]:
                _write_change(change)
            if len(one.changes) > FIELDS_MAX:
                print_line("    ", (f"… and {len(one.changes) - FIELDS_MAX} more fields", "dim"))

    def write_stopped(self) -> None:
        """Print how many objects were done before an error."""
        done, all_ = self._counts.total(), len(self._deployment.steps) + len(self._deployment.removals)
        note(f"stopped after {done} of {all_} objects; deploy again to go on from there")

    def write_summary(self) -> None:
        """Print the counts by kind and outcome, and what is missing or left over."""
        for kind in sorted({kind for kind, _ in self._counts}):
            shown_outcomes = [one for one in OUTCOMES if one not in RARE_OUTCOMES or self._counts[kind, one]]
            counts = [f"{self._counts[kind, outcome]} {outcome}" for outcome in shown_outcomes]
            print_line((f"{kind}: ", "bold"), f"{', '.join(counts)}{self._note}")
        if not self._counts:
            print_line(f"nothing is declared{self._note}")
        if left := self._deployment.unpruned:
            names = ", ".join(display_name(one, self._namespace) for one in left[:LEFT_MAX])
            beyond = f" and {len(left) - LEFT_MAX} more" if len(left) > LEFT_MAX else ""
            note(f"no longer in the file, and still there: {names}{beyond}; `rota deploy --prune` takes them away")
        for one in self._deployment.missing_references[:LACKING_MAX]:
            first, *more = map(shown, one.referrers)
            others = f" and {len(more)} more" if more else ""
            note(f"{shown(one.id)} is neither declared nor on the server: {first}{others} cannot be ready without it")

    def write_state(self, name: str, state: State) -> None:
        """Print the state of a function that is not ready."""
        if state.verdict == "NotLoaded" and not state.has_before:
            self._uncallable.add(name)
        write_state(name, state)

    def write_end(self, urls: Mapping[str, str]) -> None:
        """Print the URLs of functions, except of those that no call can reach."""
        for name, url in urls.items():
            if name not in self._uncallable:
                print_line(f"Function/{name} is called at ", (printable(url), "bold"))


def write_state(name: str, state: State) -> None:
    """Print the state of a function that is not ready."""
    if state.verdict == "NotLoaded":
        before = "; the version before goes on to answer calls" if state.has_before else ""
        complain(f"Function/{name} cannot be loaded: {state.why}\n`rota logs fn/{name}` tells more{before}")
    elif state.verdict in ("HeldUp", "Unobserved"):
        note(f"Function/{name} is not ready: {state.why}")
    elif state.verdict in ("Coming", "Gone"):
        complain(f"Function/{name} is not ready yet: {state.why}\nit goes on; `rota wait fn/{name}` tells when it is")


def _write_change(change: Change) -> None:
    path = printable(".".join(change.path))
    texts = [_text(change.path, value) for value in (change.before, change.after)]
    same = _same_length(*texts)
    before, after = (_part(text, same) for text in texts)
    print_line("    ", (path, "dim"), "  ", (before, "red"), " → ", (after, "green"))


def _text(path: tuple[str, ...], value: Any) -> str:
    if value is ABSENT:
        return NOT_SET
    return printable(json.dumps(hidden(value, within=path[-1]), ensure_ascii=False, sort_keys=True))


def _same_length(one: str, other: str) -> int:
    """Return the length of the common beginning; 0 if both texts are equal, because then the difference is hidden."""
    shorter = min(len(one), len(other)) if one != other else 0
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)


def _part(text: str, same: int) -> str:
    """Return the part of a text that there is room for, from a little before the first difference."""
    if len(text) <= VALUE_LENGTH_MAX:
        return text
    begin = max(0, same - SAME_LENGTH_MAX) if same >= VALUE_LENGTH_MAX // 2 else 0
    end = begin + VALUE_LENGTH_MAX - 1 - (begin > 0)
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


def hidden(value: Any, *, within: str) -> Any:
    """Return a value without what may be secret: environment variables, headers, files, and secrets in URLs."""
    if isinstance(value, str):
        return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", value))
    if within == "headers" and isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    if isinstance(value, dict):
        shown = {name: hidden(inner, within=name) for name, inner in value.items()}
        secret = _SECRET.get(within)
        return shown | {secret: HIDDEN} if secret in value else shown
    if isinstance(value, list):
        return [hidden(item, within=within) for item in value]
    return value
