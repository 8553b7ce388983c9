"""What a request asks for beside its object: query parameters and DeleteOptions, as the registry's options.

Only their form is read here. What a choice may be is the registry's to say.
"""

from __future__ import annotations

import random
import re
from typing import Any

import msgspec

from rota.registry import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from rota.registry.errors import bad_request, unprocessable
from rota.registry.options import MANAGER_BYTES_MAX
from rota.server import media
from rota.server.http import Request

Query = dict[str, str]

WATCH_SECONDS_MIN = 1800
FLAGS = {"": True, "1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
INT64 = range(-(2**63), 2**63)


def number(query: Query, name: str) -> int:
    text = query.get(name, "0")
    if not NUMBER.fullmatch(text) or int(text) not in INT64:
        raise bad_request(f"{name} must be a number of 64 bits, not {text!r}")
    return int(text)


def flag(query: Query, name: str) -> bool:
    """A parameter that is set or not. As Kubernetes has it, one without a value is set; what is neither is refused."""
    text = query.get(name, "false")
    if text.lower() not in FLAGS:
        raise bad_request(f"{name} must be true or false, not {text!r}")
    return FLAGS[text.lower()]


def of_list(query: Query) -> ListOptions:
    for name in ("allowWatchBookmarks", "sendInitialEvents"):
        flag(query, name)
    number(query, "timeoutSeconds")
    match: Any = query.get("resourceVersionMatch", "")
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=number(query, "limit"),
        continue_=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=match,
    )


def of_watch(query: Query) -> WatchOptions:
    initial = query.get("sendInitialEvents")
    match = query.get("resourceVersionMatch", "")
    if initial is not None and match != "NotOlderThan":
        raise unprocessable("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if initial is None and match:
        raise unprocessable("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    return WatchOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        bookmarks=flag(query, "allowWatchBookmarks"),
        send_initial_events=None if initial is None else flag(query, "sendInitialEvents"),
    )


def watch_seconds(query: Query) -> float:
    """How long a watch may last; at random where nobody says, so that not all of them come again at once."""
    return number(query, "timeoutSeconds") or random.uniform(WATCH_SECONDS_MIN, 2 * WATCH_SECONDS_MIN)


def of_write(request: Request) -> WriteOptions:
    query = request.query
    validation: Any = query.get("fieldValidation") or "Warn"
    return WriteOptions(
        manager=query.get("fieldManager") or _manager(request.headers.get("user-agent", "")),
        dry_run=_dry_run([query["dryRun"]] if query.get("dryRun") else []),
        field_validation=validation,
        force=flag(query, "force"),
        restricted=request.user is not None and request.user.scope != "admin",
        user=request.user.name if request.user is not None else "",
    )


def _manager(user_agent: str) -> str:
    """The manager of a client that does not name one. Unlike a name that is given, it is made to fit."""
    name = "".join(c for c in user_agent.partition("/")[0] if c.isprintable())
    return name.encode()[:MANAGER_BYTES_MAX].decode(errors="ignore") or "unknown"


def _dry_run(values: list[str]) -> bool:
    if values and values != ["All"]:
        raise unprocessable(f'dryRun: Unsupported value: "{values[0]}": supported values: "All"')
    return bool(values)


class Preconditions(msgspec.Struct):
    """What must hold of an object for it to be deleted."""

    uid: str | None = None
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")


class SentDeleteOptions(msgspec.Struct, rename="camel"):
    """DeleteOptions as a client sends them."""

    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    preconditions: Preconditions | None = None
    dry_run: list[str] | None = None


def of_delete(request: Request) -> DeleteOptions:
    """From the body, and from the query where the body says nothing."""
    body = media.decoded(request.body, request.headers.get("content-type", "")) if request.body else {}
    try:
        sent = msgspec.convert(body, SentDeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions were expected: {error}") from None
    query = request.query
    number(query, "gracePeriodSeconds")  # there is nothing here that would need a while to end
    propagation: Any = sent.propagation_policy or query.get("propagationPolicy", "")
    orphan = flag(query, "orphanDependents") if "orphanDependents" in query else sent.orphan_dependents
    if orphan is not None and not propagation:
        propagation = "Orphan" if orphan else "Background"
    conditions = sent.preconditions or Preconditions()
    return DeleteOptions(
        propagation=propagation,
        uid=conditions.uid or "",
        resource_version=conditions.resource_version or "",
        dry_run=_dry_run(sent.dry_run or ([query["dryRun"]] if query.get("dryRun") else [])),
    )
