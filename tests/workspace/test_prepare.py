"""The files that a worker finds in its storage, and those that never get there."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rota.api.pool import Remote, WorkspaceFile, WorkspaceSpec
from rota.runtime.workspace import Finished, Mirror, WorkspaceError, WorkspaceLimits, prepare, prepared
from tests.workspace.conftest import ENVIRONMENT, Repo, everything, no_setup

UID = 0x70000123


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "instances" / "0" / "storage"


def spec(repo: Repo, **fields: Any) -> WorkspaceSpec:
    return WorkspaceSpec(repo=repo.url, **fields)


def git(storage: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=storage / "repo", env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def refused(mirror: Mirror, wanted: WorkspaceSpec, storage: Path) -> WorkspaceError:
    with pytest.raises(WorkspaceError) as caught:
        await prepare(mirror, wanted, storage, no_setup)
    return caught.value


async def test_the_tree_is_a_clone_on_its_branch(mirror: Mirror, repo: Repo, storage: Path) -> None:
    repo.git("tag", "v1")
    repo.git("branch", "other")
    head = repo.commit("deep/er/file", "text\n")
    made = await prepare(mirror, spec(repo, ref="trunk"), storage, no_setup)
    assert (made.commit, made.branch) == (head, "trunk")
    assert (storage / "repo" / "deep" / "er" / "file").read_text() == "text\n"
    assert git(storage, "status", "--porcelain", "--branch") == "## trunk...origin/trunk"
    assert git(storage, "branch", "-r", "--format=%(refname:short)").split() == ["origin/other", "origin/trunk"]
    assert git(storage, "tag") == "v1"
    assert git(storage, "fsck", "--full") == ""
    assert sorted(os.listdir(storage)) == ["home", "repo"]


async def test_a_tag_and_a_commit_are_detached(mirror: Mirror, repo: Repo, storage: Path) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.git("tag", "v1")
    repo.commit("later")
    for ref in ("v1", first):
        assert (await prepare(mirror, spec(repo, ref=ref), storage, no_setup)).commit == first
        assert git(storage, "rev-parse", "HEAD") == first
        assert git(storage, "branch", "--show-current") == ""


async def test_its_remotes_are_the_declared_ones_and_never_the_mirror(
    mirror: Mirror, repo: Repo, storage: Path
) -> None:
    remotes = [Remote(name="upstream", url="https://example.org/up.git")]
    await prepare(mirror, spec(repo, remotes=remotes), storage, no_setup)
    assert git(storage, "remote", "get-url", "origin") == repo.url
    assert git(storage, "remote", "get-url", "upstream") == "https://example.org/up.git"
    assert not [each for each in everything(storage) if os.fsencode(mirror.folder) in each]


async def test_it_can_be_fetched_from_its_origin(mirror: Mirror, repo: Repo, storage: Path) -> None:
    await prepare(mirror, spec(repo), storage, no_setup)
    new = repo.commit("later")
    git(storage, "fetch", "-q")
    assert git(storage, "rev-parse", "origin/trunk") == new


async def test_its_objects_are_its_own(mirror: Mirror, repo: Repo, storage: Path) -> None:
    await prepare(mirror, spec(repo), storage, no_setup)
    inodes = {path.stat().st_ino for path in mirror.folder.rglob("*") if path.is_file()}
    assert not inodes & {path.stat().st_ino for path in storage.rglob("*") if path.is_file()}
    assert not (storage / "repo" / ".git" / "objects" / "info" / "alternates").exists()


@pytest.mark.parametrize("ref", ["trunk", "v1"])
async def test_with_a_depth_there_is_only_that_much_history(
    mirror: Mirror, repo: Repo, storage: Path, ref: str
) -> None:
    for number in range(5):
        repo.commit(f"file-{number}")
    repo.git("tag", "v1")
    await prepare(mirror, spec(repo, ref=ref, depth=2), storage, no_setup)
    assert git(storage, "rev-list", "--count", "HEAD") == "2"
    assert git(storage, "status", "--porcelain") == ""
    assert not [each for each in everything(storage) if os.fsencode(mirror.folder) in each]


async def test_files_are_written_with_their_modes(mirror: Mirror, repo: Repo, storage: Path) -> None:
    repo.commit("tracked", "old")
    files = [
        WorkspaceFile(path="tracked", content="new"),
        WorkspaceFile(path="a/b/run", content="#!/bin/sh\n", mode="0755"),
        WorkspaceFile(path="secret", content="x", mode="600"),
        WorkspaceFile(path="odd\nname", content=""),
    ]
    await prepare(mirror, spec(repo, files=files), storage, no_setup)
    tree = storage / "repo"
    assert (tree / "tracked").read_text() == "new"
    modes = {name: stat.S_IMODE((tree / name).stat().st_mode) for name in ("tracked", "a/b/run", "secret", "odd\nname")}
    assert modes == {"tracked": 0o644, "a/b/run": 0o755, "secret": 0o600, "odd\nname": 0o644}


async def test_a_link_on_the_way_to_a_file_is_refused(
    mirror: Mirror, repo: Repo, storage: Path, tmp_path: Path
) -> None:
    (repo.path / "link").symlink_to(tmp_path)
    repo.commit("x")
    wanted = spec(repo, files=[WorkspaceFile(path="link/escaped", content="x")])
    assert (await refused(mirror, wanted, storage)).reason == "InvalidWorkspace"
    assert not (tmp_path / "escaped").exists()


async def test_a_link_at_the_place_of_a_file_is_replaced(
    mirror: Mirror, repo: Repo, storage: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (repo.path / "config").symlink_to(victim)
    repo.commit("x")
    await prepare(mirror, spec(repo, files=[WorkspaceFile(path="config", content="mine")]), storage, no_setup)
    assert victim.read_text() == "untouched"
    assert (storage / "repo" / "config").read_text() == "mine"
    assert not (storage / "repo" / "config").is_symlink()


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", ".git/hooks/post-checkout", ".GIT/config", "a/.git/config", "a//b", "./a"]
)
async def test_a_path_that_leaves_the_tree_is_refused(mirror: Mirror, repo: Repo, storage: Path, path: str) -> None:
    wanted = spec(repo)
    wanted.files.append(WorkspaceFile(path=path, content="x"))
    assert (await refused(mirror, wanted, storage)).reason == "InvalidWorkspace"


async def test_the_setup_command_is_run_in_the_tree_by_the_caller(mirror: Mirror, repo: Repo, storage: Path) -> None:
    seen = []

    async def run(argv: Sequence[str], cwd: Path) -> Finished:
        seen.append((list(argv), cwd, (cwd / "file").read_text(), (cwd / "given").read_text()))
        return Finished(0)

    wanted = spec(repo, setup=["make", "deps"], files=[WorkspaceFile(path="given", content="g")])
    await prepare(mirror, wanted, storage, run)
    assert seen == [(["make", "deps"], storage / "repo", "content\n", "g")]


async def test_a_setup_that_fails_is_told_with_what_it_said(
    mirror: Mirror, repo: Repo, storage: Path, tmp_path: Path
) -> None:
    async def run(argv: Sequence[str], cwd: Path) -> Finished:
        return Finished(3, "no rule to make target")

    record = tmp_path / "record"
    with pytest.raises(WorkspaceError, match="ended with 3: no rule to make target") as caught:
        await prepare(mirror, spec(repo, setup=["make"]), storage, run, record=record)
    assert caught.value.reason == "SetupFailed"
    assert prepared(record, spec(repo, setup=["make"])) is None


async def test_what_was_made_is_remembered_for_the_same_specification(
    mirror: Mirror, repo: Repo, storage: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    made = await prepare(mirror, spec(repo), storage, no_setup, record=record)
    assert prepared(record, spec(repo)) == made
    assert prepared(record, spec(repo, ref="trunk")) is None
    record.write_text("{")
    assert prepared(record, spec(repo)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which takes root")
async def test_all_of_it_belongs_to_the_instance(mirror: Mirror, repo: Repo, storage: Path) -> None:
    for _ in range(2):
        await prepare(mirror, spec(repo), storage, no_setup, uid=UID)
        assert {path.lstat().st_uid for path in (storage, *storage.rglob("*"))} == {UID}


async def test_a_tree_of_too_many_files_is_refused_before_it_is_made(repo: Repo, storage: Path, tmp_path: Path) -> None:
    """Ten levels of ten times the same folder: a few objects that would be ten billion files."""
    mirror = Mirror(tmp_path / "home", WorkspaceLimits(clone_seconds_max=60, tree_files_max=10_000))
    blob = repo.git("hash-object", "-w", "--stdin", stdin="boom")
    tree = repo.git("mktree", stdin="".join(f"100644 blob {blob}\tf{number}\n" for number in range(10)))
    for _ in range(9):
        tree = repo.git("mktree", stdin="".join(f"040000 tree {tree}\td{number}\n" for number in range(10)))
    repo.git("update-ref", "refs/heads/bomb", repo.git("commit-tree", tree, "-m", "bomb"))
    assert (await refused(mirror, spec(repo, ref="bomb"), storage)).reason == "TooLarge"
    assert list(storage.iterdir()) == []


async def test_a_tree_of_too_many_bytes_is_refused(repo: Repo, storage: Path, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "home", WorkspaceLimits(tree_bytes_max=1_000_000))
    repo.commit("zeros", b"\0" * 2_000_000)
    assert (await refused(mirror, spec(repo), storage)).reason == "TooLarge"


async def test_no_filter_hook_or_submodule_of_a_repository_is_followed(
    mirror: Mirror, repo: Repo, storage: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    repo.git("config", "filter.evil.smudge", f"touch {ran}; cat")
    (repo.path / ".gitattributes").write_text("* filter=evil\n")
    (repo.path / ".gitmodules").write_text(
        f'[submodule "s"]\n\tpath = s\n\turl = ext::touch {ran}\n\tupdate = !touch {ran}\n'
    )
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.git('rev-parse', 'HEAD')},s")
    repo.git("add", ".gitattributes", ".gitmodules")
    repo.git("commit", "-q", "-m", "traps")
    ran.unlink(missing_ok=True)
    await prepare(mirror, spec(repo), storage, no_setup)
    assert not ran.exists()
    assert list((storage / "repo" / "s").iterdir()) == []


async def test_settings_of_the_user_that_runs_rota_are_not_used(
    mirror: Mirror, repo: Repo, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "users-home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = me\n[core]\n\teol = crlf\n\tautocrlf = true\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home))
    await prepare(mirror, spec(repo), storage, no_setup)
    assert (storage / "repo" / "file").read_bytes() == b"content\n"


async def test_a_remote_that_would_be_an_option_is_refused(mirror: Mirror, repo: Repo, storage: Path) -> None:
    for name, url in (("-x", "https://h/x"), ("origin", "https://h/x"), ("a", "ext::sh"), ("a..b", "https://h/x")):
        wanted = spec(repo)
        wanted.remotes.append(Remote(name=name, url=url))
        assert (await refused(mirror, wanted, storage)).reason == "InvalidWorkspace"
