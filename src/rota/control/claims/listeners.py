"""Callers that wait for a claim. Each is answered once, or leaves before that."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from rota.api import Claim
from rota.client import Key


class Listener(NamedTuple):
    uid: str
    """The uid of its claim; empty: any claim of the name."""
    future: asyncio.Future[Claim | None]


class Listeners:
    """The callers that wait, by the name of their claim."""

    def __init__(self) -> None:
        self._of: dict[Key, list[Listener]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._of

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def join(self, key: Key, uid: str = "") -> Listener:
        listener = Listener(uid, asyncio.get_running_loop().create_future())
        self._of.setdefault(key, []).append(listener)
        return listener

    def leave(self, key: Key, listener: Listener) -> None:
        self._keep(key, [one for one in self._of.get(key, ()) if one is not listener])

    def is_awaited(self, key: Key, uid: str) -> bool:
        """Report whether a caller waits for a claim."""
        return any(one.uid in ("", uid) and not one.future.done() for one in self._of.get(key, ()))

    def answer(self, key: Key, uid: str, claim: Claim | None) -> None:
        """Answer the callers of this claim, and those of any claim of the name."""
        for future in self._take(key, ("", uid)):
            future.set_result(claim)

    def gone(self, key: Key, but: str = "") -> None:
        """Answer the callers of a deleted claim with None, except those of the claim `but`."""
        asked = {one.uid for one in self._of.get(key, ())} - {but} if but else None
        for future in self._take(key, asked):
            future.set_result(None)

    def fail(self, key: Key, uid: str, error: Exception) -> None:
        for future in self._take(key, (uid,)):
            future.set_exception(error)

    def close(self, error: Exception) -> None:
        """Answer all callers with an error."""
        for key in tuple(self._of):
            for future in self._take(key, None):
                future.set_exception(error)

    def _take(self, key: Key, uids: Collection[str] | None) -> list[asyncio.Future[Claim | None]]:
        """Remove the callers of these uids, or all for None, and return their futures."""
        listeners = self._of.get(key, ())
        if uids is None:
            taken, left = [*listeners], []
        else:
            taken = [one for one in listeners if one.uid in uids]
            left = [one for one in listeners if one.uid not in uids]
        self._keep(key, left)
        return [one.future for one in taken if not one.future.done()]

    def _keep(self, key: Key, left: list[Listener]) -> None:
        if left:
            self._of[key] = left
        else:
            self._of.pop(key, None)
