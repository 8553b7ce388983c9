"""Credentials that change: token files, and plugins."""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.client import credentials
from rota.client.credentials import EXEC_GROUP, Credential, FromPlugin, Plugin, TokenFile
from rota.client.failures import CredentialsFailed
from tests.client.scripted import answer, client_of, serving, status

V1 = f"{EXEC_GROUP}/v1"


class Program:
    """A plugin: it counts its runs in a file, and prints the run's number within what it is to say."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self._info = folder / "info"

    def source(self, **said: Any) -> Plugin:
        text = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "token-RUN", **said}})
        code = (
            "import os, pathlib\n"
            f"runs = pathlib.Path({str(self._runs)!r})\n"
            "run = len(runs.read_text()) + 1 if runs.exists() else 1\n"
            "runs.write_text('x' * run)\n"
            f"pathlib.Path({str(self._info)!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
            f"print({text!r}.replace('RUN', str(run)))\n"
        )
        cluster = {"server": "https://example"}
        return Plugin(sys.executable, ("-c", code), {"SAID": "so"}, cluster=cluster)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text())

    @property
    def told(self) -> Any:
        return json.loads(self._info.read_text())


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def expiring(seconds: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()


async def test_a_plugin_is_asked_once_however_many_need_it(program: Program) -> None:
    source = FromPlugin(program.source(), Credential(headers=(("X", "y"),)))
    found = await asyncio.gather(*(source.current() for _ in range(5)))
    assert found == [Credential("token-1", headers=(("X", "y"),))] * 5
    assert program.runs == 1


async def test_a_plugin_is_told_what_it_is_asked_for(program: Program) -> None:
    await FromPlugin(program.source(), Credential()).current()
    assert program.told == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://example"}},
    }


async def test_a_plugin_is_asked_again_when_what_it_said_expires(program: Program) -> None:
    source = FromPlugin(program.source(expirationTimestamp=expiring(-1)), Credential())
    assert [(await source.current()).token for _ in range(2)] == ["token-1", "token-2"]
    lasting = FromPlugin(program.source(expirationTimestamp=expiring(3600)), Credential())
    assert [(await lasting.current()).token for _ in range(2)] == ["token-3", "token-3"]


async def test_a_plugin_is_asked_again_once_when_the_server_refuses(program: Program) -> None:
    source = FromPlugin(program.source(), Credential())
    acts = [answer(), status(401, "Unauthorized"), answer()]
    async with serving(*acts) as server, client_of(server, credentials=source) as backend:
        await backend.raw("GET", "/")
        await backend.raw("GET", "/")
        tokens = [exchange.headers["authorization"] for exchange in server.seen]
    assert tokens == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


async def test_a_refusal_of_an_older_token_does_not_throw_the_newer_away(program: Program) -> None:
    source = FromPlugin(program.source(), Credential())
    old = await source.current()
    source.refuse(old)
    new = await source.current()
    source.refuse(old)
    assert await source.current() is new


async def test_a_plugin_may_say_a_certificate(program: Program) -> None:
    source = FromPlugin(program.source(token="", clientCertificateData="CERT", clientKeyData="KEY"), Credential())
    assert await source.current() == Credential("", "CERT\nKEY\n")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('not logged in')", "ended with exit status 1: not logged in"),
        ("print('hello')", "does not print an ExecCredential"),
        (f'print(\'{{"apiVersion": "{V1}", "status": {{}}}}\')', "neither a token nor a certificate"),
        ('print(\'{"apiVersion": "v0"}\')', "speaks 'v0', but the kubeconfig says"),
    ],
)
async def test_a_plugin_that_fails_is_named(code: str, message: str) -> None:
    with pytest.raises(CredentialsFailed, match=message):
        await FromPlugin(Plugin(sys.executable, ("-c", code)), Credential()).current()


async def test_a_plugin_that_is_not_there_is_named_with_how_to_get_it() -> None:
    with pytest.raises(CredentialsFailed, match=r"no-such-plugin .* cannot be run: .*; install it so"):
        await FromPlugin(Plugin("no-such-plugin", install_hint="install it so"), Credential()).current()


async def test_a_plugin_that_hangs_is_ended() -> None:
    plugin = Plugin(sys.executable, ("-c", "import time; time.sleep(600)"))
    with pytest.raises(CredentialsFailed, match=r"took longer than 0\.2 s"):
        await FromPlugin(plugin, Credential(), seconds_max=0.2).current()


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    source = TokenFile(path, Credential())
    assert (await source.current()).token == "first"
    path.write_text("second\n")
    assert (await source.current()).token == "first"
    monkeypatch.setattr(credentials, "TOKEN_FILE_SECONDS", -1.0)
    assert (await source.current()).token == "second"


async def test_a_token_file_is_read_again_when_the_server_refuses(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    source = TokenFile(path, Credential())
    async with (
        serving(answer(), status(401, "Unauthorized"), answer()) as server,
        client_of(server, credentials=source) as backend,
    ):
        await backend.raw("GET", "/")
        path.write_text("second\n")
        await backend.raw("GET", "/")
        assert [e.headers["authorization"] for e in server.seen] == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_token_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsFailed, match="cannot read the token"):
        await TokenFile(tmp_path / "token", Credential()).current()
    (tmp_path / "token").write_text("two\r\nlines: x")
    async with (
        serving() as server,
        client_of(server, credentials=TokenFile(tmp_path / "token", Credential())) as backend,
    ):
        with pytest.raises(CredentialsFailed, match="is its file the right one"):
            await backend.raw("GET", "/")
