"""Repositories are fetched with the network that the server's policy gives, whoever asks for them."""

from __future__ import annotations

import shlex
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota.runtime import egress, sandbox
from rota.runtime.workspace import GitNetwork, Mirror, Source, WorkspaceError
from tests.workspace.conftest import Repo, Server

SECONDS_MAX = 30


@pytest.fixture(autouse=True)
def _sandboxes() -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)


def port_of(server: Server) -> int:
    return urlsplit(server.url).port or 0


async def resolved(home: Path, network: GitNetwork, source: Source) -> str:
    mirror = Mirror(home, network=network)
    try:
        return (await mirror.resolve(source, None)).commit
    finally:
        await mirror.close()


async def test_git_reaches_what_is_on_the_list_through_the_proxy(server: Server, repo: Repo, tmp_path: Path) -> None:
    network = GitNetwork("egress", (f"127.0.0.1/32:{port_of(server)}",))
    source = Source(f"{server.url}/{repo.path.name}", secret=server.secret())
    assert await resolved(tmp_path / "home", network, source) == repo.git("rev-parse", "HEAD")
    # And it ran in a network of its own, beside which there is the proxy.
    assert any(b"egress/program.py" in arguments for arguments in server.arguments_seen)


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (GitNetwork("none"), "was started with --network none"),
        (GitNetwork("egress"), "is not on this server's list"),
        (GitNetwork("egress", ("127.0.0.1/32:1", "*.example.com")), "is not on this server's list"),
    ],
)
async def test_what_is_not_allowed_is_not_tried(
    server: Server, repo: Repo, tmp_path: Path, network: GitNetwork, why: str
) -> None:
    for url in (f"{server.url}/{repo.path.name}", "ssh://git@host.example/x"):
        with pytest.raises(WorkspaceError, match=why) as raised:
            await resolved(tmp_path / "home", network, Source(url, secret=server.secret()))
        assert raised.value.reason == "RepositoryUnavailable"
    assert server.requests == []
    # A repository of the host needs no network.
    assert await resolved(tmp_path / "home", network, Source(repo.url)) == repo.git("rev-parse", "HEAD")


async def test_git_is_not_led_elsewhere(make_server: Callable[[], Server], repo: Repo, tmp_path: Path) -> None:
    server, other = make_server(), make_server()
    server.elsewhere = other.url
    network = GitNetwork("egress", (f"127.0.0.1/32:{port_of(server)}",))
    secret = {"ca.crt": server.authority + other.authority}
    with pytest.raises(WorkspaceError):
        await resolved(tmp_path / "home", network, Source(f"{server.url}/{repo.path.name}", secret=secret))
    assert server.requests and not other.requests


def test_ssh_takes_the_proxy_too(tmp_path: Path) -> None:
    """Its ProxyCommand connects to a server of the list, and to no other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_repeat, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        network = GitNetwork("egress", (f"127.0.0.1/32:{port}",))
        assert network.proxy_command.endswith(f"{egress.PORT} %h %p") and GitNetwork().proxy_command == "none"
        for asked, code, said in ((port, 0, b"hello"), (1, 1, b"")):
            words = shlex.split(network.proxy_command.replace("%h", "127.0.0.1").replace("%p", str(asked)))
            command = network.around(words, tmp_path)
            done = subprocess.run(command, input=b"hello", capture_output=True, timeout=SECONDS_MAX)
            assert (done.returncode, done.stdout) == (code, said), done
            assert (b"does not answer" in done.stderr) == (code == 1)


def _repeat(listener: socket.socket) -> None:
    client, _ = listener.accept()
    with client:
        while data := client.recv(1024):
            client.sendall(data)
