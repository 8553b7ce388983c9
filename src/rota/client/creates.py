"""Collect the creates that callers request in one turn of the event loop, and send them in one request.

Each is validated, refused and answered by itself, as if it had a request of its own. A single one has its own request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rota.client.backend import Written
from rota.registry import Answer, ApiError, Operation

SENT_BY_ITSELF = frozenset((413, 429, 503))
"""Status codes of a batch after which its creates are sent one by one: nothing was carried out, and a single request
may pass or is retried."""

WriteOne = Callable[[Operation], Awaitable[Answer]]
WriteEach = Callable[[Sequence[Operation]], Awaitable[Written]]


class _Asked(NamedTuple):
    operation: Operation
    answer: asyncio.Future[Answer]


class Creates:
    """Collects creates. `close` cancels those under way."""

    def __init__(self, write_one: WriteOne, write_each: WriteEach) -> None:
        self._write_one = write_one
        self._write_each = write_each
        self._asked: list[_Asked] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def write(self, operation: Operation) -> Answer:
        asked = _Asked(operation, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if len(self._asked) > 1:
            return await asked.answer
        try:
            # Let the other tasks of this turn of the loop add theirs.
            await asyncio.sleep(0)
        finally:
            together, self._asked = self._asked, []
            if len(together) > 1:
                # In a task of its own: a cancellation of this caller must not cancel the others.
                task = asyncio.create_task(self._send(together))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        return await self._write_one(operation) if len(together) == 1 else await asked.answer

    async def close(self) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, together: Sequence[_Asked]) -> None:
        try:
            answers = await self._write_each([one.operation for one in together])
        except BaseException as error:
            for one in together:
                if not one.answer.done():
                    one.answer.set_exception(error) if isinstance(error, Exception) else one.answer.cancel()
            if not isinstance(error, Exception):
                raise
            return
        late = [self._deliver(one, answer) for one, answer in zip(together, answers, strict=True)]
        await asyncio.gather(*(self._send_by_itself(one) for one in late if one is not None))

    def _deliver(self, asked: _Asked, answer: Answer | ApiError) -> _Asked | None:
        """Deliver an answer to its caller, or return the create if it has to be sent by itself."""
        if asked.answer.done():
            return None
        if isinstance(answer, Answer):
            asked.answer.set_result(answer)
        elif answer.code in SENT_BY_ITSELF:
            return asked
        else:
            asked.answer.set_exception(answer)
        return None

    async def _send_by_itself(self, asked: _Asked) -> None:
        try:
            answer = await self._write_one(asked.operation)
        except Exception as error:
            if not asked.answer.done():
                asked.answer.set_exception(error)
        else:
            if not asked.answer.done():
                asked.answer.set_result(answer)
