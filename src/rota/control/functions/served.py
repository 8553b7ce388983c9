"""The state of one function: its calls, its workers, and the load state of its newest version."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import PurePath
from typing import Literal, NamedTuple

from msgspec import Raw

from rota.client import Key
from rota.control.functions.loading import UNKNOWN, LoadState
from rota.control.functions.planning import Version
from rota.control.functions.routing import Routing, Worker
from rota.control.functions.scaling import FunctionAutoscaler

NOTHING = Raw()
BEGUN_MAX = 1000
"""The number of last calls of one function that are remembered, for clients that follow its logs."""

Outcome = Literal["Succeeded", "Failed", "Timeout", "Cancelled", "WorkerLost"]


class CallOutcome(NamedTuple):
    reason: Outcome
    started: float
    ended: float
    instance: str = ""
    result: Raw = NOTHING
    message: str = ""
    exit_code: int | None = None


class NotCalled(Exception):  # noqa: N818 - the outcome of a call
    """A call has not begun: `TooMany`, `NoWorker`, `QuotaExceeded` or `NotLoaded`."""

    def __init__(self, reason: Literal["TooMany", "NoWorker", "QuotaExceeded", "NotLoaded"], message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CallRequest(NamedTuple):
    id: str
    event: bytes
    """JSON."""
    seconds: float
    log: str = ""


class BegunCall(NamedTuple):
    """A call that was sent to a worker. Numbers only grow."""

    number: int
    id: str
    time: float
    worker: str
    log: str

    @property
    def call(self) -> str:
        """The name of its Task, which may not have been created yet."""
        return self.log.rpartition("/")[2].partition("@")[0]

    @property
    def uid(self) -> str:
        """The uid in the name of its log."""
        return PurePath(self.log).stem.partition("@")[2]


class ServedFunction:
    """One function: its workers, its waiting calls, and its counts."""

    def __init__(self, key: Key, uid: str, waiting_max: int) -> None:
        self.key = key
        self.uid = uid
        self.routing = Routing(waiting_max)
        self.scale = FunctionAutoscaler()
        self.generation = 0
        """The generation of the function's spec that this state is based on."""
        self.concurrency = 1
        self.most = 1
        self.have = 0
        """The number of workers that the autoscaler decided last."""
        self.trouble = ""
        """The reason why the newest version cannot be loaded, while no version can be called. It fails all calls."""
        self.over_budget = ""
        """The reason why the quota has no room for workers. It fails calls, except those of tasks."""
        self.held_up = ""
        """The reason why there are no workers until an object changes. It fails calls, except those of tasks."""
        self.good: Version | None = None
        """The version that was loaded last. It answers calls while a newer one cannot be loaded."""
        self.known: tuple[str, LoadState] = ("", UNKNOWN)
        """The hash and the load state of the newest version."""
        self.tried_with: tuple[str, ...] | None = None
        """The resourceVersions of the function's references when its newest version last failed to load."""
        self.succeeded = self.failed = 0
        """The number of calls that succeeded, and that failed, since the last write of the status."""
        self.last_call = 0.0
        self.is_found = False
        """True if the workers from before this process have been counted."""
        self.begun: deque[BegunCall] = deque(maxlen=BEGUN_MAX)
        self.slots: dict[str, asyncio.Future[Worker]] = {}
        """A future for each waiting call, by its id."""

    @property
    def load(self) -> int:
        return self.routing.under_way + self.routing.waiting
