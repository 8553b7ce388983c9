"""A fleet under faults that are drawn: what is wanted runs in the end, and nothing runs twice or beyond its budget.

A seed that fails tells its story, and fails again: `ROTA_FLEET_SEED=17 pytest tests/control/cells/test_storm.py`.
"""

from __future__ import annotations

import logging
import os

import pytest

from tests.amount import LONG
from tests.control.cells.storm import Storm

SEEDS = int(os.environ.get("ROTA_FLEET_SEEDS", "1000" if LONG else "10"))
STEPS = 30
ONE = os.environ.get("ROTA_FLEET_SEED")


@pytest.mark.parametrize("seed", [int(ONE)] if ONE else range(SEEDS))
def test_in_the_end_it_is_as_it_should_be(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    Storm(seed, STEPS).run()


def test_a_seed_is_the_same_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    one, two = Storm(7, 10), Storm(7, 10)
    for each in (one, two):
        each.run()
    assert one.story == two.story
