"""The round that every supported version of Python makes."""

from __future__ import annotations

from pathlib import Path

from tests.smoke import smoke


def test_server_function_pool_task_and_claim_work(tmp_path: Path) -> None:
    assert smoke(tmp_path) == ["server", "function", "pool", "task", "claim"]
