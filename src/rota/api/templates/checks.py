"""Checks of templates: each expression must be one that the object's kind fills in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from rota.api.model import Check, Wrong
from rota.api.templates import items
from rota.api.templates.expressions import (
    EXPRESSION,
    LITERAL,
    RESERVED,
    VARIABLE,
    Found,
    output_of,
    shown,
    unclosed,
)

Json = dict[str, Any]

SCHEDULE_FIELDS = ("name", "uid", "runId", "time", "scheduledTime")
"""Fields that a schedule fills in. time and scheduledTime are the same, named as in the environment and in an event."""
ISSUE_FIELDS = frozenset(
    (
        *("kind", "repo", "number", "title", "body", "state", "url", "author", "labels"),
        *("createdAt", "updatedAt", "draft", "branch", "base", "sha"),
    )
)
"""Fields of an item of an issue tracker. The last four are for pulls, and empty for issues."""
VARIABLE_PREFIX = "ROTA_TASKS_"
NAMED_MAX = 20
_encode = msgspec.json.Encoder().encode
_NOT_IN_NAME = re.compile(r"[^A-Z0-9_]")
_PLAIN = ("branch", "holder", "affinity")


def variable(name: str, key: str) -> str:
    """Return the environment variable with an output of a task."""
    return VARIABLE_PREFIX + _NOT_IN_NAME.sub("_", f"{name}_{key}".upper())


class _Scope(NamedTuple):
    """The expressions that can be filled in at a place."""

    tasks: Collection[str] | None
    """Tasks whose outputs can be used; None if they are not known here."""
    schedule: bool = False
    """True if a schedule creates the task."""
    strict: bool = False
    """True: every name in braces must be an expression. False: only if it is the whole text."""
    variables: bool = True
    """True if unknown names in braces are reported."""

    @property
    def known(self) -> str:
        fields = [f"schedule.{name}" for name in SCHEDULE_FIELDS] if self.schedule else []
        return ", ".join(["tasks.NAME.outputs.KEY", *fields])


# Texts.


def _text(text: str, scope: _Scope, *, is_element: bool = False) -> Iterator[Found]:
    """Yield the invalid expressions of a text. `is_element`: it is an element of a command."""
    if "{{" not in text:
        return
    yield from unclosed(text)
    for found in EXPRESSION.finditer(text):
        expression = (found[1] or "").rstrip()
        why = _expression(expression, scope) if expression else ""
        if not why and is_element and expression.startswith("tasks.") and found[0] != text:
            named = output_of(expression)
            name = variable(*named) if named is not None else VARIABLE_PREFIX
            why = f"it must be the whole element; a script reads it from its environment, as {name}"
        if why:
            yield Found(shown(found[0]), why)
    if scope.variables:
        whole = VARIABLE.fullmatch(text)
        for found in VARIABLE.finditer(text) if scope.strict else [whole] if whole is not None else []:
            root, dot, _ = found[1].partition(".")
            if root not in RESERVED or not dot:
                yield Found(shown(found[0]), f"{found[1]} is nothing that is filled in here; {_there(scope)}")


def _expression(expression: str, scope: _Scope) -> str:
    """Return why an expression cannot be filled in; empty if it can, as far as is known."""
    root, _, rest = expression.partition(".")
    if root == "schedule":
        if not scope.schedule:
            return "only the taskTemplate of a Schedule is told of its schedule"
        if rest not in SCHEDULE_FIELDS:
            return f"a schedule has no {rest or 'such field'}; it has: {', '.join(SCHEDULE_FIELDS)}"
        return ""
    named = output_of(expression)
    if named is None:
        return "it is not understood; write tasks.NAME.outputs.KEY"
    if scope.tasks is not None and named[0] not in scope.tasks:
        there = ", ".join(sorted(scope.tasks)[:NAMED_MAX]) or "nothing"
        return f"the task does not depend on {named[0]}: add it to dependsOn, which has {there}"
    return ""


def _there(scope: _Scope) -> str:
    return f"there is {scope.known}; for the braces themselves write {LITERAL}"


# Templates of tasks.


def _of_template(template: Json, scope: _Scope, *, payload: bool) -> Iterator[Wrong]:
    """Yield the invalid expressions of a task or task template. `payload`: texts in a payload are filled in."""

    def wrong(field: str, text: Any, **options: bool) -> Iterator[Wrong]:
        for found in _text(text, scope, **options) if isinstance(text, str) else ():
            yield Wrong(field, found.text, found.why)

    for i, element in enumerate(template.get("command", ())):
        yield from wrong(f"command[{i}]", element, is_element=True)
    free = scope._replace(variables=scope.variables and scope.strict)
    for name in ("stdin", "prompt"):
        for found in _text(template.get(name) or "", free):
            yield Wrong(name, found.text, found.why)
    for i, one in enumerate((template.get("worker") or {}).get("env", ())):
        yield from wrong(f"worker.env[{i}].value", one.get("value"))
    for name in _PLAIN:
        yield from _of_plain(name, template.get(name), scope)
    if payload:
        for path, text in items.texts((template.get("function") or {}).get("payload")):
            yield from wrong(f"function.payload{items.at(path)}", text)


def _of_plain(name: str, value: Any, scope: _Scope) -> Iterator[Wrong]:
    """Yield the invalid expressions of a field that a schedule fills in and a task does not."""
    field, text = (f"{name}.key", value.get("key")) if isinstance(value, dict) else (name, value)
    for found in EXPRESSION.finditer(text or ""):
        expression = (found[1] or "").rstrip()
        if expression.startswith("tasks."):
            yield Wrong(field, shown(found[0]), "results of other tasks cannot be used in this field")
        elif expression and (why := _expression(expression, scope)):
            yield Wrong(field, shown(found[0]), why)


def _of_task(spec: Json) -> Iterable[Wrong]:
    # In JSON two braces follow each other only within a text. Most tasks have none, and there is one look for all.
    if b"{{" not in _encode(spec):
        return ()
    # Without dependencies a payload is plain data, and is not searched for expressions.
    depends_on = spec.get("dependsOn", ())
    return _of_template(spec, _Scope(depends_on), payload=bool(depends_on))


def _of_schedule(spec: Json) -> Iterator[Wrong]:
    template = spec["target"].get("taskTemplate") or {}
    scope = _Scope(template.get("dependsOn", ()), schedule=True, strict=True)
    for field, text, why in _of_template(template, scope, payload=True):
        yield Wrong(f"target.taskTemplate.{field}", text, why)
    for path, text in items.texts(spec.get("payload")):
        for found in _text(text, scope) if isinstance(text, str) else ():
            yield Wrong(f"payload{items.at(path)}", found.text, found.why)


def item_fields(source: Json) -> Collection[str] | None:
    """Return the fields that items of a source may have; None if any."""
    if source.get("github") is not None:
        return ISSUE_FIELDS
    mapped = (source.get("webhook") or {}).get("map")
    return frozenset(mapped) if mapped else None


def _of_spawner(spec: Json) -> Iterator[Wrong]:
    template, reported = spec["taskTemplate"], set()
    for unfilled in items.problems(template, item_fields(spec["source"])):
        field = items.at(unfilled.path).removeprefix(".")
        reported.add(field)
        yield Wrong(f"taskTemplate.{field}", shown(unfilled.expression) or "{{", unfilled.why)
    scope = _Scope(template.get("dependsOn", ()), variables=False)
    for field, text, why in _of_template(template, scope, payload=True):
        if field not in reported:
            yield Wrong(f"taskTemplate.{field}", text, why)


def _of_workers(spec: Json) -> Iterator[Wrong]:
    """Yield the invalid expressions of a pool's worker.

    It fills them in for each task, so the tasks are not known here.
    """
    template = spec.get("template") or {}
    of_template = template["containers"][0] if template.get("worker") is not None else {}
    for at, has_env in (("worker", spec.get("worker") or {}), ("template.containers[0]", of_template)):
        for i, one in enumerate(has_env.get("env", ())):
            for found in _text(one.get("value") or "", _Scope(None)):
                yield Wrong(f"{at}.env[{i}].value", found.text, found.why)


_GIVEN = ("function", "command", "stdin", "prompt", "worker", "dependsOn", *_PLAIN)
TASK_TEMPLATES = Check(_of_task, _GIVEN)
SCHEDULE_TEMPLATES = Check(_of_schedule, ("target", "payload"))
SPAWNER_TEMPLATES = Check(_of_spawner, ("source", "taskTemplate"))
WORKER_TEMPLATES = Check(_of_workers, ("worker", "template"))
