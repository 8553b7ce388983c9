"""The host's copies of repositories: what they give, when they are refreshed, what they refuse."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from rota.runtime.workspace import Mirror, Source, WorkspaceError, WorkspaceLimits
from rota.runtime.workspace.mirror import REFRESHED
from tests.workspace.conftest import Repo, Server


def aged(mirror: Mirror, source: Source, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(mirror.place(source) / REFRESHED, (then, then))


async def refused(mirror: Mirror, source: Source, ref: str | None = None) -> WorkspaceError:
    with pytest.raises(WorkspaceError) as caught:
        await mirror.resolve(source, ref)
    return caught.value


async def test_a_branch_a_tag_and_a_commit_are_found(mirror: Mirror, repo: Repo) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.git("tag", "-a", "v1", "-m", "one")
    repo.git("branch", "topic/x")
    second = repo.commit("other")
    source = Source(repo.url)
    assert await mirror.resolve(source, "trunk") == (second, "trunk")
    assert await mirror.resolve(source, "topic/x") == (first, "topic/x")
    assert await mirror.resolve(source, "v1") == (first, None)
    assert await mirror.resolve(source, first) == (first, None)
    assert await mirror.resolve(source, first[:10]) == (first, None)


async def test_without_a_ref_it_is_the_default_branch(mirror: Mirror, repo: Repo) -> None:
    assert await mirror.resolve(Source(repo.url), None) == (repo.git("rev-parse", "HEAD"), "trunk")


async def test_a_ref_that_is_neither_branch_nor_tag_is_fetched_when_asked_for(mirror: Mirror, repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach")
    pulled = repo.commit("pulled")
    repo.git("update-ref", "refs/pull/7/head", pulled)
    repo.git("checkout", "-q", "trunk")
    assert await mirror.resolve(Source(repo.url), "refs/pull/7/head") == (pulled, None)
    assert await mirror.resolve(Source(repo.url, "other"), pulled) == (pulled, None)


async def test_a_ref_that_is_not_there_is_told(mirror: Mirror, repo: Repo) -> None:
    assert (await refused(mirror, Source(repo.url), "absent")).reason == "RefNotFound"
    assert (await refused(mirror, Source(repo.url), "1" * 40)).reason == "RefNotFound"


@pytest.mark.parametrize(
    "ref",
    [
        "-f",
        "--upload-pack=touch x",
        "a..b",
        "a b",
        "HEAD~1",
        "HEAD^{/x}",
        "@{-1}",
        "x:y",
        "a//b",
        "x.lock",
        "a\nb",
        "/x",
    ],
)
async def test_what_is_no_name_of_a_ref_is_refused(mirror: Mirror, repo: Repo, ref: str) -> None:
    assert (await refused(mirror, Source(repo.url), ref)).reason == "InvalidWorkspace"


@pytest.mark.parametrize(
    "url",
    ["ext::sh -c touch% x", "http://127.0.0.1/x", "git://127.0.0.1/x", "/etc", "-x", "fd::17", "ssh://-oProxyCommand=x/y",
     "ssh://git@-oProxyCommand=x/y", "ssh://git:password@host/x", "https://host/a b"],
)  # fmt: skip
async def test_an_address_of_another_kind_is_refused(mirror: Mirror, url: str) -> None:
    assert (await refused(mirror, Source(url))).reason == "InvalidWorkspace"


async def test_a_repository_that_is_not_there_is_told(mirror: Mirror, tmp_path: Path) -> None:
    assert (await refused(mirror, Source(f"file://{tmp_path}/absent"))).reason == "RepositoryNotFound"


async def test_many_that_want_it_at_once_make_one_fetch(repo: Repo, server: Server, tmp_path: Path) -> None:
    mirrors = [Mirror(tmp_path / "home") for _ in range(2)]
    source = Source(f"{server.url}/repo/.git", secret=server.secret())
    found = await asyncio.gather(*(mirror.resolve(source, "trunk") for mirror in mirrors for _ in range(4)))
    assert len(set(found)) == 1
    assert len([path for path in server.requests if path.endswith("service=git-upload-pack")]) == 2


async def test_a_fresh_mirror_is_used_as_it_is(mirror: Mirror, repo: Repo) -> None:
    old = await mirror.resolve(Source(repo.url), "trunk")
    repo.commit("later")
    assert await mirror.resolve(Source(repo.url), "trunk") == old


async def test_a_stale_mirror_is_used_and_refreshed_behind(mirror: Mirror, repo: Repo) -> None:
    source = Source(repo.url)
    old = await mirror.resolve(source, "trunk")
    new = repo.commit("later")
    aged(mirror, source, mirror.limits.fresh_seconds + 1)
    assert await mirror.resolve(source, "trunk") == old
    await asyncio.gather(*mirror._refreshing.values())
    assert (await mirror.resolve(source, "trunk")).commit == new


async def test_a_mirror_that_is_too_old_is_refreshed_first(mirror: Mirror, repo: Repo) -> None:
    source = Source(repo.url)
    await mirror.resolve(source, "trunk")
    new = repo.commit("later")
    aged(mirror, source, mirror.limits.stale_seconds + 1)
    assert (await mirror.resolve(source, "trunk")).commit == new


async def test_a_ref_that_a_fresh_mirror_lacks_is_looked_for(mirror: Mirror, repo: Repo) -> None:
    await mirror.resolve(Source(repo.url), "trunk")
    repo.git("branch", "new")
    assert (await mirror.resolve(Source(repo.url), "new")).branch == "new"


async def test_a_branch_that_was_rewritten_or_removed_is_so_in_the_mirror(mirror: Mirror, repo: Repo) -> None:
    repo.git("branch", "gone")
    await mirror.resolve(Source(repo.url), "gone")
    repo.git("branch", "-D", "gone")
    repo.git("commit", "-q", "--amend", "-m", "rewritten")
    await mirror.refresh(Source(repo.url))
    assert (await mirror.resolve(Source(repo.url), "trunk")).commit == repo.git("rev-parse", "HEAD")
    assert (await refused(mirror, Source(repo.url), "gone")).reason == "RefNotFound"


async def test_while_its_origin_is_away_the_old_one_is_used(mirror: Mirror, repo: Repo, server: Server) -> None:
    source = Source(f"{server.url}/repo/.git", secret=server.secret())
    old = await mirror.resolve(source, "trunk")
    server.close()
    aged(mirror, source, mirror.limits.stale_seconds + 1)
    assert await mirror.resolve(source, "trunk") == old
    assert (await refused(mirror, source, "unknown")).reason == "RepositoryUnavailable"


async def test_what_is_too_large_is_not_fetched_and_leaves_nothing(repo: Repo, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "home", WorkspaceLimits(fetch_bytes_max=100_000))
    repo.commit("large", os.urandom(1_000_000))
    assert (await refused(mirror, Source(repo.url))).reason == "TooLarge"
    left = sum(path.stat().st_size for path in mirror.folder.rglob("*") if path.is_file())
    assert left < 100_000


async def test_an_origin_that_says_nothing_is_given_up(repo: Repo, server: Server, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "home", WorkspaceLimits(fetch_seconds_max=0.5))
    server.password = "silence"
    assert (await refused(mirror, Source(f"{server.url}/repo/.git", secret=server.secret()))).reason == "TimedOut"
    assert git_processes(mirror) == []


async def test_a_fetch_ends_when_its_caller_gives_up(mirror: Mirror, repo: Repo, server: Server) -> None:
    server.password = "silence"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await mirror.resolve(Source(f"{server.url}/repo/.git", secret=server.secret()), None)
    assert git_processes(mirror) == []
    server.password = ""
    server.silent.set()
    assert await mirror.resolve(Source(f"{server.url}/repo/.git", secret=server.secret()), None)


def git_processes(mirror: Mirror) -> list[bytes]:
    """Processes that have the mirror's settings, which none of this test's own have."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        if os.fsencode(mirror.folder) in environment:
            found.append(environment)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which takes root")
