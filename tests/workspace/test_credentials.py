"""Signing in: with whom, and that what it takes is seen by nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.api.pool import Remote, WorkspaceSpec
from rota.runtime.workspace import Credentials, Mirror, Source, WorkspaceError, prepare
from tests.workspace.conftest import Repo, Server, everything, no_setup

PASSWORD = "pa$$ 'w\"ord%40;`touch x`"


def address(server: Server) -> str:
    return f"{server.url}/repo/.git"


async def test_with_user_and_password_it_is_let_in(mirror: Mirror, server: Server) -> None:
    server.password = f"me:{PASSWORD}"
    source = Source(address(server), secret=server.secret(username="me", password=PASSWORD))
    assert (await mirror.resolve(source, None)).branch == "trunk"


async def test_a_token_alone_will_do(mirror: Mirror, server: Server) -> None:
    server.password = "x-access-token:t0ken"
    assert await mirror.resolve(Source(address(server), secret=server.secret(token="t0ken")), None)


async def test_what_is_not_let_in_is_told_without_the_password(mirror: Mirror, server: Server) -> None:
    server.password = "me:right"
    for secret in (server.secret(), server.secret(username="me", password="wrong-one")):
        with pytest.raises(WorkspaceError) as caught:
            await mirror.resolve(Source(address(server), secret=secret), None)
        assert caught.value.reason == "AuthenticationFailed"
        assert "wrong-one" not in str(caught.value)


async def test_who_is_no_longer_let_in_does_not_get_the_old_one(mirror: Mirror, server: Server) -> None:
    source = Source(address(server), secret=server.secret(username="me", password="old"))
    await mirror.resolve(source, None)
    server.password = "me:new"
    os.utime(mirror.place(source) / "rota-refreshed", (0, 0))
    with pytest.raises(WorkspaceError, match="Authentication failed") as caught:
        await mirror.resolve(source, None)
    assert caught.value.reason == "AuthenticationFailed"


async def test_a_mirror_serves_only_the_scope_it_was_fetched_for(mirror: Mirror, server: Server) -> None:
    server.password = "me:secret"
    await mirror.resolve(Source(address(server), "team-a/git", server.secret(username="me", password="secret")), None)
    with pytest.raises(WorkspaceError):
        await mirror.resolve(Source(address(server), "team-b/", server.secret()), None)


async def test_a_new_password_in_the_same_scope_uses_the_same_mirror(mirror: Mirror, server: Server) -> None:
    old, new = (Source(address(server), "a/git", server.secret(token=token)) for token in ("1", "2"))
    assert mirror.place(old) == mirror.place(new)


async def test_a_password_is_in_no_argument_no_mirror_and_no_tree(
    mirror: Mirror, server: Server, tmp_path: Path
) -> None:
    server.password = "me:s3cret-value"
    secret = server.secret(username="me", password="s3cret-value")
    await prepare(mirror, WorkspaceSpec(repo=address(server)), tmp_path / "storage", no_setup,
                  source=Source(address(server), secret=secret))  # fmt: skip
    assert any(b"git-remote-https" in arguments for arguments in server.arguments_seen)
    assert not [arguments for arguments in server.arguments_seen if b"s3cret-value" in arguments]
    assert not [each for each in everything(mirror.folder) if b"s3cret-value" in each]
    assert not [each for each in everything(tmp_path / "storage") if b"s3cret-value" in each]


async def test_a_password_in_the_address_is_taken_out_of_it(mirror: Mirror, server: Server, tmp_path: Path) -> None:
    server.password = "me:s3cret value"
    url = address(server).replace("https://", "https://me:s3cret%20value@")
    spec = WorkspaceSpec(repo=url, remotes=[Remote(name="fork", url=url)])
    await prepare(mirror, spec, tmp_path / "storage", no_setup, source=Source(url, secret=server.secret()))
    for folder in (mirror.folder, tmp_path / "storage"):
        assert not [each for each in everything(folder) if b"s3cret" in each]
    assert not [arguments for arguments in server.arguments_seen if b"s3cret" in arguments]
    assert mirror.place(Source(url)) != mirror.place(Source(address(server)))


async def test_credentials_are_not_given_to_a_host_that_one_is_sent_to(
    mirror: Mirror, make_server: Callable[[], Server]
) -> None:
    server, other = make_server(), make_server()
    server.elsewhere = other.url
    other.password = "me:s3cret"
    authorities = server.authority + other.authority
    secret = {"ca.crt": authorities, "username": "me", "password": "s3cret"}
    with pytest.raises(WorkspaceError):
        await mirror.resolve(Source(address(server), secret=secret), None)
    assert other.requests
    assert set(other.authorizations) == {None}


async def test_a_certificate_of_an_unknown_authority_is_refused(mirror: Mirror, server: Server) -> None:
    with pytest.raises(WorkspaceError, match="certificate"):
        await mirror.resolve(Source(address(server)), None)
    assert server.requests == []


@pytest.mark.parametrize("key", ["username", "password", "token"])
def test_a_value_of_several_lines_is_refused(key: str) -> None:
    with pytest.raises(WorkspaceError, match="single line"):
        Credentials.from_secret({key: "x\nhost=elsewhere", "password": "y"} if key == "username" else {key: "x\ny"})


async def test_nobody_is_asked_at_a_terminal(mirror: Mirror, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_ASKPASS", "/bin/echo")
    server.password = "me:/bin/echo"
    with pytest.raises(WorkspaceError):
        await mirror.resolve(Source(address(server), secret=server.secret()), None)
    assert set(server.authorizations) == {None}


async def test_an_ssh_key_is_in_a_file_for_as_long_as_it_is_needed(repo: Repo, tmp_path: Path) -> None:
    """With a program in place of ssh that notes how it is called, and serves the repository itself."""
    stand_in, notes = tmp_path / "ssh", tmp_path / "notes"
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" >> {notes}\n'
        'for word; do case "$word" in IdentityFile=*) key="${word#IdentityFile=}";; esac; last="$word"; done\n'
        f'stat -c "%a" "$key" >> {notes}; cat "$key" >> {notes}; env >> {notes}\n'
        'eval "exec $last"\n'
    )
    stand_in.chmod(0o755)
    mirror = Mirror(tmp_path / "home", ssh=str(stand_in))
    secret = {"ssh-privatekey": "-----KEY-----", "known_hosts": "host ssh-ed25519 AAAA"}
    source = Source(f"ssh://git@host.example{repo.path}", "a/key", secret)
    assert (await mirror.resolve(source, None)).branch == "trunk"
    called, mode, key, *environment = notes.read_text().splitlines()
    assert called.startswith("-F /dev/null ") and "StrictHostKeyChecking=yes" in called and "-----KEY" not in called
    assert (mode, key) == ("600", "-----KEY-----")
    assert not [line for line in environment if "-----KEY" in line and not line.startswith(("-", "git", key))]
    path = called.partition("IdentityFile=")[2].split()[0]
    assert not Path(path).exists()
    assert not [each for each in everything(mirror.folder) if b"-----KEY" in each]
