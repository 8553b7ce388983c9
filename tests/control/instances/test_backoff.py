"""When what has ended is started again."""

from __future__ import annotations

import pytest

from rota.control.instances import crashes_in_a_row, restart_delay, restarts

NOW = 1000.0


@pytest.mark.parametrize(
    ("crashes", "seconds"), [(0, 0), (1, 0), (2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (10_000, 300)]
)
def test_the_first_restart_is_at_once_and_the_others_wait_longer_and_longer(crashes: int, seconds: float) -> None:
    assert restart_delay(crashes, NOW, NOW) == seconds


def test_the_wait_is_counted_from_the_end() -> None:
    assert restart_delay(3, NOW - 5, NOW) == 15
    assert restart_delay(3, NOW - 500, NOW) == 0


def test_a_clock_that_was_set_back_does_not_prolong_the_wait() -> None:
    assert restart_delay(3, NOW + 5000, NOW) == 20


def test_ten_minutes_up_make_a_fresh_start() -> None:
    short, long = (0.0, 1.0), (0.0, 600.0)
    assert crashes_in_a_row([short, short, short]) == 3
    assert crashes_in_a_row([short, short, long]) == 0
    assert crashes_in_a_row([short, short, long, short]) == 1
    assert crashes_in_a_row([]) == 0


@pytest.mark.parametrize(
    ("policy", "failed", "again"),
    [
        ("Always", True, True),
        ("Always", False, True),
        ("OnFailure", True, True),
        ("OnFailure", False, False),
        ("Never", True, False),
        ("Never", False, False),
    ],
)
def test_the_policy_decides_whether_it_is_started_again(policy: str, failed: bool, again: bool) -> None:
    assert restarts(policy, failed=failed) is again  # type: ignore[arg-type]
