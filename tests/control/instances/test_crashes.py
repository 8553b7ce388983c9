"""The condition of a crashing instance."""

from __future__ import annotations

import pytest

from rota.api.instance import LastExit
from rota.control.instances.lifecycle import LINE_LENGTH_MAX, LINES_MAX, crash_condition, exit_text

STARTS = 1_700_000_000.9


def test_a_crash_is_told_with_its_end_its_next_start_and_the_last_lines() -> None:
    said = crash_condition(LastExit(code=3), 4, STARTS, ["one", "", "two\n"])
    assert (said.type, said.status, said.reason) == ("Available", "False", "InstanceCrashing")
    assert said.message == (
        "it exited with code 3, 4 times in a row; it is started again at 2023-11-14T22:13:20Z\none\ntwo"
    )


def test_the_output_is_bounded() -> None:
    said = crash_condition(LastExit(code=3), 1, STARTS, ["x" * 1000] * 1000)
    first, *lines = said.message.split("\n")
    assert ", once;" in first
    assert len(lines) == LINES_MAX and all(len(line) == LINE_LENGTH_MAX for line in lines)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (LastExit(code=0), "exited with code 0"),
        (LastExit(signal=9, reason="OutOfMemory"), "was ended by signal 9 (OutOfMemory)"),
        (LastExit(), "ended"),
    ],
)
def test_an_end_is_told_as_it_was(last: LastExit, told: str) -> None:
    assert exit_text(last) == told
