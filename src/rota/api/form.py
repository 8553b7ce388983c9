"""The form of a kind: schema, structure, rules and checks, derived from its type once."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from rota.api import validation
from rota.api.kind import Kind
from rota.api.meta import status_type
from rota.api.problems import BLOCKING, NO_FIELD, NOT_CHECKED, Problem, invalid, within
from rota.api.quick_check import quick_check
from rota.api.rules import evaluate, rule_tree
from rota.api.schema import object_node, object_schema


class Form:
    """Validation and defaulting of the objects of one kind.

    Objects are JSON dicts that the caller owns: they are changed in place.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.schema = object_schema(kind)
        self.node = object_node(kind)
        self.rules = rule_tree(self.schema, self.node)
        self._check = quick_check(self.schema)
        self._status = self.schema["properties"].get("status")
        self._check_status = quick_check(self._status) if kind.has_status and self._status else None
        self._type = kind.type
        # The class itself: msgspec analyses anything else anew at each conversion.
        self._status_type = status_type(kind.type) if kind.has_status else Any

    def conform(self, obj: dict[str, Any]) -> tuple[list[str], list[Problem]]:
        """Prune, fill in defaults, and check types and bounds.

        Returns the paths of unknown fields, and the problems.
        """
        if self._check(obj) and _typed(obj, self._type) is not None:
            return [], []
        return self.walk(obj)

    def walk(self, obj: dict[str, Any]) -> tuple[list[str], list[Problem]]:
        """Do what `conform` does, by the thorough walk alone. The verdict is the same."""
        unknown: list[str] = []
        found: list[Problem] = []
        validation.prune(self.schema, obj, "", unknown)
        validation.fill(self.schema, obj)
        self._check_scale(obj, "spec", found)
        self._check_scale(obj, "status", found)
        validation.check(self.schema, obj, "", found)
        validation.check_lists(self.schema, obj, "", found)
        return unknown, found

    def conform_status(self, obj: dict[str, Any]) -> tuple[list[str], list[Problem]]:
        """Prune the status, fill in its defaults, and check its types and bounds. Returns the same as `conform`.

        A write through the status subresource changes nothing but the status.
        """
        assert self._status is not None, f"{self.kind} has no status"
        status = obj.get("status")
        if status is None:
            obj.pop("status", None)
            return [], []
        if self.typed_status(status) is not None:
            return [], []
        return self.walk_status(obj)

    def typed_status(self, status: Any) -> Any:
        """Return a status as its type, with defaults filled in place; None if the thorough walk must look at it."""
        assert self._check_status is not None, f"{self.kind} has no status"
        return _typed(status, self._status_type) if self._check_status(status) else None

    def walk_status(self, obj: dict[str, Any]) -> tuple[list[str], list[Problem]]:
        """Do what `conform_status` does, by the thorough walk alone."""
        assert self._status is not None, f"{self.kind} has no status"
        status = obj["status"]
        unknown: list[str] = []
        found: list[Problem] = []
        validation.prune(self._status, status, "status", unknown)
        validation.fill(self._status, status)
        scale: list[Problem] = []
        self._check_scale(obj, "status", scale)
        obj["status"] = validation.check(self._status, status, "", found)
        found = scale + [within("status", problem) for problem in found]
        validation.check_lists(self._status, status, "status", found)
        return unknown, found

    def prune(self, part: dict[str, Any]) -> list[str]:
        """Remove unknown fields from a part of an object. Return their paths."""
        unknown: list[str] = []
        validation.prune(self.schema, part, "", unknown)
        return unknown

    def break_rules(self, obj: dict[str, Any], old: dict[str, Any] | None, found: list[Problem]) -> list[Problem]:
        """Evaluate the rules unless the object is malformed. Return the problems found so far and the new ones."""
        if self.rules.empty:
            return found
        broken = list(found)
        malformed = {problem.field.removeprefix(".") for problem in found if problem.reason in BLOCKING}
        evaluate(self.rules, obj, old, "", broken, malformed)
        return [*broken, invalid(NO_FIELD, None, NOT_CHECKED)] if malformed else broken

    def _check_scale(self, obj: dict[str, Any], part: str, found: list[Problem]) -> None:
        if self.kind.scale is None:
            return
        for path, want in self.kind.scale.typed_paths():
            if path.startswith(f".{part}."):
                validation.check_scale(path, want, obj, found)


def _typed(value: Any, type_: Any) -> Any:
    """Return a value converted to a type; None if it does not fit."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return None


@cache
def form(kind: Kind) -> Form:
    """Return the form of a kind."""
    return Form(kind)