async def test_a_repository_of_another_user_is_read(mirror: Mirror, repo: Repo) -> None:
    for path in (repo.path, *repo.path.rglob("*")):
        os.chown(path, 54321, 54321)
    assert (await mirror.resolve(Source(repo.url), None)).branch == "trunk"


async def test_no_program_that_a_repository_names_is_run(mirror: Mirror, repo: Repo, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0" >> {ran}\n')
    program.chmod(0o755)
    for setting in ("core.fsmonitor", "core.sshCommand", "uploadpack.packObjectsHook", "core.alternateRefsCommand",
                    "core.gitProxy", "credential.helper", "core.askPass", "core.pager", "diff.external"):  # fmt: skip
        repo.git("config", setting, str(program))
    included = tmp_path / "included"
    included.write_text(f"[core]\n\thooksPath = {tmp_path}\n")
    repo.git("config", "include.path", str(included))
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (repo.path / ".git" / "hooks" / hook).parent.mkdir(exist_ok=True)
        (repo.path / ".git" / "hooks" / hook).symlink_to(program)
    ran.unlink(missing_ok=True)
    await mirror.resolve(Source(repo.url), None)
    assert not ran.exists()


async def test_many_small_packs_are_made_into_one(mirror: Mirror, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.runtime.workspace.mirror.PACKS_MAX", 2)
    for number in range(4):
        repo.commit(f"file-{number}")
        await mirror.refresh(Source(repo.url))
    assert len(list(mirror.place(Source(repo.url)).glob("objects/pack/*.pack"))) <= 2
    assert (await mirror.resolve(Source(repo.url), "trunk")).commit == repo.git("rev-parse", "HEAD")


async def test_a_mirror_that_was_damaged_is_made_anew(mirror: Mirror, repo: Repo) -> None:
    source = Source(repo.url)
    await mirror.resolve(source, None)
    (mirror.place(source) / "config").write_text("[core\n")
    assert (await mirror.resolve(source, None)).branch == "trunk"


async def test_a_mirror_from_the_future_is_not_fresh(mirror: Mirror, repo: Repo) -> None:
    source = Source(repo.url)
    await mirror.resolve(source, None)
    aged(mirror, source, -86_400)
    new = repo.commit("later")
    assert (await mirror.resolve(source, None)).commit == new


async def test_a_first_fetch_that_was_cut_short_is_begun_anew(mirror: Mirror, repo: Repo) -> None:
    place = mirror.place(Source(repo.url))
    (place / "objects").mkdir(parents=True)
    (place / "config").write_text("[core\n")
    assert (await mirror.resolve(Source(repo.url), None)).branch == "trunk"
