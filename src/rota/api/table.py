"""Objects as a table, the way an API server answers `as=Table`: pure, so that servers and clients show the same.

Cells follow the columns that a kind declares. Times are shown as ages, as kubectl prints them. A time that is still to
come (a schedule's next run, a claim's end) is shown as `in 5m`, where Kubernetes would say `<invalid>`.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from rota.api.jsonpath import Path, shown
from rota.api.kind import Column, Kind

Object = dict[str, Any]
Table = dict[str, Any]
"""A `meta.k8s.io/v1` Table."""

UNKNOWN = "<unknown>"
INVALID = "<invalid>"
NAME = {"name": "Name", "type": "string", "format": "name", "description": "The name of the object.", "priority": 0}
CLOCK_SKEW_SECONDS_MAX = 1
"""Seconds that a time may be ahead, by clock skew, and still be shown as now."""

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


def rows(kind: Kind, objects: list[Object], now: float) -> Table:
    """Return the table of objects at a time in seconds since 1970. Each row has the metadata of its object."""
    cells = _event_cells if kind.name == "Event" else _declared_cells
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [dict(definition) for definition in _definitions(kind)],
        "rows": [{"cells": cells(kind, obj, now), "object": _partial(obj)} for obj in objects],
    }


def _partial(obj: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj.get("metadata", {}),
    }


@cache
def _definitions(kind: Kind) -> tuple[Object, ...]:
    columns = EVENT_COLUMNS if kind.name == "Event" else kind.columns
    declared = tuple(_definition(column) for column in columns)
    return declared if kind.name == "Event" else (NAME, *declared)


def _definition(column: Column) -> Object:
    # Tables have no type `count`: such a column is declared as a string.
    return {
        "name": column.name,
        "type": "string" if column.type == "count" else column.type,
        "format": "name" if column.name == "Name" and column.path == ".metadata.name" else "",
        "description": f"The value at {column.path}.",
        "priority": 1 if column.wide else 0,
    }


def _declared_cells(kind: Kind, obj: Object, now: float) -> list[Any]:
    name = obj.get("metadata", {}).get("name", "")
    return [name, *(_cell(column, obj, now) for column in kind.columns)]


@cache
def _path(text: str) -> Path:
    return Path(text)


def _cell(column: Column, obj: Object, now: float) -> Any:
    value = next(iter(_path(column.path).find(obj)), None)
    if column.type == "count":
        return len(value) if isinstance(value, dict | list) else 0
    if value is None:
        return UNKNOWN if column.path == ".metadata.creationTimestamp" else None
    match column.type:
        case "date":
            return age(value, now)
        case "integer":
            return int(value) if type(value) in (int, float) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "number":
            return value if type(value) in (int, float) else None
    return shown(value)


def age(time: Any, now: float) -> str:
    """Return the age of a time, or `in …` for a time to come."""
    try:
        then = datetime.fromisoformat(time)
    except (TypeError, ValueError):
        return INVALID
    if then.tzinfo is None:
        return INVALID
    seconds = now - then.timestamp()
    if seconds < -CLOCK_SKEW_SECONDS_MAX:
        return f"in {duration(-seconds)}"
    return duration(max(seconds, 0))


def duration(exact_seconds: float) -> str:
    """Return a duration as kubectl prints it: two units where the second one matters, else one."""
    seconds = int(exact_seconds)
    if seconds < 2 * MINUTE:
        return f"{seconds}s"
    if seconds < 10 * MINUTE:
        return _two(seconds, MINUTE, "m", 1, "s")
    if seconds < 3 * HOUR:
        return f"{seconds // MINUTE}m"
    if seconds < 8 * HOUR:
        return _two(seconds, HOUR, "h", MINUTE, "m")
    if seconds < 2 * DAY:
        return f"{seconds // HOUR}h"
    if seconds < 8 * DAY:
        return _two(seconds, DAY, "d", HOUR, "h")
    if seconds < 2 * YEAR:
        return f"{seconds // DAY}d"
    if seconds < 8 * YEAR:
        return _two(seconds, YEAR, "y", DAY, "d")
    return f"{seconds // YEAR}y"


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_name}" + (f"{rest}{small_name}" if rest else "")


# Events are shown as in Kubernetes: the last occurrence first, and without their names.

EVENT_COLUMNS = (
    Column("Last Seen", ".lastTimestamp"),
    Column("Type", ".type"),
    Column("Reason", ".reason"),
    Column("Object", ".involvedObject"),
    Column("Subobject", ".involvedObject.fieldPath", wide=True),
    Column("Source", ".source", wide=True),
    Column("Message", ".message"),
    Column("First Seen", ".firstTimestamp", wide=True),
    Column("Count", ".count", "integer", wide=True),
    Column("Name", ".metadata.name", wide=True),
)


def _event_cells(_: Kind, event: Object, now: float) -> list[Any]:
    about, series, source = (event.get(name) or {} for name in ("involvedObject", "series", "source"))
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = last_occurrence(event)
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host")
    kind, name = about.get("kind", ""), about.get("name", "")
    return [
        age(last, now) if last else UNKNOWN,
        event.get("type") or "",
        event.get("reason") or "",
        f"{kind.lower()}/{name}" if name else kind.lower(),
        about.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        (event.get("message") or "").strip(),
        age(first, now) if first else UNKNOWN,
        series.get("count") or event.get("count") or 1,
        event.get("metadata", {}).get("name", ""),
    ]


def last_occurrence(event: Object) -> str:
    """Return the time of an event's last occurrence; empty if it has none."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")
