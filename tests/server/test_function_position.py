"""The position of a reader in the logs of a function, sent as changes."""

from __future__ import annotations

import pytest

from rota.client import frames
from rota.registry import ApiError
from rota.server.function_position import MARGIN_SECONDS, OVER_MAX, Position, Progress, position_in


def received(progress: Progress, position: frames.Position) -> Position:
    position.take(progress.take())
    found = position_in(position.text)
    assert found is not None
    return found


def test_changes_come_to_what_was_reached() -> None:
    progress, position = Progress("e", lambda key: False), frames.Position()
    progress.know(3, 100.0)
    progress.reach("a@1", 5)
    assert received(progress, position) == Position("e", 3, 100.0, {"a@1": 5})
    progress.know(4, 101.0)
    progress.reach("a@1", 9)
    progress.reach("-w", "1-2-00000003")
    assert received(progress, position) == Position("e", 4, 101.0, {"a@1": 9, "-w": "1-2-00000003"})
    progress.drop("-w")
    assert received(progress, position).logs == {"a@1": 9}
    assert progress.take() == {}


def test_a_log_that_is_over_is_remembered_while_calls_that_began_with_it_may_come() -> None:
    progress, position = Progress("e", lambda key: False), frames.Position()
    progress.know(1, 100.0)
    progress.reach("a@1", 5)
    progress.leave("a@1", 100.0)
    assert received(progress, position).logs == {"a@1": 5}
    progress.know(2, 100.0 + MARGIN_SECONDS)
    assert received(progress, position).logs == {"a@1": 5}
    progress.know(3, 100.1 + MARGIN_SECONDS)
    assert received(progress, position).logs == {}


def test_a_log_that_may_be_written_to_again_is_remembered_until_it_cannot() -> None:
    again = {"a@1"}
    progress, position = Progress("e", lambda key: key in again), frames.Position()
    progress.reach("a@1", 5)
    progress.leave("a@1", 100.0)
    progress.know(1, 1000.0)
    assert received(progress, position).logs == {"a@1": 5}
    again.clear()
    progress.know(2, 1001.0)
    assert received(progress, position).logs == {}


def test_no_more_is_remembered_than_fits_into_a_request() -> None:
    progress, position = Progress("e", lambda key: True), frames.Position()
    for number in range(3 * OVER_MAX):
        progress.know(number, 100.0)
        progress.reach(f"a{number}@1", 1)
        progress.leave(f"a{number}@1", 100.0 + number / 1000)
        position.take(progress.take())
    found = position_in(position.text)
    assert found is not None and [*found.logs] == [f"a{number}@1" for number in range(2 * OVER_MAX, 3 * OVER_MAX)]


@pytest.mark.parametrize("text", ["x", "1", "[]", '{"seen":"x"}', '{"a@1":{}}', '{"after":null}'])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="from: "):
        position_in(text)
