"""Statuses of one kind that are to be written: those of one turn of the event loop together, in one commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rota.api import Object
from rota.control.holds.executor import Executor, refusing
from rota.engine.reconciler import status_write
from rota.registry import Answer, ApiError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)


class Write(NamedTuple, Generic[T]):
    """A status that is to be written."""

    make: Callable[[], T | None]
    """Returns the object with its new status, as things are when it is written; None: there is nothing to write."""
    written: Callable[[T, ApiError | None], None]
    """Called with that object, and with the refusal if there is one."""


class GroupedWrites(Generic[T]):
    """Collects status writes. Each is decided by itself; their echoes do not wake the controller."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._writes: list[Write[T]] = []
        self._is_due = self._is_closed = False

    def add(self, make: Callable[[], T | None], written: Callable[[T, ApiError | None], None]) -> None:
        """Write a status with the others of this turn."""
        self._writes.append(Write(make, written))
        if not self._is_due and not self._is_closed:
            self._is_due = True
            asyncio.get_running_loop().call_soon(lambda: self._executor.start(self._flush()))

    def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True

    async def _flush(self) -> None:
        self._is_due = False
        writes, self._writes = self._writes, []
        made = [(obj, write.written) for write in writes if (obj := _made(write)) is not None]
        if not made:
            return
        executor, client = self._executor, self._executor.client
        for obj, _ in made:
            executor.expect(obj)
        answers: Sequence[Answer | ApiError]
        try:
            with refusing():
                answers = await client.write_each([status_write(client, obj) for obj, _ in made])
        except ApiError as refused:
            answers = [refused] * len(made)
        for (obj, written), answer in zip(made, answers, strict=True):
            error = answer if isinstance(answer, ApiError) else None
            if error is not None:
                executor.unexpect(obj)
            written(obj, error)


def _made(write: Write[T]) -> T | None:
    """Have an object made. One that cannot be made holds up none of the others."""
    try:
        return write.make()
    except Exception:
        log.exception("a status cannot be written")
        return None
