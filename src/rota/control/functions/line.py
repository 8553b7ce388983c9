"""One function as far as its calls go: what is asked for, what comes of it, and what is known of its workers."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import PurePath
from typing import Literal, NamedTuple

from msgspec import Raw

from rota.client import Key
from rota.control.functions.loading import UNKNOWN, Known
from rota.control.functions.planning import Version
from rota.control.functions.routing import Routing, Worker
from rota.control.functions.scaling import Scale

NOTHING = Raw()
BEGUN_MAX = 1000
"""Calls of one function that are remembered as begun, for who follows what they write."""

Outcome = Literal["Succeeded", "Failed", "Timeout", "Cancelled", "WorkerLost"]


class Ended(NamedTuple):
    """How a call ended."""

    reason: Outcome
    started: float
    ended: float
    instance: str = ""
    result: Raw = NOTHING
    message: str = ""
    exit_code: int | None = None


class NotCalled(Exception):  # noqa: N818 - says what became of it
    """A call was not begun: `TooMany`, `NoWorker`, `QuotaExceeded` or `NotLoaded`."""

    def __init__(self, reason: Literal["TooMany", "NoWorker", "QuotaExceeded", "NotLoaded"], message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Asked(NamedTuple):
    """One call, as it is asked for."""

    id: str
    event: bytes
    """JSON."""
    seconds: float
    log: str = ""


class Begun(NamedTuple):
    """A call that was given to a worker. Their numbers only grow."""

    number: int
    id: str
    time: float
    worker: str
    log: str

    @property
    def call(self) -> str:
        """The task that it is, or will be, written down as."""
        return self.log.rpartition("/")[2].partition("@")[0]

    @property
    def uid(self) -> str:
        """The uid under which its log is kept."""
        return PurePath(self.log).stem.partition("@")[2]


class Line:
    """One function: its workers, who waits for one, and what is counted."""

    def __init__(self, key: Key, uid: str, waiting_max: int) -> None:
        self.key = key
        self.uid = uid
        self.routing = Routing(waiting_max)
        self.scale = Scale()
        self.generation = 0
        """Of the function, as it was last seen."""
        self.concurrency = 1
        self.most = 1
        self.have = 0
        """Workers of the newest version that there are, ready or not."""
        self.trouble = ""
        """Why the newest version cannot be loaded, while no other can be called."""
        self.over_budget = ""
        """Why the quota has no room for its workers. Who is patient waits until it has."""
        self.held_up = ""
        """Why it gets no workers until something else changes. Who is patient waits for that."""
        self.good: Version | None = None
        """The version that was loaded last. While a newer one cannot be loaded, it goes on."""
        self.known: tuple[str, Known] = ("", UNKNOWN)
        """Whether the version of this hash was loaded."""
        self.tried_with: tuple[str, ...] | None = None
        """The versions of what the function refers to when its newest version was last found not to load."""
        self.succeeded = self.failed = 0
        """Since they were last written down."""
        self.last_call = 0.0
        self.is_found = False
        """Whether the workers that there were before this process have been counted."""
        self.begun: deque[Begun] = deque(maxlen=BEGUN_MAX)
        self.slots: dict[str, asyncio.Future[Worker]] = {}
        """Of those that wait."""

    @property
    def load(self) -> int:
        return self.routing.under_way + self.routing.waiting
