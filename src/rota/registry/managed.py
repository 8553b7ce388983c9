"""Owners of fields: the list `metadata.managedFields`, and its change by a write that is not an apply.

An entry names a manager, how it wrote (Apply or Update), with which apiVersion and through which subresource, and holds
the set of field paths that it owns. Lists and entries are never changed in place; new lists share the entries (and
their sets) that stay as they were.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rota.api.structure import Structure
from rota.registry import fieldset
from rota.registry.fieldset import FieldSet

Entry = dict[str, Any]

UPDATE_MANAGERS_MAX = 10
"""Bound on the separate Update entries. Older ones are merged, so that an object has few entries."""
ANCIENT = "ancient-changes"
"""The manager of merged entries."""
BEFORE_FIRST_APPLY = "before-first-apply"
"""The manager that owns the fields of an untracked object when its first apply begins the tracking."""

_TEXTS = ("manager", "apiVersion", "subresource", "time")


def entry(manager: str, operation: str, api_version: str, subresource: str, now: str | None, fields: FieldSet) -> Entry:
    """Return an entry of managedFields. `now` is None if the write did not change the object."""
    out: Entry = {"manager": manager or "unknown", "operation": operation, "apiVersion": api_version}
    if now is not None:
        out["time"] = now
    out["fieldsType"] = "FieldsV1"
    out["fieldsV1"] = fields
    if subresource:
        out["subresource"] = subresource
    return out


def identity(of: Entry) -> tuple[str, str, str, str]:
    """Return the identity of an entry.

    For an Apply it has no apiVersion, so that the manager can move to a newer one.
    """
    operation: str = of["operation"]
    version: str = of["apiVersion"] if operation == "Update" else ""
    return (of["manager"], operation, version, of.get("subresource", ""))


def order(managed: list[Entry]) -> list[Entry]:
    """Sort entries: Apply before Update, each from the oldest to the newest."""
    if len(managed) < 2:
        return managed
    return sorted(managed, key=_order)


def _order(of: Entry) -> tuple[str, str, str, str, str]:
    return (of["operation"], of.get("time", ""), of["manager"], of["apiVersion"], of.get("subresource", ""))


def without(of: Entry, changed: FieldSet, removed: FieldSet) -> Entry | None:
    """Return an entry without fields that another manager changed or removed; None if it owns nothing any more."""
    owned = of["fieldsV1"]
    left = fieldset.difference(fieldset.difference(owned, changed), removed)
    if left is owned:
        return of
    return {**of, "fieldsV1": left} if left else None


def after_update(
    managed: list[Entry],
    old: dict[str, Any] | None,
    new: dict[str, Any],
    node: Structure,
    *,
    manager: str,
    api_version: str,
    subresource: str,
    now: str,
    is_tracked: bool = False,
) -> list[Entry]:
    """Return managedFields after a create (`old` is None), an update or a patch that is not an apply.

    The writer gains the fields that it added or changed. Other managers lose the fields that it changed, and all
    managers those that it removed. The time of the writer's entry moves whenever it added or changed something; a write
    that only removes moves no time.

    An existing object (it has a uid) without managedFields is not tracked, and an update does not begin to track it,
    unless `is_tracked` says that it was tracked before.

    `old` and `new` are whole objects in which the fields that this write must ignore are equal already. For a kind
    whose objects always have certain empty structs, pass an object of only those as `old` of a create, so that nobody
    owns them.
    """
    if old is None:
        changed: FieldSet = fieldset.claims(new, node)
        removed: FieldSet = {}
    elif not managed and not is_tracked and "uid" in old["metadata"]:
        return managed
    else:
        changed, removed = fieldset.compare(old, new, node)
        if not changed and not removed:
            return managed
        changed = fieldset.strip(changed)
    return after_difference(managed, changed, removed, entry(manager, "Update", api_version, subresource, now, changed))


def after_difference(managed: list[Entry], changed: FieldSet, removed: FieldSet, mine: Entry) -> list[Entry]:
    """Return managedFields after an update that changed and removed fields. `mine` is the writer's entry with them."""
    me = identity(mine)
    out = []
    for each in managed:
        if changed and each["manager"] == me[0] and identity(each) == me:
            mine["fieldsV1"] = fieldset.union(fieldset.difference(each["fieldsV1"], removed), changed)
        elif (kept := without(each, changed, removed)) is not None:
            out.append(kept)
    if changed:
        out.append(mine)
    if len(out) > UPDATE_MANAGERS_MAX:
        out = _capped(out)
    return order(out)


