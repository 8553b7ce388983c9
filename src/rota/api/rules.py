"""Evaluates the cross-field rules of a kind on an object.

Only the parts of the schema that carry rules are walked. On updates a part that did not change is not looked at
again, as Kubernetes does (so that a rule added later does not lock old objects).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota.api import cel, problems
from rota.api.problems import Problem
from rota.api.schema import Schema
from rota.api.structure import Node


@dataclass(frozen=True, slots=True)
class RuleTree:
    """The rules on one value, and the parts of it that have rules of their own."""

    rules: tuple[tuple[cel.Program, str, str], ...]
    fields: tuple[tuple[str, RuleTree], ...]
    item: RuleTree | None
    keys: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not (self.rules or self.fields or self.item)


def rule_tree(schema: Schema, node: Node) -> RuleTree:
    """The rules of a schema, compiled. `node` is its structure: lists compare by it."""
    rules = tuple(
        (cel.compile(r["rule"], node), r["message"], r.get("fieldPath", ""))
        for r in schema.get("x-kubernetes-validations", ())
    )
    inner = ((name, rule_tree(prop, node.fields[name])) for name, prop in schema.get("properties", {}).items())
    item_schema = schema.get("items") or schema.get("additionalProperties")
    item = rule_tree(item_schema, node.item) if item_schema and node.item else None
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    fields = tuple((name, tree) for name, tree in inner if not tree.empty)
    return RuleTree(rules, fields, None if item is None or item.empty else item, keys)


def evaluate(tree: RuleTree, value: Any, old: Any, path: str, found: list[Problem]) -> None:
    """Report every rule that the value, or its change from `old` (None: it is new), breaks."""
    if old is not None and value == old:
        return
    for program, message, field in tree.rules:
        if program.uses_old and old is None:
            continue
        try:
            holds = program(value, old)
        except cel.CelEvalError as error:
            holds, message = False, f"rule evaluation error: {error}"
        if holds is not True:
            found.append(problems.rule_broken((path + field).lstrip("."), message))
    for name, inner in tree.fields:
        part = value.get(name)
        if part is not None:
            old_part = old.get(name) if old is not None else None
            evaluate(inner, part, old_part, f"{path}.{name}" if path else name, found)
    if tree.item is not None:
        if isinstance(value, dict):
            for name, part in value.items():
                evaluate(tree.item, part, old.get(name) if old else None, f"{path}.{name}", found)
        else:
            before = _by_key(old, tree.keys)
            for i, part in enumerate(value):
                evaluate(tree.item, part, before.get(_key(part, tree.keys)) if before else None, f"{path}[{i}]", found)


def _by_key(items: Any, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    """The old items by their keys; nothing for lists whose items cannot be told apart."""
    return {_key(item, keys): item for item in items} if items and keys else {}


def _key(item: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys)
