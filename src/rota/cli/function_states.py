"""Determine from the status whether the newest version of a function is loaded, and wait until it is or cannot be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from rota.cli.patience import Patience
    from rota.client import Client

Object = dict[str, Any]
Verdict = Literal["Ready", "NotLoaded", "HeldUp", "Coming", "Gone", "Unobserved"]

PASSING = frozenset(("Loading", "Preparing", "Starting", "Updating", "InstanceCrashing", "DependencyNotReady"))
"""Reasons for not being ready that may pass by themselves."""
HELD_UP_SECONDS = 2.0
"""Time that any other obstacle must last before it is reported, because it may pass soon."""
UNOBSERVED_SECONDS = 10.0
"""Time for a controller to report on a function. It does so at once unless the controllers do not run."""


class State(NamedTuple):
    """The state of a function's newest version.

    - `NotLoaded`: it cannot be loaded.
    - `HeldUp`: it waits for something that does not exist.
    - `Coming`: it is not loaded yet, for a reason that may pass.
    - `Unobserved`: no controller has reported on this generation.
    - `Gone`: the function does not exist.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    has_before: bool = False
    """True if an earlier version answers calls."""

    @property
    def why(self) -> str:
        return ": ".join(part for part in (self.reason, self.message) if part)


UNOBSERVED = State("Unobserved", "NotObserved", "no controller of the server has reported on it")


def state_of(function: Object | None) -> State:
    """Return the state of a function from its conditions of the current generation."""
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
    client: Client,
    names: Iterable[str],
    seconds: float,
    on_decided: Callable[[str, State], None] = lambda name, state: None,
) -> dict[str, State]:
    """Wait until the state of each function is decided, at most for so many seconds. Calls `on_decided` for each."""
    from rota.cli.patience import Patience

    waiting = Waiting(client, names, on_decided)
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
    """Functions whose state is not decided yet."""

    def __init__(self, client: Client, names: Iterable[str], on_decided: Callable[[str, State], None]) -> None:
        from rota.api import Function
        from rota.cli.following import key_in

        self._client = client
        self._keys = {key_in(client, Function.api, name): name for name in names}
        self._on_decided = on_decided
        self.latest: dict[str, State] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._undecided: set[str] = set(self._keys.values())
        self.is_decided = asyncio.Event()
        """Set once the state of all of them is decided."""

    async def read(self, patience: Patience) -> None:
        """Follow the functions. Does not return."""
        from rota.api import Function
        from rota.cli.following import follow_named

        for name in self._keys.values():
            self._take(name, UNOBSERVED)
        following = patience.follow(lambda: follow_named(self._client, Function.api, self._keys))
        async with contextlib.aclosing(following) as changes:
            async for key, obj in changes:
                name = self._keys[key]
                if name in self._undecided:
                    self._take(name, state_of(obj))

    def _take(self, name: str, state: State) -> None:
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
        self._on_decided(name, self.latest[name])
        if not self._undecided:
            self.is_decided.set()

    def _forget_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def end(self) -> None:
        """Report the functions whose state is still undecided, as they are."""
        for name in sorted(self._undecided):
            self._decide(name)
