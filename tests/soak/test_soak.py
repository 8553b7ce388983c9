"""The short form of a soak: two minutes of everything, with the server killed, restarted and stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.amount import amount
from tests.soak.run import soak

SECONDS = amount(80, 600)
"""Beside them, it takes the time of six restarts. Longer: `make soak`."""


@pytest.mark.timeout(SECONDS + 900)
async def test_nothing_that_a_server_keeps_grows_under_load_that_comes_and_goes(tmp_path: Path) -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    report = await soak(tmp_path / "home", SECONDS)
    print(*report.table(), f"done {report.done}, failed {report.troubles}", sep="\n")
    assert not report.grown, "\n".join(map(str, report.grown))
    assert report.idle == [], f"a stream came to nothing: {report.done}, {report.troubles}"
    assert report.restarts == 6
