"""A fleet of three cells in two cities."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.testing.fleet import Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet({"dfw-1": "dfw", "dfw-2": "dfw", "lhr-1": "lhr"}) as made:
        made.go(1)
        yield made
