"""To keep everybody's workers of a repository from starting by the name of a branch, which whoever pushes chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.api.pool import WorkspaceSpec
from rota.runtime.workspace import Mirror, prepare
from tests.workspace.conftest import Repo, no_setup

NAMES = ["a\u2028b", "n\u0085l", 'q"x', "x]y", "a;b`id`$(id)", "$IFS", "x=y", "a#b", "{a,b}", "é", "'"]
"""Git takes them all. Some have what separates lines in other alphabets, or what ends a text in its settings."""


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "home")


@pytest.mark.parametrize("ref", [None, *NAMES])
@pytest.mark.parametrize("depth", [None, 1])
async def test_to_stop_all_workers_of_a_repository_by_the_name_of_a_branch(
    mirror: Mirror, tmp_path: Path, ref: str | None, depth: int | None
) -> None:
    repo, storage = Repo(tmp_path / "repo"), tmp_path / "storage"
    repo.commit()
    for name in NAMES:
        repo.git("branch", name)
    made = await prepare(mirror, WorkspaceSpec(repo=repo.url, ref=ref, depth=depth), storage, no_setup)
    assert made.branch == (ref or "trunk")
    packed = storage / "repo" / ".git" / "packed-refs"
    if depth is None:
        assert all(f" refs/remotes/origin/{name}\n" in packed.read_text(encoding="utf-8") for name in NAMES)
    await mirror.close()
