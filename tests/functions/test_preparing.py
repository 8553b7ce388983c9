"""Failures to prepare the code and packages of a function."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.api import Function, ObjectMeta
from rota.api.function import FunctionSpec, Source
from rota.client import Key
from rota.control.functions.preparing import CodePreparer, needs_of
from rota.engine.clock import RealClock
from rota.runtime.code import CodeCache, CodeRefused


async def test_what_nobody_foresaw_is_told_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(CodeCache, "put_inline", fail)
    source = Source(inline="def handler(event, context): ...")
    function = Function(metadata=ObjectMeta(name="f", namespace="default"), spec=FunctionSpec(source=source))
    preparing, key, ended = CodePreparer(tmp_path, RealClock()), Key("default", "f"), asyncio.Event()
    needs = needs_of(function)
    preparing.start(key, function, needs, ended.set)
    await ended.wait()
    failure = preparing.failure(key, needs)
    assert failure is not None and failure.due > failure.time
    assert (failure.reason, failure.message) == (
        "NotPrepared",
        "its code or packages cannot be prepared: nobody foresaw this",
    )


async def test_what_fails_again_and_again_is_tried_ever_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise CodeRefused("CodeDamaged", "no")

    monkeypatch.setattr(CodeCache, "put_inline", refuse)
    source = Source(inline="def handler(event, context): ...")
    function = Function(metadata=ObjectMeta(name="f", namespace="default"), spec=FunctionSpec(source=source))
    preparing, key = CodePreparer(tmp_path, RealClock()), Key("default", "f")
    needs = needs_of(function)
    pauses = []
    for _ in range(8):
        ended = asyncio.Event()
        preparing.start(key, function, needs, ended.set)
        await ended.wait()
        failure = preparing.failure(key, needs)
        assert failure is not None
        pauses.append(round(failure.due - failure.time))
    assert pauses == [30, 60, 120, 240, 480, 600, 600, 600]
