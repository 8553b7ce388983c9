"""A box in a container that something else started: its agent runs already, and connects to the runner."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rota.runtime.runner.agent_socket import AgentSocket
from rota.runtime.runner.box import ANSWER_SECONDS_MAX, START_SECONDS_MAX, Box, BoxLost, _settle

KEY_BYTES = 32
CLEARED_SECONDS_MAX = 15.0
"""Seconds to clear a container after its box has ended, more than its agent takes."""


class ConnectedBox(Box):
    """One box of a container, from the connection of its agent to its end. Another box may follow on the same socket.

    The runner cannot see into the container: it relies on the agent to report what runs there.
    """

    def __init__(self, agents: AgentSocket) -> None:
        super().__init__((), {}, Path(os.devnull))
        self._agents = agents
        self._kept: asyncio.Future[int] | None = None
        self._is_changed = False
        self.stopping = asyncio.Event()
        """Set while the container is being ended. Its agent runs on until it is asked to end, or is killed."""

    async def start(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                connection = await self._agents.connected()
        except TimeoutError:
            raise BoxLost("no agent has connected that is known: its container has to be replaced") from None
        self._control, self.uid = connection.control, connection.uid
        self._reading = asyncio.create_task(self._read(), name="agent")
        if connection.is_new:
            await self._give_key()

    async def _give_key(self) -> None:
        key = secrets.token_hex(KEY_BYTES)
        self._kept = asyncio.get_running_loop().create_future()
        await self._send({"do": "keep", "key": key})
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await self._kept
        self._agents.remember(key)

    def is_clear(self, but: Sequence[str] = (), *, alone: bool = False) -> bool:
        """Return False: certainty takes a question to the agent, and `clear` is quick."""
        return False

    def is_as_started(self) -> bool:
        """Report whether new commands inherit the same attributes as the first; the agent reports it when it clears."""
        return not self._is_changed

    async def clear(self, but: Sequence[str] = (), *, alone: bool = False) -> None:
        self._cleared = asyncio.get_running_loop().create_future()
        await self._send({"do": "clear", "but": but, "alone": alone and self._agents.is_first})
        if left := await self._until_cleared(self._cleared):
            raise BoxLost(f"{left} processes cannot be ended")

    async def end(self, code: int) -> None:
        """End the container with everything in it, with this exit code. The connection is lost then."""
        await self._send({"do": "end", "code": code})
        await self.lost.wait()

    async def stop(self) -> None:
        """End everything in the box. Raises BoxLost if that is not certain."""
        if self._control is None:
            return
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        # An agent ends everything when its connection is closed.
        self._agents.listen()
        self._control.close()
        self._control = None
        self._fail()
        try:
            async with asyncio.timeout(CLEARED_SECONDS_MAX):
                await self._agents.cleared()
        except TimeoutError:
            raise BoxLost("its agent has not said that everything has ended") from None

    def _handle(self, message: Any) -> None:
        if "kept" in message:
            _settle(self._kept, 0)
        elif "stopping" in message:
            self.stopping.set()
        else:
            self._is_changed = self._is_changed or ("cleared" in message and bool(message.get("changed")))
            super()._handle(message)

    def _fail(self) -> None:
        _settle(self._kept, BoxLost("what ran in it is gone"))
        super()._fail()
