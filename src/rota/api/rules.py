"""Evaluates the cross-field rules of a kind, and its checks in Python, on an object.

Only the parts of the schema that carry some are walked. On updates a part that did not change is not looked at
again, as Kubernetes does (so that a rule added later does not lock old objects).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rota.api import cel, problems
from rota.api.model import Check
from rota.api.problems import Problem
from rota.api.schema import CHECKS, Schema
from rota.api.structure import Structure

FOUND_MAX = 100
"""Bound on the problems that one check reports: a text can have thousands."""


@dataclass(frozen=True, slots=True)
class RuleTree:
    """The rules and checks on one value, and those on its parts."""

    rules: tuple[tuple[cel.Program, str, str], ...]
    checks: tuple[Check, ...]
    fields: tuple[tuple[str, RuleTree], ...]
    item: RuleTree | None
    keys: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not (self.rules or self.checks or self.fields or self.item)


def rule_tree(schema: Schema, node: Structure) -> RuleTree:
    """Compile the rules of a schema. `node` is its structure, by which lists compare."""
    checks: tuple[Check, ...] = schema.get(CHECKS, ())
    stood_for = {rule.cel for check in checks for rule in check.rules}
    rules = tuple(
        (cel.compile(r["rule"], node), r["message"], r.get("fieldPath", ""))
        for r in schema.get("x-kubernetes-validations", ())
        if r["rule"] not in stood_for
    )
    inner = ((name, rule_tree(prop, node.fields[name])) for name, prop in schema.get("properties", {}).items())
    item_schema = schema.get("items") or schema.get("additionalProperties")
    item = rule_tree(item_schema, node.item) if item_schema and node.item else None
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    fields = tuple((name, tree) for name, tree in inner if not tree.empty)
    return RuleTree(rules, checks, fields, None if item is None or item.empty else item, keys)


def evaluate(
    tree: RuleTree, value: Any, old: Any, path: str, found: list[Problem], malformed: Collection[str] = ()
) -> None:
    """Append every rule and check that a value, or its change from `old`, breaks. `old` is None for a new value.

    `malformed`: paths of fields that do not conform to the schema. If there are any, no rule runs, as in Kubernetes;
    a check runs if the fields that it reads conform.
    """
    if old is not None and value == old:
        return
    for program, message, field in tree.rules:
        if malformed or (program.uses_old and old is None):
            continue
        try:
            holds = program(value, old)
        except cel.CelEvalError as error:
            holds, message = False, f"rule evaluation error: {error}"
        if holds is not True:
            found.append(problems.rule_broken((path + field).lstrip("."), message))
    for check in tree.checks:
        if old is None or any(value.get(name) != old.get(name) for name in check.fields):
            _check(check, value, path, found, malformed)
    for name, inner in tree.fields:
        part = value.get(name)
        if part is not None:
            below = f"{path}.{name}" if path else name
            if below not in malformed:
                old_part = old.get(name) if old is not None else None
                evaluate(inner, part, old_part, below, found, malformed)
    if tree.item is not None:
        if isinstance(value, dict):
            for name, part in value.items():
                if f"{path}.{name}" not in malformed:
                    evaluate(tree.item, part, old.get(name) if old else None, f"{path}.{name}", found, malformed)
        else:
            before = _by_key(old, tree.keys)
            for i, part in enumerate(value):
                if f"{path}[{i}]" not in malformed:
                    old_part = before.get(_key(part, tree.keys)) if before else None
                    evaluate(tree.item, part, old_part, f"{path}[{i}]", found, malformed)


def _check(check: Check, value: dict[str, Any], path: str, found: list[Problem], malformed: Collection[str]) -> None:
    looked_at = tuple(f"{path}.{name}" for name in check.fields)
    if any(one == path or one.startswith(looked_at) for one in malformed):
        return
    wrong = [
        problems.invalid(f"{path}.{field}".lstrip("."), given, why)
        for field, given, why in islice(check.find(value), FOUND_MAX)
    ]
    if wrong:
        # If such a field also breaks a pattern, that problem says less than the one of the check.
        fields = {problem.field for problem in wrong}
        found[:] = [one for one in found if one.field not in fields or problems.NO_MATCH not in one.message]
        found += wrong


def _by_key(items: Any, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    """Return the old items by their keys; nothing for lists without keys."""
    return {_key(item, keys): item for item in items} if items and keys else {}


def _key(item: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys)
