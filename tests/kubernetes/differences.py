"""The differences that are known and documented, each told by what it looks like. Whatever is not here must not be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rota.api import KINDS
from rota.api.schema import CHECKS, Schema, object_schema
from rota.registry.errors import CAUSES_MAX
from tests.kubernetes.verdict import Verdict


def explanation(theirs: Verdict, mine: Verdict) -> str | None:
    """The documented difference that accounts for two verdicts."""
    return next((name for name, matches in KNOWN.items() if matches(theirs, mine)), None)


def _list_for_a_time(theirs: Verdict, mine: Verdict) -> bool:
    """The array is the only thing wrong, and Kubernetes finds nothing wrong with it."""
    only = {field for reason, field, message in mine.causes - theirs.causes if message.endswith('string: "array"')}
    return bool(only) and all(TIME_FIELD.search(field) for field in only)


def _no_owners(theirs: Verdict, mine: Verdict) -> bool:
    """Kubernetes has lost count, and all else is the same."""
    if not (theirs.accepted and mine.accepted) or "managedFields" in theirs.stored["metadata"]:
        return False
    unowned = {name: value for name, value in mine.stored["metadata"].items() if name != "managedFields"}
    return bool(theirs.stored == {**mine.stored, "metadata": unowned})


def _last_instant(theirs: Verdict, mine: Verdict) -> bool:
    return any('"9999-12-31T23:59:59.9999999Z"' in message for _, _, message in mine.causes - theirs.causes)


def _whole_fraction_in_a_rule(theirs: Verdict, mine: Verdict) -> bool:
    said = ("invalid data, expected int, got float64", "expected XIntOrString value to be either a string or integer")
    return any(words in message for _, _, message in theirs.causes for words in said)


def _version_that_makes_no_sense(theirs: Verdict, mine: Verdict) -> bool:
    return theirs.code == 500 and mine.code in (400, 409)


def _another_kind_in_a_status(theirs: Verdict, mine: Verdict) -> bool:
    return theirs.accepted and any(field == "kind" for _, field, _ in mine.causes)


def _generation_of_a_core_kind(theirs: Verdict, mine: Verdict) -> bool:
    refused = ("FieldValueInvalid", "metadata.generation", "") in theirs.causes
    kept = theirs.accepted and theirs.stored["apiVersion"] == "v1" and "generation" in theirs.stored["metadata"]
    return mine.accepted and (refused or kept)


def _empty_fields_of_events(theirs: Verdict, mine: Verdict) -> bool:
    accepted = theirs.accepted and mine.accepted and theirs.stored["kind"] == "Event"
    return accepted and _bare(theirs.stored) == _bare(mine.stored)


def _bare(value: Any) -> Any:
    """A value without anything that is empty, and without who owns it."""
    if not isinstance(value, dict):
        return value
    bare = {name: _bare(inner) for name, inner in value.items() if name != "managedFields"}
    return {name: inner for name, inner in bare.items() if inner not in (None, "", 0, {})}


def _bounds_on_core_kinds(theirs: Verdict, mine: Verdict) -> bool:
    only = mine.causes - theirs.causes
    return theirs.accepted and bool(only) and all(reason == "FieldValueTooLong" for reason, _, _ in only)


def _bytes_as_a_list(theirs: Verdict, mine: Verdict) -> bool:
    return theirs.accepted and mine.code == 400 and theirs.stored["kind"] in ("Secret", "ConfigMap")


def _more_causes(theirs: Verdict, mine: Verdict) -> bool:
    return len(theirs.causes) > CAUSES_MAX and len(mine.causes) == CAUSES_MAX and mine.causes < theirs.causes


def _checks(theirs: Verdict, mine: Verdict) -> bool:
    """Rota finds more in fields that it checks, and says it instead of what a rule or a pattern says of the same."""
    only = mine.causes - theirs.causes
    fields = {field for _, field, _ in only}
    is_checked = all(reason == "FieldValueInvalid" and CHECKED.match(field) for reason, field, _ in only)
    return bool(only) and is_checked and all(field in fields for _, field, _ in theirs.causes - mine.causes)


def _checked(schema: Schema, path: str) -> Iterator[str]:
    """Patterns of the paths of all fields that are checked in Python."""
    for check in schema.get(CHECKS, ()):
        yield from (rf"{path}\.{name}" for name in check.fields)
    for name, prop in schema.get("properties", {}).items():
        yield from _checked(prop, rf"{path}\.{name}" if path else name)
    if "items" in schema:
        yield from _checked(schema["items"], rf"{path}\[[0-9]+\]")


CHECKED = re.compile(
    "|".join(f"(?:{path}\\b)" for kind in KINDS.values() if kind.custom for path in _checked(object_schema(kind), ""))
)
TIME_FIELD = re.compile(r"(Time|since|arrival|expiresAt|boundTime|start|end|time|restartedAt\.[^.]*|nextRunTime)$")

KNOWN: dict[str, Callable[[Verdict, Verdict], bool]] = {
    "A list where a time is wanted": _list_for_a_time,
    "Owners of fields beside a malformed status": _no_owners,
    "The last instant of the year 9999": _last_instant,
    "Whole numbers with a fraction, read by a rule": _whole_fraction_in_a_rule,
    "A version that makes no sense": _version_that_makes_no_sense,
    "Another kind, sent to a status": _another_kind_in_a_status,
    "The generation of a core kind": _generation_of_a_core_kind,
    "Empty fields of Events": _empty_fields_of_events,
    "Bounds on the texts of Events and Leases": _bounds_on_core_kinds,
    "Bytes written as a list": _bytes_as_a_list,
    "More than a thousand causes": _more_causes,
    "Checks that CEL cannot express": _checks,
}
