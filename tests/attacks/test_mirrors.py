"""By repositories, of which the server keeps mirrors."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota import Client
from rota.api.pool import WorkspaceSpec
from rota.engine import StoreObjects
from rota.runtime.space import Space
from rota.runtime.workspace import Finished, Mirror, Source, WorkspaceError, WorkspaceLimits, mirrors, prepare
from rota.runtime.workspace.mirror import place_name
from rota.server.collectors import MirrorCollector
from tests.conformance.planes import LocalPlane, memory
from tests.server.conftest import served
from tests.until import until_async
from tests.workspace.conftest import Repo

MIB = 1024 * 1024


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "repo")
    made.commit()
    return made


@pytest.fixture
async def mirror(tmp_path: Path) -> AsyncIterator[Mirror]:
    made = Mirror(tmp_path / "home", WorkspaceLimits(fresh_seconds=0, stale_seconds=0, mirror_bytes_max=3 * MIB))
    yield made
    await made.close()


def aged(mirror: Mirror, source: Source, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(mirror.place(source), (then, then))


async def test_to_keep_space_by_mirrors_that_nothing_refers_to(mirror: Mirror, repo: Repo, tmp_path: Path) -> None:
    home, old, new, other = tmp_path / "home", Source(repo.url, "a/"), Source(repo.url, "b/"), Source(repo.url, "c/")
    for source in (old, new, other):
        await mirror.resolve(source, None)
    for source in (old, other):
        aged(mirror, source, mirrors.UNUSED_SECONDS_MIN + 1)
    referred = {place_name(other): "c"}
    assert mirrors.collect(home, referred) == [place_name(old)]
    left = {path.name for path in (home / "mirrors").iterdir() if path.name != "git"}
    assert left == {place_name(one).replace(".git", end) for one in (new, other) for end in (".git", ".lock")}
    # What is asked for again is fetched again.
    assert (await mirror.resolve(old, None)).branch == "trunk"


async def test_to_have_more_mirrors_than_a_namespace_may(
    mirror: Mirror, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit("large", os.urandom(MIB))
    sources = [Source(repo.url, f"{namespace}/secret-{number}") for namespace in "ab" for number in range(2)]
    for number, source in enumerate(sources):
        await mirror.resolve(source, None)
        aged(mirror, source, 100 - number)
    referred = {place_name(one): one.scope[0] for one in sources}
    monkeypatch.setattr(mirrors, "NAMESPACE_BYTES_MAX", 5 * MIB // 2)
    assert mirrors.collect(tmp_path / "home", referred) == []
    referred[place_name(sources[2])] = "a"
    assert mirrors.collect(tmp_path / "home", referred) == [place_name(sources[0])]
    # A disk that is short has no room for what can be fetched again.
    for source in sources[1:3]:
        aged(mirror, source, mirrors.UNUSED_SECONDS_MIN + 1)
    gone = mirrors.collect(tmp_path / "home", referred, is_short=True)
    assert set(gone) == {place_name(source) for source in sources[1:3]}


async def test_to_make_a_mirror_grow_without_end(mirror: Mirror, repo: Repo) -> None:
    source = Source(repo.url, "a/")
    for _ in range(2):
        repo.commit("large", os.urandom(MIB))
        await mirror.resolve(source, None)
    # Each is small enough, and all together are not.
    repo.commit("large", os.urandom(MIB))
    with pytest.raises(WorkspaceError, match="is larger than") as raised:
        await mirror.resolve(source, None)
    assert raised.value.reason == "TooLarge" and not mirror.place(source).exists()
    # One of which most was given up is smaller the next time.
    repo.git("checkout", "-q", "--orphan", "small")
    repo.git("branch", "-q", "-D", "trunk")
    repo.commit("large", b"small")
    assert (await mirror.resolve(source, "small")).branch == "small"


async def test_to_fetch_onto_a_disk_that_is_short(mirror: Mirror, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.runtime.space.space_of", lambda path: Space(1000 * MIB, MIB))
    monkeypatch.setattr("rota.runtime.workspace.mirror.WATCH_SECONDS", 0.0)
    with pytest.raises(WorkspaceError, match="short of space"):
        await mirror.resolve(Source(repo.url), None)


def kept(home: Path, name: str) -> Path:
    """A mirror that nobody asked for in years."""
    place = home / "mirrors" / name
    place.mkdir(parents=True)
    os.utime(place, (0, 0))
    return place


UNREADABLE = ("https://[:::]/x", "https://[1]/x", "https://u[:p@h/x", "https://℀@h/x", "ssh://u:p@h/x")
"""Addresses that a Workspace may have and that nobody can read."""


@pytest.mark.parametrize("url", UNREADABLE)
async def test_to_have_nobodys_mirrors_removed_by_an_address_that_cannot_be_read(tmp_path: Path, url: str) -> None:
    others = kept(tmp_path, place_name(Source("https://example.org/some.git", "other/")))
    async with memory(tmp_path) as plane:
        assert isinstance(plane, LocalPlane)
        made = {"apiVersion": "rota.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "some"}}
        await Client(plane.backend).create({**made, "spec": {"repo": url}})
        assert await MirrorCollector(tmp_path, StoreObjects(plane.registry), lambda: False).collect() == [others.name]


@pytest.mark.parametrize("url", UNREADABLE)
async def test_to_end_a_runner_by_an_address_that_cannot_be_read(mirror: Mirror, url: str) -> None:
    for asked in (mirror.resolve(Source(url), None), mirror.current(Source(url), None, since=0)):
        with pytest.raises(WorkspaceError) as raised:
            await asked
        assert raised.value.reason == "InvalidWorkspace" and url not in str(raised.value)


@pytest.mark.parametrize("kind", ["heads", "tags"])
async def test_to_stand_for_a_commit_by_a_branch_or_tag_of_its_name(mirror: Mirror, repo: Repo, kind: str) -> None:
    wanted = repo.git("rev-parse", "HEAD")
    repo.git("update-ref", f"refs/{kind}/{wanted}", repo.commit("other"))
    assert await mirror.resolve(Source(repo.url), wanted) == (wanted, None)


async def test_to_end_a_runner_by_a_tree_that_is_too_deep(mirror: Mirror, repo: Repo, tmp_path: Path) -> None:
    blob = repo.git("hash-object", "-w", "--stdin", stdin="content")
    folders = "d/" * (mirror.limits.tree_depth_max + 1)
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{folders}file")
    repo.git("commit", "-q", "-m", "deep")

    async def no_setup(argv: object, tree: Path) -> Finished:
        raise AssertionError

    with pytest.raises(WorkspaceError, match="folders deep") as raised:
        await prepare(mirror, WorkspaceSpec(repo=repo.url), tmp_path / "storage", no_setup)
    assert raised.value.reason == "TooLarge"


async def test_to_have_a_mirror_outlive_its_workspace(tmp_path: Path) -> None:
    url = "https://example.org/some.git"
    own, others = (kept(tmp_path, place_name(Source(url, f"{namespace}/login"))) for namespace in ("default", "other"))
    async with memory(tmp_path) as plane:
        assert isinstance(plane, LocalPlane)
        made = {"apiVersion": "rota.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "some"}}
        await Client(plane.backend).create({**made, "spec": {"repo": url, "secretRef": {"name": "login"}}})
        collecting = MirrorCollector(tmp_path, StoreObjects(plane.registry), lambda: False)
        assert await collecting.collect() == [others.name]
        assert own.exists()
    async with served(tmp_path / "home") as server:
        place = kept(server.home, others.name)
    # The next server begins by looking what nothing refers to.
    async with served(tmp_path / "home"):
        await until_async(lambda: not place.exists(), f"{place} is still there")
