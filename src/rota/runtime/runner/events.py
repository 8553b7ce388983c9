"""Parses the JSON lines that coding agents print.

`claude -p --output-format stream-json --verbose` ends with one `result`, which has everything. `codex exec --json`
prints each message when it is complete, and the usage so far at the end of each turn of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from rota.runtime.runner.jobs import Parse

Path = tuple[str, ...]

NUMBER_MAX = 1e15
"""The largest number accepted from an event. Up to here, floats represent integers exactly."""


class EventRule(Struct, frozen=True):
    """A kind of event, and the paths of the values to take from it. Of several paths, the first that exists is used."""

    type: str
    where: Mapping[Path, tuple[object, ...]] = {}
    """Conditions: the values that each path may have. None: the path must not exist."""
    result: tuple[Path, ...] = ()
    error: tuple[Path, ...] = ()
    """Paths of the error message."""
    fails: bool = False
    """True if this event means that the job has failed, whatever the program's exit code is."""
    usage: Mapping[str, Path] = {}


_CLAUDE_USAGE: Mapping[str, Path] = {
    "costUSD": ("total_cost_usd",),
    "turns": ("num_turns",),
    "inputTokens": ("usage", "input_tokens"),
    "cachedInputTokens": ("usage", "cache_read_input_tokens"),
    "cacheWriteTokens": ("usage", "cache_creation_input_tokens"),
    "outputTokens": ("usage", "output_tokens"),
}
_CODEX_USAGE: Mapping[str, Path] = {
    "inputTokens": ("usage", "input_tokens"),
    "cachedInputTokens": ("usage", "cached_input_tokens"),
    "outputTokens": ("usage", "output_tokens"),
    "reasoningTokens": ("usage", "reasoning_output_tokens"),
}
_MESSAGES = ("agent_message", "assistant_message")

EVENTS: Mapping[Parse, tuple[EventRule, ...]] = {
    "plain": (),
    "claude-code": (
        EventRule(
            "result",
            where={("subtype",): ("success", None), ("is_error",): (False, None)},
            result=(("structured_output",), ("result",)),
            usage=_CLAUDE_USAGE,
        ),
        # Some versions do not mark a reached limit as an error.
        EventRule("result", error=(("result",), ("errors",), ("subtype",)), fails=True, usage=_CLAUDE_USAGE),
    ),
    "codex": (
        EventRule("item.completed", where={("item", "type"): _MESSAGES}, result=(("item", "text"),)),
        EventRule("item.completed", where={("item", "item_type"): _MESSAGES}, result=(("item", "text"),)),
        EventRule("turn.completed", usage=_CODEX_USAGE),
        EventRule("turn.failed", error=(("error", "message"),), fails=True),
        # Also sent for a connection that is about to be made again: the job has not failed yet.
        EventRule("error", error=(("message",),)),
    ),
}
"""The rules of each format. The first rule that matches a line is used."""


class EventFindings(Struct, frozen=True):
    """The values taken from one line; None for those that it lacks."""

    result: str | None = None
    error: str | None = None
    fails: bool = False
    usage: Mapping[str, float] = {}


def read(parse: Parse, line: bytes) -> EventFindings | None:
    """Return the values of a line, or None if no rule matches it."""
    try:
        content = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for event in EVENTS[parse]:
        if _at(content, ("type",)) == event.type and all(_fits(content, *place) for place in event.where.items()):
            numbers = {name: _number(content, path) for name, path in event.usage.items()}
            usage = {name: number for name, number in numbers.items() if number is not None}
            return EventFindings(_text(content, event.result), _text(content, event.error), event.fails, usage)
    return None


def _fits(content: Any, path: Path, values: tuple[object, ...]) -> bool:
    return _at(content, path) in values


def _at(content: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(content, dict):
            return None
        content = content.get(name)
    return content


def _text(content: Any, paths: tuple[Path, ...]) -> str | None:
    for path in paths:
        found = _at(content, path)
        if found:
            return found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return None


def _number(content: Any, path: Path) -> float | None:
    found = _at(content, path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= NUMBER_MAX:
        return None
    return float(found)
