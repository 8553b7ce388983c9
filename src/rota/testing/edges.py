"""Stand-ins of a plane in memory for what is outside of a server: the code cache, and the APIs of trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rota.api import Function, Instance
from rota.client import Key
from rota.control.functions.planning import Version
from rota.control.functions.preparing import Failure, Needs
from rota.control.spawners.apis import Api, Apis
from rota.testing.runtime import NOWHERE


class CodeInPlace:
    """The code and the packages of functions, which are where they are: nothing is unpacked or installed."""

    def is_there(self, needs: Needs) -> bool:
        return True

    def failure(self, key: Key, needs: Needs) -> Failure | None:
        return None

    def start(self, key: Key, function: Function, needs: Needs, done: Callable[[], None]) -> None:
        raise AssertionError("all code is there")

    def forget(self, key: Key) -> None:
        """Nothing is known of it."""

    def collects_now(self) -> bool:
        return False

    async def collect(
        self, functions: Sequence[Function], instances: Iterable[Instance], versions: Iterable[Version]
    ) -> None:
        """Nothing is kept that could go."""

    def packages_log(self, function: Function) -> Path | None:
        return None

    def load_log(self, function: Function) -> Path:
        return NOWHERE / function.metadata.uid

    async def keep_load_log(self, function: Function, said: str) -> None:
        """Nobody asks for it."""

    async def close(self) -> None:
        """Nothing is under way."""


class NoApis(Apis):
    """No API is dialled."""

    def find(self, url: str) -> Api | None:
        return None

    def refusal(self, url: str, of: str = "") -> str | None:
        return f"{url} is not asked by rota.testing: make the tasks of its items in the test"
