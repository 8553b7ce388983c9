"""By a host that can isolate nothing: everything would run there as whoever runs the server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.cli.server_options import warn_of_no_sandbox
from rota.runtime import sandbox
from rota.runtime.code import CodeRefused, Packages
from rota.runtime.sandbox.availability import Availability
from tests.attacks.conftest import API, TENANT, deployer
from tests.attacks.test_privileges import made
from tests.server.conftest import Server, served
from tests.server.live import ROTA
from tests.until import until_async, until_so

SECONDS_MAX = 60
WHY = "bwrap is not installed; install the package bubblewrap"
REFUSED = f"a sandbox was asked for: {WHY}"


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: Availability(False, WHY))


@pytest.fixture
async def live(tmp_path: Path, no_bubblewrap: None) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


async def until(server: Server, plural: str, said: str) -> None:
    """Go on when the status of an object of a kind says something."""

    async def there() -> list[str]:
        found: list[dict[str, Any]] = (await server.ask("GET", f"{API}/{TENANT}/{plural}")).json["items"]
        return [str(one.get("status", {})) for one in found]

    async def so() -> bool:
        return any(said in one for one in await there())

    await until_async(so, there, seconds=SECONDS_MAX)


async def test_to_run_a_task_as_the_server_where_there_is_no_bubblewrap(live: Server, tmp_path: Path) -> None:
    attacker, victim = await deployer(live), tmp_path / "victim"
    task = {"command": ["touch", str(victim)], "worker": {"type": "shell"}}
    assert (await made(live, "Task", "sly", task, by=attacker)).status == 201
    assert (await made(live, "Task", "admins", {**task, "command": ["true"]})).status == 201
    await until(live, "instances", REFUSED)
    await until_so(
        lambda: live.ask("GET", f"{API}/{TENANT}/tasks/admins"),
        lambda reply: reply.json.get("status", {}).get("phase") == "Succeeded",
        "an admin's task that has succeeded",
        seconds=SECONDS_MAX,
    )
    assert not victim.exists()


async def test_to_run_a_function_as_the_server_where_there_is_no_bubblewrap(live: Server, tmp_path: Path) -> None:
    attacker, victim = await deployer(live), tmp_path / "victim"
    code = f"open({str(victim)!r}, 'w')\ndef handler(event):\n    return 1\n"
    spec = {"entrypoint": "app:handler", "source": {"inline": code}, "scale": {"min": 1}}
    assert (await made(live, "Function", "sly", spec, by=attacker)).status == 201
    await until(live, "instances", REFUSED)
    assert not victim.exists()


@pytest.mark.usefixtures("no_bubblewrap")
async def test_to_run_the_build_of_a_package_as_the_server(tmp_path: Path) -> None:
    packages = Packages(tmp_path)
    with pytest.raises(CodeRefused, match=WHY) as refused:
        await packages.install(["sly @ file:///nowhere"], needs_sandbox=True)
    assert refused.value.reason == "NotIsolated"
    await packages.close()


def test_to_go_unnoticed(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_no_sandbox(WHY)
    said = capsys.readouterr().err
    assert said.startswith(f"WARNING: nothing that runs here is isolated: {WHY}\n")
    assert "anybody else starts is refused" in said


WITHOUT = """
set -e
mount --bind /dev/null "$(command -v bwrap)"
begun=$("$0" start --port 0 2>&1)
trap '"$0" stop >/dev/null' EXIT
printf '%s\\n== status\\n' "$begun"
"$0" status 2>&1
printf '== log\\n'
cat "$ROTA_HOME/server.log"
"""
"""Starts a server where bubblewrap cannot be run, and prints what is said of it."""
UNSHARE = ("unshare", "--mount", "--propagation", "private")


def test_to_go_unnoticed_by_whoever_starts_a_server_or_looks_at_it(tmp_path: Path) -> None:
    if shutil.which("bwrap") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("it takes bubblewrap, and the right to hide it")
    home = {**os.environ, "ROTA_HOME": str(tmp_path / "home")}
    ran = subprocess.run([*UNSHARE, "bash", "-c", WITHOUT, ROTA], env=home, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    started, _, rest = ran.stdout.partition("== status\n")
    status, _, log = rest.partition("== log\n")
    for said in (started, status, log):
        assert "WARNING: nothing that runs here is isolated" in said, ran.stdout
        assert "Install the package bubblewrap" in said