def _capped(managed: list[Entry]) -> list[Entry]:
    """Merge the oldest Update entries of one apiVersion into one, until at most UPDATE_MANAGERS_MAX are left."""
    updaters = [each for each in managed if each["operation"] == "Update"]
    excess = len(updaters) - UPDATE_MANAGERS_MAX
    if excess <= 0:
        return managed
    updaters.sort(key=lambda each: (each.get("time", ""), each["manager"] != ANCIENT, identifier(each)))
    kept = {identity(each): each for each in managed}
    first_of: dict[str, Entry] = {}
    for each in updaters:
        if excess <= 0:
            break
        version = each["apiVersion"]
        bucket = (ANCIENT, "Update", version, "")
        if version not in first_of:
            first_of[version] = each
        elif identity(each) != bucket:
            into = kept.get(bucket) or kept.pop(identity(first_of[version]))
            fields = fieldset.union(each["fieldsV1"], into["fieldsV1"])
            # The later of the two times, so that the folded entry does not look older than what it holds.
            kept[bucket] = entry(ANCIENT, "Update", version, "", each.get("time"), fields)
            del kept[identity(each)]
            excess -= 1
    return list(kept.values())


def identifier(of: Entry) -> str:
    """Return a text by which managers sort as in Kubernetes."""
    parts = {key: of[key] for key in ("manager", "operation", "apiVersion") if of.get(key)}
    if of.get("subresource"):
        parts["subresource"] = of["subresource"]
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False)


def requested(sent: Any, live: list[Entry], *, subresource: str) -> list[Entry]:
    """Return the managedFields that a write starts from: those that the client sent, or the live ones.

    An empty list, or a list of one empty entry, resets tracking. Valid entries replace the live ones. No list, or one
    that is not valid, leaves the live ones, so that clients which know nothing of managedFields keep them. A
    subresource never takes what was sent.
    """
    # Most clients send the live ones, which are in normal form already.
    if subresource or sent is None or (live and sent == live):
        return live
    if sent == [] or (isinstance(sent, list) and len(sent) == 1 and _is_blank(sent[0])):
        return []
    try:
        return decoded(sent)
    except (ValueError, RecursionError):
        return live


def _is_blank(sent: Any) -> bool:
    return isinstance(sent, dict) and not any(sent.values())


def decoded(sent: Any) -> list[Entry]:
    """Return the entries from a client in normal form. Raises ValueError if one is invalid."""
    if not isinstance(sent, list):
        raise ValueError("managedFields must be a list")
    entries: dict[tuple[str, str, str, str], Entry] = {}
    for index, each in enumerate(sent):
        if not isinstance(each, dict) or any(not isinstance(each.get(key) or "", str) for key in _TEXTS):
            raise ValueError(f"malformed managed fields entry {index}")
        if each.get("operation") not in ("Apply", "Update"):
            raise ValueError("operation must be `Apply` or `Update`")
        if not each.get("apiVersion"):
            raise ValueError("apiVersion must not be empty")
        if each.get("fieldsType") != "FieldsV1":
            problem = "invalid" if each.get("fieldsType") else "missing"
            raise ValueError(f"{problem} fieldsType in managed fields entry {index}")
        kept = entry(
            each.get("manager") or "",
            each["operation"],
            each["apiVersion"],
            each.get("subresource") or "",
            _seconds(each["time"]) if each.get("time") else None,
            fieldset.canonical(each.get("fieldsV1") or {}),
        )
        entries[identity(kept)] = kept
    return order(list(entries.values()))


def _seconds(time: str) -> str:
    """Return a time in UTC and whole seconds: in that form texts sort as times."""
    parsed = datetime.fromisoformat(time)
    if parsed.tzinfo is None:
        raise ValueError(f"time without offset: {time}")
    return parsed.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
