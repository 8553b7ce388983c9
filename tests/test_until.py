"""Waiting for what there is no news of: it ends with what was found, or says what is there instead."""

from __future__ import annotations

import asyncio

import pytest

from tests.until import until, until_async, until_so

A_MOMENT_SECONDS = 0.01


def test_what_is_found_is_returned_once_it_is_there() -> None:
    looks = iter([None, "", "there"])
    assert until(lambda: next(looks), poll_seconds=0) == "there"


@pytest.mark.parametrize("otherwise", ["two of three", lambda: "two of three"])
def test_what_does_not_come_to_be_so_fails_with_what_is_there(otherwise: object) -> None:
    with pytest.raises(AssertionError, match=r"^not so after 0\.01 s: two of three$"):
        until(lambda: False, otherwise, seconds=A_MOMENT_SECONDS, poll_seconds=0)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"^not so after 0\.01 s$"):
        until(lambda: False, seconds=A_MOMENT_SECONDS, poll_seconds=0)


async def test_in_an_event_loop_both_may_be_coroutine_functions() -> None:
    looks = iter([None, "there"])

    async def look() -> str | None:
        return next(looks)

    async def nothing() -> None:
        return None

    async def said() -> str:
        return "two of three"

    assert await until_async(look) == "there"
    with pytest.raises(AssertionError, match="two of three"):
        await until_async(nothing, said, seconds=A_MOMENT_SECONDS)


async def test_what_is_looked_for_is_returned_or_what_was_found_last_is_said() -> None:
    looks = iter([1, 2, 3])

    async def look() -> int:
        return next(looks, 3)

    assert await until_so(look, lambda found: found == 2, "two", poll_seconds=0) == 2
    with pytest.raises(AssertionError, match=r"^not so after 0\.01 s: four: 3$"):
        await until_so(look, lambda found: found == 4, "four", seconds=A_MOMENT_SECONDS, poll_seconds=0)


async def test_a_look_that_hangs_is_cancelled_when_patience_ends() -> None:
    with pytest.raises(AssertionError, match="it hangs"):
        await until_async(asyncio.Event().wait, "it hangs", seconds=A_MOMENT_SECONDS)


async def test_a_timeout_of_the_look_itself_is_not_taken_for_the_end_of_patience() -> None:
    async def look() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await until_async(look)
