"""A claimed instance: run commands, and read and write files."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from rota.api.instance import Address
from rota.client import channels
from rota.client.channels import STDOUT
from rota.client.claims.files import Files
from rota.client.claims.gateway import (
    AGAIN_SECONDS_FIRST,
    AGAIN_SECONDS_MAX,
    ClaimAnswer,
    Gateway,
    retry_until_sent,
    retry_while_away,
)
from rota.client.claims.lease import OVER, Lease
from rota.client.claims.result import OUTPUT_BYTES_MAX, Kept, Result
from rota.client.credentials import Credential, Fixed
from rota.client.failures import ConnectionCut
from rota.client.http import HttpBackend
from rota.client.websocket import WebSocket
from rota.registry import ApiError

R = TypeVar("R")
Input = bytes | str | AsyncIterable[bytes]
OnOutput = Callable[[bytes], Awaitable[None] | None]
SHELL = "/bin/sh"
FIND_AGAIN_SECONDS_MAX = 5.0
"""Seconds that a server may take after its start to find the instance again."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PREPARED = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do export "$1"; shift; n=$((n-1)); done; '
    '[ -z "$1" ] || cd -- "$1" || exit 126; shift; exec "$@"'
)
"""A shell script that sets variables, changes to a folder, and executes a command.

Its arguments: the number of variables, the variables, the folder (empty for none), the command.
"""


class Box:
    """One instance, for as long as its claim lasts."""

    def __init__(self, gateway: Gateway, answer: ClaimAnswer, lease: Lease) -> None:
        status = answer.claim.status
        assert status is not None and status.instance_name is not None, "a claim is answered when it is bound"
        self.name = answer.claim.metadata.name
        """The name of the claim."""
        self.pool = answer.claim.spec.pool_ref.name
        self.namespace = gateway.namespace
        self.instance = status.instance_name
        self.addresses: list[Address] = list(status.addresses)
        target = replace(gateway.backend.target, credentials=Fixed(Credential(answer.token)))
        self.backend = HttpBackend(target)
        """A connection that is valid for this instance only, and for as long as the claim lasts."""
        self._lease = lease
        self.is_kept = False
        self.files = Files(self.backend, self.namespace, self.instance, self._repeatable)

    @property
    def expires_at(self) -> datetime.datetime | None:
        """The end of the lease. The lease is renewed automatically."""
        return self._lease.expires_at

    def keep(self) -> None:
        """Keep the hold at the end of the block. Anyone who knows the claim's name can renew and release it."""
        self.is_kept = True

    async def check(self) -> None:
        """Ask the server whether the instance is still held. Raises ClaimLost."""
        await self._lease.look()

    async def close(self) -> None:
        await self.backend.close()

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: Input | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - it ends the command
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        container: str = "",
    ) -> Result:
        """Run a command to its end, beside the other processes of the instance. Returns its result.

        A text is run by a shell; a sequence is a program and its arguments. `output_bytes_max` of each output are kept;
        `on_stdout` and `on_stderr` get all of it as it comes. After `timeout` seconds the command is ended and
        TimeoutError raised. ConnectionCut is raised if the connection was cut: the command is then ended, and never
        retried.
        """
        said, complained = Kept(output_bytes_max), Kept(output_bytes_max)

        async def show(channel: int, data: bytes) -> None:
            kept, on_output = (said, on_stdout) if channel == STDOUT else (complained, on_stderr)
            kept.take(data)
            if on_output is not None and inspect.isawaitable(answer := on_output(data)):
                await answer

        path = channels.path(
            self.namespace, self.instance, _words(command, env or {}, cwd), stdin=stdin is not None, container=container
        )
        try:
            async with asyncio.timeout(timeout) as limit, AsyncExitStack() as stack:
                websocket = await self._while_held(
                    lambda: retry_until_sent(lambda: self._start(path, stack), self._lease.check)
                )
                code = await channels.carry(websocket, show, _pieces(stdin) if stdin is not None else None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"the command was ended: it ran for more than {timeout} s") from None
        except (ConnectionCut, channels.ExecFailed) as error:
            await self._lease.look()
            if isinstance(error, channels.ExecFailed) and error.reason == channels.GONE:
                await self._until_lost()
            raise
        return Result(code, said.whole(), complained.whole(), truncated=said.truncated or complained.truncated)

    async def _until_lost(self) -> None:
        """Wait until the server has recorded that the claim has lost its instance. Raises ClaimLost."""
        clock = asyncio.get_running_loop().time
        until = clock() + FIND_AGAIN_SECONDS_MAX
        while clock() < until:
            await asyncio.sleep(AGAIN_SECONDS_FIRST)
            await self._lease.look()

    async def _start(self, path: str, stack: AsyncExitStack) -> WebSocket:
        return await stack.enter_async_context(self.backend.websocket(path, protocols=(channels.PROTOCOL,)))

    async def _repeatable(self, call: Callable[[], Awaitable[R]]) -> R:
        return await self._while_held(lambda: retry_while_away(call, self._lease.check))

    async def _while_held(self, call: Callable[[], Awaitable[R]]) -> R:
        """Send a request about the instance. Raises ClaimLost if it is refused because the claim is over."""
        clock = asyncio.get_running_loop().time
        until, pause = clock() + FIND_AGAIN_SECONDS_MAX, AGAIN_SECONDS_FIRST
        while True:
            try:
                return await call()
            except ApiError as error:
                if error.code not in OVER or (error.details or {}).get("kind") == "files":
                    raise
                await self._lease.look()
                # Still held: the refusal is final, or the server has not found the instance yet.
                if error.code in (401, 403) or clock() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, AGAIN_SECONDS_MAX)


def _words(command: str | Sequence[str], env: Mapping[str, str], cwd: str) -> list[str]:
    words = [SHELL, "-c", command] if isinstance(command, str) else list(command)
    if not words or not words[0]:
        raise ValueError("command: say what to run")
    if any("\0" in word for word in (*words, *env.values(), cwd)):
        raise ValueError("command: no word of it, variable or folder has a zero byte")
    for name in env:
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"env: {name!r} is no name of a variable: letters, digits and _ make one")
    if not env and not cwd:
        return words
    given = [f"{name}={value}" for name, value in env.items()]
    return [SHELL, "-c", PREPARED, SHELL, str(len(given)), *given, cwd, *words]


async def _pieces(stdin: Input) -> AsyncIterator[bytes]:
    if isinstance(stdin, str):
        yield stdin.encode()
    elif isinstance(stdin, bytes):
        yield stdin
    else:
        async for piece in stdin:
            yield piece
