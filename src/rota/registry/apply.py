"""Server-side apply: a manager declares the fields that it wants an object to have.

The manager owns the fields of its configuration. Fields that its previous configuration had and this one has not
are removed, unless another manager owns them. A field that another manager owns with a different value is a conflict,
unless forced; with the same value both own it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rota.api.structure import Structure
from rota.registry import fieldset, last_applied
from rota.registry.apply_checks import problems
from rota.registry.fieldset import FieldSet
from rota.registry.managed import BEFORE_FIRST_APPLY, Entry, after_update, entry, identifier, identity, order, without
from rota.registry.merging import merged, with_named_fields, without_items


class InvalidApply(ValueError):  # noqa: N818 - what is invalid is the apply
    """The configuration cannot be applied."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A field that the configuration sets and another manager owns with a different value."""

    owner: Entry
    steps: tuple[str, ...]

    @property
    def manager(self) -> str:
        """Return the owner as messages name it: `"kubectl" with subresource "scale" using apps/v1`."""
        out = json.dumps(self.owner.get("manager", ""), ensure_ascii=False)
        if subresource := self.owner.get("subresource"):
            out += f" with subresource {json.dumps(subresource)}"
        if self.owner["operation"] == "Update":
            out += f" using {self.owner['apiVersion']}"
        return out

    @property
    def message(self) -> str:
        return f"conflict with {self.manager}"

    @property
    def path(self) -> str:
        return fieldset.human(self.steps)


class ApplyConflict(Exception):  # noqa: N818 - the name of the thing in the API
    """Other managers own fields that the configuration would change. The text is for users."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts
        super().__init__(_text(conflicts))


def _text(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: {conflicts[0].message}: {conflicts[0].path}"
    lines = []
    previous = None
    for conflict in conflicts:
        if conflict.owner is not previous:
            lines.append(f"conflicts with {conflict.manager}:")
            previous = conflict.owner
        lines.append(f"- {conflict.path}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def apply(
    live: dict[str, Any] | None,
    config: dict[str, Any],
    managed: list[Entry],
    node: Structure,
    *,
    manager: str,
    api_version: str,
    subresource: str,
    force: bool,
    now: str,
) -> tuple[dict[str, Any], list[Entry]]:
    """Return the object and its managedFields after an apply of `config` to `live`, which is None for a new object.

    Returns `live` itself if the object does not change; the entry's time moves only if it does. The object shares
    sub-values with `live` and `config`; `metadata.managedFields` in it is what `live` had, for the caller to replace.

    Fields that this request must ignore (status on the main resource, say) are absent from `config` already. A null in
    `config` sets null, which the caller's defaulting and pruning handle.

    Raises InvalidApply and ApplyConflict.
    """
    _check(config, node)
    base = {} if live is None else live
    if not managed:
        managed = after_update(
            [], None, base, node, manager=BEFORE_FIRST_APPLY, api_version=api_version, subresource=subresource, now=now
        )
    mine = entry(manager, "Apply", api_version, subresource, None, fieldset.of(config, node))
    try:
        new, after = _applied(base, config, managed, mine, node, force=force, now=now)
    except ApplyConflict as conflict:
        if manager != last_applied.MANAGER:
            raise
        allowed = last_applied.unchanged_since(base, node, api_version)
        left = [each for each in conflict.conflicts if not fieldset.contains(allowed, each.steps)]
        if left:
            raise ApplyConflict(left) from None
        new, after = _applied(base, config, managed, mine, node, force=True, now=now)
    if manager == last_applied.MANAGER:
        new = last_applied.synced(new, config)
    return new, after


def _check(config: dict[str, Any], node: Structure) -> None:
    meta = config.get("metadata")
    if isinstance(meta, dict) and meta.get("managedFields") is not None:
        raise InvalidApply("metadata.managedFields must be nil")
    found = list(problems(config, node))
    if found:
        text = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
        raise InvalidApply(f"failed to create typed patch object ({_described(config)}): {text}")


def _described(config: dict[str, Any]) -> str:
    """`NAMESPACE/NAME; GROUP/VERSION, Kind=KIND`."""
    meta = config.get("metadata")
    if not isinstance(meta, dict):
        meta = {}
    group_version = str(config.get("apiVersion", ""))
    if "/" not in group_version:
        group_version = "/" + group_version
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {group_version}, Kind={config.get('kind', '')}"


def _applied(
    live: dict[str, Any],
    config: dict[str, Any],
    managed: list[Entry],
    mine: Entry,
    node: Structure,
    *,
    force: bool,
    now: str,
) -> tuple[dict[str, Any], list[Entry]]:
    me = identity(mine)
    previous = next((each for each in managed if identity(each) == me), None)
    others = [each for each in managed if each is not previous]
    new = merged(live, config, node)
    if previous is not None and fieldset.difference(previous["fieldsV1"], mine["fieldsV1"]):
        new = _pruned(new, previous["fieldsV1"], [*others, mine], node)
    changed, removed = fieldset.compare(live, new, node)
    if not force and changed:
        conflicts = _conflicts(others, changed)
        if conflicts:
            raise ApplyConflict(conflicts)
    after = [kept for each in others if (kept := without(each, changed, removed)) is not None]
    time = previous.get("time") if previous is not None else None
    if live == new:
        new = live
    else:
        time = now
    owned = fieldset.strip(mine["fieldsV1"])
    if owned:
        after.append(entry(mine["manager"], "Apply", mine["apiVersion"], mine.get("subresource", ""), time, owned))
    return new, order(after)


def _conflicts(others: list[Entry], changed: FieldSet) -> list[Conflict]:
    out: list[Conflict] = []
    for owner in sorted(others, key=identifier):
        contested = fieldset.intersection(owner["fieldsV1"], changed)
        out.extend(Conflict(owner, steps) for steps in fieldset.members(contested))
    return out


def _pruned(new: dict[str, Any], last: FieldSet, entries: list[Entry], node: Structure) -> dict[str, Any]:
    """Return `new` without the fields of this manager's previous configuration that no entry owns any more.

    A container is removed with its last part, but only if the previous configuration owned everything in it.
    """
    last = with_named_fields(last, node)
    owned: FieldSet = {}
    for each in entries:
        owned = fieldset.union(owned, each["fieldsV1"])
    owned = with_named_fields(owned, node)
    there = with_named_fields(fieldset.of(new, node), node)

    def kept(value: dict[str, Any]) -> FieldSet:
        return with_named_fields(fieldset.of(value, node), node)

    bare = without_items(new, last, node)
    bare = without_items(new, fieldset.difference(there, fieldset.union(kept(bare), owned)), node)
    gone = fieldset.intersection(fieldset.difference(there, kept(bare)), last)
    result: dict[str, Any] = without_items(new, gone, node)
    return result
