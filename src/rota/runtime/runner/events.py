"""What the programs that agents are say when they are asked to say it as JSON, a line each: as data.

`claude -p --output-format stream-json --verbose` says last one `result`, with everything. `codex exec --json` says
each message when it is complete, and at the end of a turn what was used up to then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from rota.runtime.runner.jobs import Parse

Path = tuple[str, ...]

NUMBER_MAX = 1e15
"""Of what is counted, and of what counting stays exact."""


class Event(Struct, frozen=True):
    """One kind of event, and what is taken from it: of several places the first that has something."""

    type: str
    where: Mapping[Path, tuple[object, ...]] = {}
    """What else must be so: the values that a place may have; None: it is not there."""
    result: tuple[Path, ...] = ()
    error: tuple[Path, ...] = ()
    """Where it says what went wrong."""
    fails: bool = False
    """Whether that is the end of it, whatever the program's exit code is."""
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

EVENTS: Mapping[Parse, tuple[Event, ...]] = {
    "plain": (),
    "claude-code": (
        Event(
            "result",
            where={("subtype",): ("success", None), ("is_error",): (False, None)},
            result=(("structured_output",), ("result",)),
            usage=_CLAUDE_USAGE,
        ),
        # A limit that was reached is not marked as an error by every version.
        Event("result", error=(("result",), ("errors",), ("subtype",)), fails=True, usage=_CLAUDE_USAGE),
    ),
    "codex": (
        Event("item.completed", where={("item", "type"): _MESSAGES}, result=(("item", "text"),)),
        Event("item.completed", where={("item", "item_type"): _MESSAGES}, result=(("item", "text"),)),
        Event("turn.completed", usage=_CODEX_USAGE),
        Event("turn.failed", error=(("error", "message"),), fails=True),
        # It says so of a connection that it makes anew, too.
        Event("error", error=(("message",),)),
    ),
}
"""The first that fits counts."""


class Told(Struct, frozen=True):
    """What one line said. None: nothing about it."""

    result: str | None = None
    error: str | None = None
    fails: bool = False
    usage: Mapping[str, float] = {}


def read(parse: Parse, line: bytes) -> Told | None:
    """What a line means; None: nothing."""
    try:
        content = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for event in EVENTS[parse]:
        if _at(content, ("type",)) == event.type and all(_fits(content, *place) for place in event.where.items()):
            numbers = {name: _number(content, path) for name, path in event.usage.items()}
            usage = {name: number for name, number in numbers.items() if number is not None}
            return Told(_text(content, event.result), _text(content, event.error), event.fails, usage)
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
