"""To keep others from starting anything, by what the server has to do for a tenant."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.api import Function, ObjectMeta
from rota.api.function import FunctionSpec, Source
from rota.client import Key
from rota.control.functions.preparing import UNPACKED_AT_ONCE_MAX, CodePreparer, needs_of
from rota.engine.clock import RealClock
from rota.runtime.code import CodeCache

SECONDS_MAX = 30.0


class Unpacked:
    """Stands for code whose unpacking takes as long as a test wants."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.lock = threading.Lock()
        self.under_way = self.most = 0
        self.done: list[str] = []

    def unpack(self, cache: CodeCache, digest: str) -> None:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        if digest.endswith("e"):
            assert self.may_end.wait(SECONDS_MAX)
        with self.lock:
            self.under_way -= 1
            self.done.append(digest)


@pytest.fixture
async def unpacked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Unpacked]:
    made = Unpacked()
    monkeypatch.setattr(CodeCache, "unpack", lambda cache, digest: made.unpack(cache, digest))
    yield made
    made.may_end.set()


@pytest.fixture
async def preparing(tmp_path: Path, unpacked: Unpacked) -> AsyncIterator[CodePreparer]:
    made = CodePreparer(tmp_path, RealClock())
    yield made
    unpacked.may_end.set()
    await made.close()


def begin(preparing: CodePreparer, namespace: str, name: str, digest: str) -> asyncio.Event:
    function = Function(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=FunctionSpec(source=Source(digest=digest), entrypoint="main:handler"),
    )
    over = asyncio.Event()
    preparing.start(Key(namespace, name), function, needs_of(function), over.set)
    return over


async def test_to_have_the_code_of_many_functions_unpacked_while_others_want_to_start(
    preparing: CodePreparer, unpacked: Unpacked
) -> None:
    theirs = [begin(preparing, "evil", f"f{n}", f"sha256:{n:063}e") for n in range(40)]
    async with asyncio.timeout(SECONDS_MAX):
        # Of another tenant, and whatever else the server does in threads.
        await begin(preparing, "good", "f", f"sha256:{0:063}a").wait()
        await asyncio.gather(*(asyncio.to_thread(int) for _ in range(40)))
        assert unpacked.done == [f"sha256:{0:063}a"] and unpacked.under_way == 1
        unpacked.may_end.set()
        for one in theirs:
            await one.wait()
    assert len(unpacked.done) == 41 and unpacked.most <= UNPACKED_AT_ONCE_MAX


async def test_to_have_more_than_one_turn_by_changing_the_code_all_the_time(
    preparing: CodePreparer, unpacked: Unpacked
) -> None:
    for n in range(10):
        begin(preparing, "evil", "f", f"sha256:{n:063}e")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    last = begin(preparing, "evil", "f", f"sha256:{99:063}e")
    async with asyncio.timeout(SECONDS_MAX):
        await begin(preparing, "good", "f", f"sha256:{0:063}a").wait()
        assert unpacked.most <= UNPACKED_AT_ONCE_MAX and unpacked.under_way == 1
        unpacked.may_end.set()
        await last.wait()
    assert unpacked.done[-1] == f"sha256:{99:063}e"
