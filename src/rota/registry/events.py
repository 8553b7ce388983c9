"""Kubernetes' checks of Events, by the API version that they are written through. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rota.api import Kind
from rota.api import problems as p
from rota.api.problems import Problem
from rota.registry import errors
from rota.registry.metadata import qualified_name_problems

Object = dict[str, Any]

DEFAULT_NAMESPACE = "default"
CLUSTER_NAMESPACES = (DEFAULT_NAMESPACE, "kube-system")
"""Namespaces of Events about cluster-scoped objects."""
WORD_LENGTH_MAX = 128
NOTE_LENGTH_MAX = 1024
TYPES = ("Normal", "Warning")
UNSET_WHEN_NEW = ("firstTimestamp", "lastTimestamp", "count", "source")
"""Fields of the core version for old recorders."""
RESERVED = re.compile(r"\s*rota(\W|_|$)", re.IGNORECASE)
"""Names of reporters that only the server may use."""
FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
"""Immutable fields of an Event that is written through `events.k8s.io`: all but its series."""


def check_reporter(kind: Kind, new: Object, old: Object | None) -> None:
    """Raise Forbidden for an Event that names the server as its reporter, before or after the change."""
    for event in (new, old):
        source = event.get("source") if event is not None else None
        said = (event or {}).get("reportingComponent"), source.get("component") if isinstance(source, dict) else None
        for reporter in said:
            if isinstance(reporter, str) and RESERVED.match(reporter):
                message = f'reportingComponent: "{reporter}" is the server; name a reporter of your own'
                raise errors.forbidden(kind, new["metadata"].get("name", ""), message)


def check(event: Object, old: Object | None, found: list[Problem], version: Kind | None) -> None:
    """Append the problems of an Event in its core form. `version`: the one it was sent through, if not core."""
    is_newer = version is not None and version.stored is not None
    found.extend(_for_every_version(event, "reportingController" if is_newer else "reportingComponent"))
    if is_newer:
        found.extend(_new(event) if old is None else _changed(event, old))


def _for_every_version(event: Object, controller_field: str) -> Iterator[Problem]:
    about = event.get("involvedObject")
    about_namespace = about.get("namespace") or "" if isinstance(about, dict) else ""
    namespace = event["metadata"].get("namespace")
    elsewhere = p.invalid("involvedObject.namespace", about_namespace, "does not match event.namespace")
    if not event.get("eventTime"):
        if namespace != (about_namespace or DEFAULT_NAMESPACE):
            yield elsewhere
        return
    if not about_namespace and namespace not in CLUSTER_NAMESPACES:
        yield elsewhere
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield p.required(controller_field)
    if isinstance(controller, str):
        yield from (p.invalid(controller_field, controller, why) for why in qualified_name_problems(controller))
    for name in ("reportingInstance", "action", "reason"):
        if not event.get(name):
            yield p.required(name)
        yield from _too_long(event, name, WORD_LENGTH_MAX)
    yield from _too_long(event, "message", NOTE_LENGTH_MAX)


def _too_long(event: Object, name: str, most: int) -> Iterator[Problem]:
    value = event.get(name)
    if isinstance(value, str) and len(value.encode()) > most:
        yield p.invalid(name, "", f"can have at most {most} characters")


def _new(event: Object) -> Iterator[Problem]:
    yield from _series(event)
    if not event.get("eventTime"):
        yield p.required("eventTime")
    if event.get("type") not in TYPES:
        yield p.invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    yield from (p.invalid(name, "", "needs to be unset") for name in UNSET_WHEN_NEW if _is_set(event.get(name)))


def _is_set(value: Any) -> bool:
    return any(value.values()) if isinstance(value, dict) else bool(value)


def _series(event: Object) -> Iterator[Problem]:
    series = event.get("series")
    if not isinstance(series, dict):
        return
    count = series.get("count") or 0
    if isinstance(count, int) and count < 2:
        yield p.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield p.required("series.lastObservedTime")


def _changed(event: Object, old: Object) -> Iterator[Problem]:
    if event.get("series") != old.get("series"):
        yield from _series(event)
    for name in FIXED:
        if (event.get(name) or None) != (old.get(name) or None):
            shown = "reportingController" if name == "reportingComponent" else name
            yield p.invalid(shown, event.get(name), "field is immutable")
