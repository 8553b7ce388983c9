"""Whether the newest version of a function was loaded, as its status tells, and waiting until that is known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from rota.cli.wait_out import Patience
    from rota.client import Client

Object = dict[str, Any]
Verdict = Literal["Ready", "NotLoaded", "HeldUp", "Coming", "Gone", "Unobserved"]

PASSING = frozenset(("Loading", "Preparing", "Starting", "Updating", "InstanceCrashing", "DependencyNotReady"))
"""Reasons for not being ready that pass, or may."""
HELD_UP_SECONDS = 2.0
"""How long something else has to stand in the way before it is taken to last: it may be on its way, too."""
UNOBSERVED_SECONDS = 10.0
"""How long a server may take to say anything of a function. It does at once, unless its controllers do not run."""


class State(NamedTuple):
    """How a function is.

    NotLoaded: its newest version cannot be loaded. HeldUp: that is not known, since it needs something that is not
    there. Coming: it is not known yet. Unobserved: nothing is said of it as it is now.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    has_before: bool = False
    """Whether an earlier version answers calls."""

    @property
    def why(self) -> str:
        return ": ".join(part for part in (self.reason, self.message) if part)


UNOBSERVED = State("Unobserved", "NotObserved", "no controller of the server has reported on it")


def state_of(function: Object | None) -> State:
    """By what is said of the current generation."""
    if function is None:
        return State("Gone", "", "it is not there")
    status = function.get("status") or {}
    generation = function["metadata"].get("generation", 0)
    found = {
        one["type"]: one
        for one in status.get("conditions", [])
        if (one.get("observedGeneration") or status.get("observedGeneration") or 0) >= generation
    }
    ready, loaded = found.get("Ready"), found.get("Loaded")
    if ready is None:
        return UNOBSERVED
    how = (ready.get("reason", ""), ready.get("message", ""), "lastLoaded" in status)
    if ready["status"] == "True":
        return State("Ready", *how)
    if loaded is not None and loaded["status"] == "False":
        return State("NotLoaded", loaded.get("reason", ""), loaded.get("message", ""), how[2])
    return State("Coming" if ready.get("reason") in PASSING else "HeldUp", *how)


async def states(
    client: Client, names: Iterable[str], seconds: float, told: Callable[[str, State], None] = lambda name, state: None
) -> dict[str, State]:
    """Wait until it is known of each function, but no longer than so many seconds. `told` is called as it is known."""
    from rota.cli.wait_out import Patience

    waiting = Waiting(client, names, told)
    reading = asyncio.create_task(waiting.read(Patience()), name="states of functions")
    deciding = asyncio.create_task(waiting.is_decided.wait())
    try:
        await asyncio.wait((reading, deciding), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
    finally:
        for task in (reading, deciding):
            task.cancel()
        await asyncio.gather(reading, deciding, return_exceptions=True)
        waiting.end()
    return waiting.latest


class Waiting:
    """Functions of which it is not known yet how they are."""

    def __init__(self, client: Client, names: Iterable[str], told: Callable[[str, State], None]) -> None:
        from rota.api import Function
        from rota.cli.following import key_in

        self._client = client
        self._keys = {key_in(client, Function.api, name): name for name in names}
        self._told = told
        self.latest: dict[str, State] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._undecided: set[str] = set(self._keys.values())
        self.is_decided = asyncio.Event()
        """Whether it is known of all of them."""

    async def read(self, patience: Patience) -> None:
        """It does not end."""
        from rota.api import Function
        from rota.cli.following import follow_named

        for name in self._keys.values():
            self._see(name, UNOBSERVED)
        following = patience.follow(lambda: follow_named(self._client, Function.api, self._keys))
        async with contextlib.aclosing(following) as changes:
            async for key, obj in changes:
                name = self._keys[key]
                if name in self._undecided:
                    self._see(name, state_of(obj))

    def _see(self, name: str, state: State) -> None:
        before, self.latest[name] = self.latest.get(name), state
        if state.verdict in ("Ready", "NotLoaded", "Gone"):
            self._decide(name)
        elif before is None or before.verdict != state.verdict:
            self._forget_timer(name)
            if state.verdict != "Coming":
                seconds = HELD_UP_SECONDS if state.verdict == "HeldUp" else UNOBSERVED_SECONDS
                self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._decide, name)

    def _decide(self, name: str) -> None:
        self._forget_timer(name)
        self._undecided.discard(name)
        self._told(name, self.latest[name])
        if not self._undecided:
            self.is_decided.set()

    def _forget_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def end(self) -> None:
        """It is not waited any longer: what is known of the others is told as it is."""
        for name in sorted(self._undecided):
            self._decide(name)
