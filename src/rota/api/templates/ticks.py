"""Fill in the fields of a schedule's tick in the template of its tasks: `{{ schedule.FIELD }}`, in one pass.

Expressions of tasks stay for the task to fill in, and so do literal braces in fields that the task fills in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.api.templates.expressions import EXPRESSION

_PLAIN = ("branch", "holder", "affinity")


def filled(spec: dict[str, Any], tick: Mapping[str, str]) -> dict[str, Any]:
    """Return the spec of a task from a task template. `tick` has the value of each field of the schedule."""
    out = dict(spec)
    for name in ("command", "stdin", "prompt"):
        if name in out:
            out[name] = _fill(out[name], tick)
    for name in _PLAIN:
        if name in out:
            out[name] = _fill(out[name], tick, is_plain=True)
    if worker := out.get("worker"):
        env = [{**one, "value": _fill(one["value"], tick)} if "value" in one else one for one in worker.get("env", ())]
        out["worker"] = {**worker, "env": env} if env else worker
    if (call := out.get("function")) and call.get("payload"):
        out["function"] = {**call, "payload": payload(call["payload"], tick, is_data=not out.get("dependsOn"))}
    return out


def payload(value: dict[str, Any], tick: Mapping[str, str], *, is_data: bool = True) -> dict[str, Any]:
    """Return the payload of a function call. `is_data`: the task will not fill in expressions."""
    made: dict[str, Any] = _fill(value, tick, is_plain=is_data)
    return made


def _fill(value: Any, tick: Mapping[str, str], *, is_plain: bool = False) -> Any:
    """Fill in a value. `is_plain`: no task looks for expressions in it, so literal braces are filled in too."""
    if isinstance(value, dict):
        return {key: _fill(one, tick, is_plain=is_plain) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill(one, tick, is_plain=is_plain) for one in value]
    if not isinstance(value, str) or "{{" not in value:
        return value

    def put(expression: str, text: str) -> str:
        if not expression:
            return "{{" if is_plain else text
        root, _, field = expression.partition(".")
        return tick.get(field, text) if root == "schedule" else text

    return EXPRESSION.sub(lambda found: put((found[1] or "").rstrip(), found[0]), value)
