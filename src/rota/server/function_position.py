"""How far somebody is who follows the logs of a function: which calls they know of, and how much of each log they have.

Calls are told apart by their numbers while one process makes them. After it, by when they began: which is known from
two places that differ by a little. So the logs of the newest calls are remembered for a while after they were read to
the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.registry.errors import bad_request

MARGIN_SECONDS = 5.0
"""Calls that began so long before the newest one are not taken for new ones, whatever process made them."""
OVER_MAX = 150
"""Logs that are remembered after they were read to the end."""
EPOCH, SEEN, AFTER = "epoch", "seen", "after"


class Position(msgspec.Struct, frozen=True):
    """What somebody has who was cut off."""

    epoch: str
    """The process that made the calls."""
    seen: int
    """The number of the newest call they know of."""
    after: float
    """When it began."""
    logs: dict[str, int | str]
    """How far they are in each log, by its key."""

    def may_be_new(self, began: float) -> bool:
        """Whether a call of another process, of whose log they have nothing, is one they do not know of."""
        return began > self.after - MARGIN_SECONDS


_decoder = msgspec.json.Decoder(dict[str, int | float | str])


def position_in(text: str) -> Position | None:
    if not text:
        return None
    try:
        logs = _decoder.decode(text)
        fields = {name: logs.pop(name, default) for name, default in ((EPOCH, ""), (SEEN, 0), (AFTER, 0.0))}
        return msgspec.convert({**fields, "logs": logs}, Position)
    except msgspec.MsgspecError as error:
        raise bad_request(
            f"from: it is no position in a function's log, such as came with its frames: {error}"
        ) from None


class Progress:
    """What somebody has received, told as changes of a position."""

    def __init__(self, epoch: str, may_go_on: Callable[[str], bool]) -> None:
        """`may_go_on`: whether more may be written to a log, by its key, although its call is over."""
        self._may_go_on = may_go_on
        self._change: dict[str, Any] = {EPOCH: epoch}
        self._seen = 0
        self._after = 0.0
        self._over: dict[str, float] = {}
        """When the calls began whose logs were read to the end, by the keys of those."""
        self._has_aged = False

    def know(self, number: int, began: float) -> None:
        """They know of a call, or are about to: it has a position in its log."""
        if number > self._seen:
            self._seen = self._change[SEEN] = number
        if began > self._after:
            self._after = self._change[AFTER] = began
            self._has_aged = True

    def reach(self, key: str, position: int | str) -> None:
        """They have a log up to here."""
        self._over.pop(key, None)
        self._change[key] = position

    def leave(self, key: str, began: float) -> None:
        """A log was read to its end. It is remembered for a while."""
        self._over[key] = began
        self._has_aged = True

    def drop(self, key: str) -> None:
        """A log is gone."""
        self._over.pop(key, None)
        self._change[key] = None

    def take(self) -> dict[str, Any]:
        """What has changed since this was last asked."""
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
