"""A kind's form: everything derived from its type that admitting an object needs, made once."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from rota.api import validation
from rota.api.fitting import fitting
from rota.api.kind import Kind
from rota.api.problems import BLOCKING, NOT_CHECKED, Problem
from rota.api.rules import evaluate, rule_tree
from rota.api.schema import object_node, object_schema


class Form:
    """How objects of one kind are made to conform.

    Objects are JSON dicts that the caller owns: they are changed in place.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.schema = object_schema(kind)
        self.node = object_node(kind)
        self.rules = rule_tree(self.schema)
        self._fit = fitting(self.schema)
        self._status = self.schema["properties"].get("status")
        self._fit_status = fitting(self._status) if kind.has_status and self._status else None
        self._type = kind.type
        self._status_type = _status_type(kind)

    def conform(self, obj: dict[str, Any]) -> tuple[list[str], list[Problem]]:
        """Prune, fill in defaults, and check types and bounds.

        Returns the paths of unknown fields, and the problems.
        """
        if self._fit(obj):
            try:
                msgspec.convert(obj, self._type)
            except msgspec.ValidationError:
                pass
            else:
                return [], []
        return self._walk(self.schema, obj, "")

    def conform_status(self, obj: dict[str, Any]) -> tuple[list[str], list[Problem]]:
        """The same for the status alone: what a write through the status subresource can change."""
        assert self._status is not None and self._fit_status is not None, f"{self.kind} has no status"
        status = obj.get("status")
        if status is None:
            obj.pop("status", None)
            return [], []
        if self._fit_status(status):
            try:
                msgspec.convert(status, self._status_type)
            except msgspec.ValidationError:
                pass
            else:
                return [], []
        return self._walk(self._status, status, "status")

    def break_rules(self, obj: dict[str, Any], old: dict[str, Any] | None, found: list[Problem]) -> list[Problem]:
        """The problems found so far and those of the rules, which an object in no state for it is spared."""
        if any(problem.reason in BLOCKING for problem in found):
            return [*found, Problem("FieldValueInvalid", "<nil>", f"Invalid value: null: {NOT_CHECKED}")]
        if self.rules.empty:
            return found
        broken = list(found)
        evaluate(self.rules, obj, old, "", broken)
        return broken

    @staticmethod
    def _walk(schema: dict[str, Any], value: Any, path: str) -> tuple[list[str], list[Problem]]:
        unknown: list[str] = []
        found: list[Problem] = []
        validation.prune(schema, value, path, unknown)
        validation.fill(schema, value)
        validation.check(schema, value, path, found)
        return unknown, found


@cache
def form(kind: Kind) -> Form:
    """The form of a kind."""
    return Form(kind)


def _status_type(kind: Kind) -> Any:
    fields = {f.name: f.type for f in msgspec.structs.fields(kind.type)}
    return fields.get("status", Any)
