"""Read query parameters and DeleteOptions as options of the registry.

Only their form is checked here. The registry decides about values.
"""

from __future__ import annotations

import random
import re
from typing import Any, NamedTuple

import msgspec

from rota.api import problems as p
from rota.api.problems import Problem
from rota.registry import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from rota.registry.errors import bad_request, invalid_options
from rota.registry.options import MANAGER_BYTES_MAX
from rota.server import media
from rota.server.http import Request

Query = dict[str, str]

WATCH_SECONDS_MIN = 1800
FLAGS = {"": True, "1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
OPTIONS_OF = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
"""The name of the options of a write, by its method."""
VALIDATIONS = ["", "Ignore", "Strict", "Warn"]
DELETE_OPTIONS = "DeleteOptions"
POLICIES = ("Foreground", "Background", "Orphan")
INT64 = range(-(2**63), 2**63)


def number(query: Query, name: str) -> int:
    text = query.get(name, "0")
    if not NUMBER.fullmatch(text) or int(text) not in INT64:
        raise bad_request(f"{name} must be a number of 64 bits, not {text!r}")
    return int(text)


def flag(query: Query, name: str) -> bool:
    """Return a boolean parameter. As in Kubernetes, one without a value is true; other values are refused."""
    text = query.get(name, "false")
    if text.lower() not in FLAGS:
        raise bad_request(f"{name} must be true or false, not {text!r}")
    return FLAGS[text.lower()]


def of_list(query: Query) -> ListOptions:
    flag(query, "allowWatchBookmarks")
    number(query, "timeoutSeconds")
    match: Any = query.get("resourceVersionMatch", "")
    found = []
    if match and not query.get("resourceVersion"):
        found.append(_no_match("resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        found.append(_no_match("resourceVersionMatch is forbidden when continue is provided"))
    if match not in ("", "Exact", "NotOlderThan"):
        found.append(p.not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
    if match == "Exact" and query.get("resourceVersion") == "0":
        found.append(_no_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        flag(query, "sendInitialEvents")
        found.append(p.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if found:
        raise invalid_options("ListOptions", found)
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
    found = []
    if initial is not None and match != "NotOlderThan":
        found.append(_no_match("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if initial is None and match:
        found.append(_no_match("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if match not in ("", "NotOlderThan"):
        found.append(p.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    if match and query.get("continue"):
        found.append(_no_match("resourceVersionMatch is forbidden when continue is provided"))
    if found:
        raise invalid_options("ListOptions", found)
    return WatchOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        bookmarks=flag(query, "allowWatchBookmarks"),
        send_initial_events=None if initial is None else flag(query, "sendInitialEvents"),
    )


def _no_match(why: str) -> Problem:
    return p.forbidden("resourceVersionMatch", why)


def watch_seconds(query: Query) -> float:
    """Return the duration of a watch; by default a random one, so that not all clients reconnect at once."""
    return number(query, "timeoutSeconds") or random.uniform(WATCH_SECONDS_MIN, 2 * WATCH_SECONDS_MIN)


def of_write(request: Request, duplicates: tuple[str, ...] = (), *, is_apply: bool = False) -> WriteOptions:
    """Read the options of a write. `duplicates` are the fields that occur twice in its body."""
    query = request.query
    validation: Any = query.get("fieldValidation", "")
    dry_run = _dry_run(request)
    manager = query.get("fieldManager", "")
    found = []
    if is_apply and not manager:
        found.append(p.required("fieldManager", "is required for apply patch"))
    if "force" in query and request.method == "PATCH" and not is_apply:
        found.append(p.forbidden("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > MANAGER_BYTES_MAX:
        found.append(p.too_long("fieldManager", MANAGER_BYTES_MAX))
    if not manager.isprintable():
        at = next(i for i, char in enumerate(manager) if not char.isprintable())
        found.append(
            p.invalid("fieldManager", manager, f"invalid character U+{ord(manager[at]):04X} (at position {at})")
        )
    found += _wrong_with_dry_run(dry_run)
    if validation not in VALIDATIONS:
        found.append(p.not_supported("fieldValidation", validation, VALIDATIONS))
    if found:
        raise invalid_options(OPTIONS_OF[request.method], found)
    return WriteOptions(
        manager=manager or _manager(request.headers.get("user-agent", "")),
        dry_run=bool(dry_run),
        field_validation=validation or "Warn",
        force=flag(query, "force"),
        restricted=request.user is not None and request.user.scope != "admin",
        user=request.user.name if request.user is not None else "",
        held=request.user.rules if request.user is not None else (),
        duplicates=duplicates,
    )


def _dry_run(request: Request) -> list[str]:
    """Return the values of dryRun. A single empty value counts as absent; an empty one among several is invalid."""
    values = request.values("dryRun")
    return [] if values == [""] else values


def _wrong_with_dry_run(values: list[str]) -> list[Problem]:
    return [p.not_supported("dryRun", values, ["All"])] if any(value != "All" for value in values) else []


def _manager(user_agent: str) -> str:
    """Derive a field manager from the user agent. Unlike a given name, it is shortened to fit."""
    name = "".join(c for c in user_agent.partition("/")[0] if c.isprintable())
    return name.encode()[:MANAGER_BYTES_MAX].decode(errors="ignore") or "unknown"


class Preconditions(msgspec.Struct):
    """Conditions that an object must meet to be deleted."""

    uid: str | None = None
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")


class SentDeleteOptions(msgspec.Struct, rename="camel"):
    """DeleteOptions as a client sends them."""

    kind: str = ""
    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    preconditions: Preconditions | None = None
    dry_run: list[str] | None = None


class Deletion(NamedTuple):
    """The options of a deletion."""

    options: DeleteOptions
    code_if_held: int
    """The status code if finalizers keep the object, which is then only marked for deletion."""


def of_delete(request: Request) -> Deletion:
    """Read the options of a deletion from the body, and from the query where the body has none."""
    body = media.decoded(request.body, request.headers.get("content-type", "")) if request.body else {}
    try:
        sent = msgspec.convert(body, SentDeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions were expected: json: {error}") from None
    if sent.kind not in ("", DELETE_OPTIONS):
        raise bad_request(f"{DELETE_OPTIONS} were expected, not an object of kind {sent.kind!r}")
    query = request.query
    number(query, "gracePeriodSeconds")  # only checked: objects here have no grace period
    policy = query.get("propagationPolicy") if sent.propagation_policy is None else sent.propagation_policy
    orphan = flag(query, "orphanDependents") if "orphanDependents" in query else sent.orphan_dependents
    dry_run = [*(sent.dry_run or ()), *_dry_run(request)]
    found = []
    if orphan is not None and policy is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        found.append(p.invalid("propagationPolicy", policy, why))
    if policy is not None and policy not in POLICIES:
        found.append(p.not_supported("propagationPolicy", policy, [*POLICIES, "nil"]))
    found += _wrong_with_dry_run(dry_run)
    if found:
        raise invalid_options(DELETE_OPTIONS, found)
    propagation: Any = policy or ""
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    conditions = sent.preconditions or Preconditions()
    options = DeleteOptions(
        propagation=propagation,
        uid=conditions.uid,
        resource_version=conditions.resource_version,
        dry_run=bool(dry_run),
        restricted=request.user is not None and request.user.scope != "admin",
    )
    return Deletion(options, 202 if orphan is False else 200)
