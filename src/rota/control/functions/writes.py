"""Writes of one iteration of the event loop, sent together. Each succeeds or fails on its own."""

from __future__ import annotations

import asyncio

from rota.client import Client, Operation
from rota.registry import Answer
from rota.registry.errors import ApiError


class CallWrites:
    """Sends writes to a client. A cancelled writer does not cancel its write."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[tuple[Operation, asyncio.Future[Answer]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    def write(self, operation: Operation) -> asyncio.Future[Answer]:
        """Send an operation at the end of this iteration of the loop. The future has its answer or its error."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append((operation, answer))
        return answer

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        sending = asyncio.get_running_loop().create_task(self._send(waiting), name="writes")
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, waiting: list[tuple[Operation, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._client.write_each([operation for operation, _ in waiting])
        except BaseException as error:
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), found in zip(waiting, answers, strict=True):
            if answer.done():
                continue  # Its writer was cancelled.
            if isinstance(found, ApiError):
                answer.set_exception(found)
            else:
                answer.set_result(found)
