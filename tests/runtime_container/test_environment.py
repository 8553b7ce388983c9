"""The environment of a container: exact, and nobody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.runtime.container.environment import passed_environment
from rota.runtime.interface import Refused
from tests.runtime_container.conftest import SECONDS_MAX, Host, ended

ODD = {
    "EMPTY": "",
    "SPACES": "  before and after  ",
    "TABS": "\tbefore and after\t",
    "COMMENT": "# not one",
    "EQUALS": "a=b=c",
    "DOLLAR": "$HOME ${HOME} `id` \\n",
    "QUOTED": '"double"',
    "SINGLE": "'single'",
    "HALF": '"half',
    "LINES": "-----BEGIN-----\nabc\n\n-----END-----\n",
    "RETURNS": "a\r\nb\r",
    "UMLAUT": "Grüße ✓",
    "LONG": "x" * 40_000,
    "dotted.name-with_all": "1",
    "STAR": "*",
}


def test_every_value_arrives_as_it_was_given(host: Host) -> None:
    done = host.run("/bin/cat", "/proc/self/environ", env=ODD)
    found = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
    assert {name: found.get(name) for name in ODD} == ODD


def test_nothing_of_rotas_own_environment_arrives(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example")
    monkeypatch.setenv("ROTA_SECRET", "x")
    done = host.run("/bin/cat", "/proc/self/environ", env={"A": "1"})
    names = {each.split("=", 1)[0] for each in done.stdout.split("\0") if each}
    assert names <= {"A", "PATH", "HOME", "HOSTNAME", "TERM", "container"}


async def test_no_value_is_an_argument_of_any_process(host: Host) -> None:
    secret = f"secret-{host.label}"
    process = await host.started(
        "trap 'exit 0' TERM; while :; do sleep 0.01; done", env={"TOKEN": secret, "KEY": f"{secret}\nline"}
    )
    seen = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert any(host.name.encode() in arguments for arguments in seen)
    assert not any(secret.encode() in arguments for arguments in seen)
    assert await host.engine.ask_to_end(host.name)
    await asyncio.wait_for(process.communicate(), SECONDS_MAX)


def test_what_a_loader_or_the_engine_would_obey_is_not_in_their_environment(host: Host) -> None:
    told = {"LD_PRELOAD": "/data/evil.so", "CONTAINERS_CONF": "/data/evil.conf", "PATH": "/data", "HOME": "/data"}
    command = host.command(host.order("/bin/cat", "/proc/self/environ", env=told))
    assert not {"LD_PRELOAD", "CONTAINERS_CONF"} & command.env.keys()
    assert "/data" not in (command.env["PATH"], command.env["HOME"])
    found = dict(each.split("=", 1) for each in ended(command).stdout.split("\0") if each)
    assert {name: found[name] for name in told} == told


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "CONTAINERS_CONF", "_PODMAN_PAUSE", "PATH", "https_proxy", "GODEBUG", "ROTA_ENV_1"]
)
def test_where_there_is_no_other_way_than_their_environment_it_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=name) as refused:
        passed_environment({name: "line\nline"})
    assert refused.value.reason == "ConfigurationError"


@pytest.mark.parametrize("name", ["GOOGLE_CREDENTIALS", "SSH_PRIVATE_KEY", "SSL_KEY", "STORAGE_KEY"])
def test_values_of_several_lines_are_carried_under_ordinary_names(name: str) -> None:
    assert passed_environment({name: "line\nline"}).env == {name: "line\nline"}


@pytest.mark.parametrize(("name", "value"), [("A B", "1"), ("A=B", "1"), ("", "1"), ("A*", "1"), ("A", "\0")])
def test_what_cannot_be_a_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(Refused, match="cannot be an environment variable"):
        passed_environment({name: value})
