"""Writes of holds. Those of one iteration of the event loop go into one commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rota.control.holds.handover import HandOver, Result, Written, operations, result, write_in_steps
from rota.engine.fence import Deposed
from rota.registry import Answer, ApiError

if TYPE_CHECKING:
    from rota.control.holds.executor import Executor

log = logging.getLogger(__name__)

Make = Callable[[], HandOver | None]
"""Makes the hand-over when it is written; None: nothing is to be written."""
Receive = Callable[[HandOver, Result], None]
"""Takes the hand-over and its result."""


class Write(NamedTuple):
    """A hand-over that waits for the commit of this iteration."""

    make: Make
    receive: Receive


class Writes:
    """Collects hand-overs. Each succeeds or fails on its own; the echoes of their statuses do not wake the controllers.

    Each has a result. An error that no object caused (of the server, or because this process does not lead any more) is
    an `ApiError`, too.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._writes: list[Write] = []
        self._awaited: set[asyncio.Future[Written]] = set()
        self._is_closed = False

    def add(self, make: Make, receive: Receive) -> None:
        """Write a hand-over with the others of this iteration of the event loop."""
        if self._is_closed:
            return
        if not self._writes:
            self._executor.start(self._flush())
        self._writes.append(Write(make, receive))

    async def write(self, handover: HandOver) -> Written:
        """Write a hand-over with the others of this iteration, unless cancelled before that. Raises `ApiError`."""
        if self._is_closed:
            raise not_here()
        done: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._awaited.add(done)
        done.add_done_callback(self._awaited.discard)

        def receive(_: HandOver, result: Result) -> None:
            if done.done():
                return
            if isinstance(result, ApiError):
                done.set_exception(result)
            else:
                done.set_result(result)

        self.add(lambda: None if done.done() else handover, receive)
        return await done

    def close(self) -> None:
        """Write nothing more. Callers that await a write get an error."""
        self._is_closed = True
        for one in tuple(self._awaited):
            if not one.done():
                one.set_exception(not_here())

    async def _flush(self) -> None:
        writes, self._writes = self._writes, []
        made = [(handover, one.receive) for one in writes if (handover := _made(one)) is not None]
        client = self._executor.client
        if client.atomic and client.in_process:
            await self._write_each(made)
            return
        for handover, receive in made:
            if handover.subject is not None:
                self._executor.start(self._write_alone(handover, receive))
        await self._write_each([one for one in made if one[0].subject is None])

    async def _write_each(self, made: Sequence[tuple[HandOver, Receive]]) -> None:
        if not made:
            return
        client = self._executor.client
        groups = [operations(client, handover) for handover, _ in made]
        every = [one for group in groups for one in group]
        for handover, _ in made:
            self._expect(handover)
        answers: Sequence[Answer | ApiError]
        try:
            with refusing():
                answers = await client.write_each(every)
        except ApiError as refused:
            answers = [refused] * len(every)
        begin = 0
        for (handover, receive), group in zip(made, groups, strict=True):
            end = begin + len(group)
            self._receive(handover, receive, result(group, answers[begin:end], handover))
            begin = end

    async def _write_alone(self, handover: HandOver, receive: Receive) -> None:
        client, found = self._executor.client, None
        if client.atomic:
            self._expect(handover)
        try:
            with refusing():
                if not client.atomic:
                    found = await write_in_steps(client, handover)
                else:
                    instance, *others = await client.batch(operations(client, handover), typed=True)
                    ended = others.pop(0) if handover.ends is not None else None
                    found = Written(instance, ended, others.pop(0) if others else None)
        except ApiError as refused:
            self._receive(handover, receive, refused)
        else:
            self._receive(handover, receive, found)

    def _expect(self, handover: HandOver) -> None:
        for one in handover.holders:
            self._executor.expect(one)

    def _receive(self, handover: HandOver, receive: Receive, result: Result) -> None:
        """Pass a result on. An exception of one receiver does not keep the others from theirs."""
        if isinstance(result, ApiError):
            for one in handover.holders:
                self._executor.unexpect(one)
        try:
            receive(handover, result)
        except Exception:
            log.exception("what came of a write of a hold could not be taken")


@contextmanager
def refusing() -> Iterator[None]:
    """Raise `ApiError` for unexpected errors in this block, and if this process does not lead any more."""
    try:
        yield
    except ApiError:
        raise
    except Deposed as error:
        raise not_here(str(error)) from None
    except Exception as error:
        log.exception("a hold could not be written")
        raise ApiError(500, "InternalError", f"it could not be written: {error}") from error


def not_here(why: str = "nobody hands out instances here now") -> ApiError:
    return ApiError(
        503, "ServiceUnavailable", f"{why}: ask again under the same name", details={"retryAfterSeconds": 1}
    )


def _made(write: Write) -> HandOver | None:
    """Make a hand-over. An exception in one does not hold up the others."""
    try:
        return write.make()
    except Exception:
        log.exception("a hold cannot be written")
        return None
