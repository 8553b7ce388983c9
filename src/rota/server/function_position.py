"""The position of a client that follows the logs of a function: the calls that it knows, and its place in each log.

Calls of one process are told apart by their numbers, those of different processes by their start times, which are known
from two sources that differ a little. So the logs of the newest calls are kept in the position for a while after their
end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.registry.errors import bad_request

MARGIN_SECONDS = 5.0
"""Calls that began this long before the newest known one do not count as new."""
OVER_MAX = 150
"""Logs that are kept after their end."""
EPOCH, KNOWN, AFTER = "epoch", "seen", "after"


class Position(msgspec.Struct, frozen=True):
    """The position at which a client was cut off."""

    epoch: str
    """The process that made the calls."""
    known: int = msgspec.field(name="seen")
    """The number of the newest call that the client knows."""
    after: float
    """The start of that call."""
    logs: dict[str, int | str]
    """The place in each log, by its key."""

    def may_be_new(self, began: float) -> bool:
        """Report whether a call of another process, without a place in its log, is new to the client."""
        return began > self.after - MARGIN_SECONDS


_decoder = msgspec.json.Decoder(dict[str, int | float | str])


def position_in(text: str) -> Position | None:
    if not text:
        return None
    try:
        logs = _decoder.decode(text)
        fields = {name: logs.pop(name, default) for name, default in ((EPOCH, ""), (KNOWN, 0), (AFTER, 0.0))}
        return msgspec.convert({**fields, "logs": logs}, Position)
    except msgspec.MsgspecError as error:
        raise bad_request(
            f"from: it is no position in a function's log, such as came with its frames: {error}"
        ) from None


class Progress:
    """The progress of a client, as changes of its position."""

    def __init__(self, epoch: str, may_go_on: Callable[[str], bool]) -> None:
        """`may_go_on` reports whether a log, by its key, may be continued although its call is over."""
        self._may_go_on = may_go_on
        self._change: dict[str, Any] = {EPOCH: epoch}
        self._known = 0
        self._after = 0.0
        self._over: dict[str, float] = {}
        """The start times of calls whose logs were read to the end, by the keys of the logs."""
        self._has_aged = False

    def know(self, number: int, began: float) -> None:
        """Record that the client knows a call, or is about to."""
        if number > self._known:
            self._known = self._change[KNOWN] = number
        if began > self._after:
            self._after = self._change[AFTER] = began
            self._has_aged = True

    def reach(self, key: str, position: int | str) -> None:
        """Record the client's place in a log."""
        self._over.pop(key, None)
        self._change[key] = position

    def leave(self, key: str, began: float) -> None:
        """Record that a log was read to its end. The position keeps it for a while."""
        self._over[key] = began
        self._has_aged = True

    def drop(self, key: str) -> None:
        """Record that a log is gone."""
        self._over.pop(key, None)
        self._change[key] = None

    def take(self) -> dict[str, Any]:
        """Return the changes since the last call."""
        if self._has_aged:
            self._has_aged = False
            self._forget()
        change, self._change = self._change, {}
        return change

    def _forget(self) -> None:
        oldest = sorted(self._over, key=self._over.__getitem__)
        for at, key in enumerate(oldest):
            is_old = self._over[key] < self._after - MARGIN_SECONDS and not self._may_go_on(key)
            if is_old or len(oldest) - at > OVER_MAX:
                self.drop(key)
