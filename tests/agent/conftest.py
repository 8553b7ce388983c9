"""The agents in C are built once, before any test forks."""

from __future__ import annotations

import pytest

from tests.agent import programs


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    for kind in programs.TARGETS:
        programs.built(kind)
