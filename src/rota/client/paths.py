"""The URLs of objects in Kubernetes' API."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

from rota.api import Kind
from rota.registry import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from rota.registry.errors import bad_request

Query = Iterator[tuple[str, str]]


def collection(kind: Kind, namespace: str) -> str:
    """Return the path of all objects of a kind, in a namespace, or in all if it is empty."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if not kind.namespaced or not namespace:
        return f"{root}/{kind.plural}"
    return f"{root}/namespaces/{_segment(namespace)}/{kind.plural}"


def creation(kind: Kind, namespace: str) -> str:
    """Return the path at which objects of a kind are created."""
    if kind.namespaced and not namespace:
        raise bad_request("an empty namespace may not be set during creation")
    return collection(kind, namespace)


def item(kind: Kind, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object, or of a subresource."""
    if kind.namespaced and not namespace:
        raise bad_request("an empty namespace may not be set when a resource name is provided")
    path = f"{collection(kind, namespace)}/{_segment(name)}"
    return f"{path}/{_segment(subresource)}" if subresource else path


def _segment(name: str) -> str:
    # The server decodes the path before it splits it, so an encoded slash would name something else.
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise bad_request(f'invalid resource name "{name}": it is no part of a path')
    return quote(name, safe="")


def with_query(path: str, pairs: Query) -> str:
    query = urlencode([pair for pair in pairs if pair[1]], quote_via=quote)
    return f"{path}?{query}" if query else path


def write_query(options: WriteOptions, *, applies: bool = False) -> Query:
    yield "fieldManager", options.manager
    yield "fieldValidation", options.field_validation
    yield "dryRun", "All" if options.dry_run else ""
    yield "force", "true" if applies and options.force else ""


def list_query(options: ListOptions) -> Query:
    yield "labelSelector", options.label_selector
    yield "fieldSelector", options.field_selector
    yield "limit", str(options.limit) if options.limit else ""
    yield "continue", options.continue_
    yield "resourceVersion", options.resource_version
    yield "resourceVersionMatch", options.resource_version_match


def watch_query(options: WatchOptions, seconds: int) -> Query:
    yield "watch", "true"
    yield "labelSelector", options.label_selector
    yield "fieldSelector", options.field_selector
    yield "resourceVersion", options.resource_version
    yield "allowWatchBookmarks", "true" if options.bookmarks else ""
    yield "timeoutSeconds", str(seconds)
    if options.send_initial_events is not None:
        yield "sendInitialEvents", "true" if options.send_initial_events else "false"
        yield "resourceVersionMatch", "NotOlderThan"


def delete_body(options: DeleteOptions) -> dict[str, object]:
    """Return DeleteOptions; empty if they have no effect."""
    body: dict[str, object] = {}
    if options.propagation:
        body["propagationPolicy"] = options.propagation
    conditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    if given := {name: value for name, value in conditions.items() if value is not None}:
        body["preconditions"] = given
    if options.grace_seconds is not None:
        body["gracePeriodSeconds"] = options.grace_seconds
    if options.dry_run:
        body["dryRun"] = ["All"]
    return {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", **body} if body else {}
