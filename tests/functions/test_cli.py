"""`rota call`, as people type it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.functions.town import Town
from tests.server.live import ROTA

CODE = """
    def handler(event, context):
        print("to the log")
        if event.get("fail"):
            raise ValueError("asked to fail")
        return event
"""


async def rota(town: Town, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    whole = [ROTA, *argv, "--home", str(town.home)]
    return await asyncio.to_thread(
        subprocess.run, whole, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


async def test_what_it_returns_is_printed_and_what_it_writes_goes_to_standard_error(town: Town) -> None:
    await town.deploy("echo", CODE, public=False)
    done = await rota(town, "call", "echo", "-d", '{"name": "world"}')
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"name": "world"} and "to the log" in done.stderr


async def test_an_event_can_be_that_of_a_request(town: Town, tmp_path: Path) -> None:
    await town.deploy("echo", CODE)
    (tmp_path / "body").write_text("from a file")
    done = await rota(town, "call", "fn/echo", "--path", "/a?b=1", "-d", f"@{tmp_path}/body")
    event = json.loads(done.stdout)
    assert (event["method"], event["path"], event["query"]) == ("POST", "/a", {"b": "1"})
    assert event["body"] == "from a file"


async def test_an_error_is_its_exit_code(town: Town) -> None:
    await town.deploy("echo", CODE)
    done = await rota(town, "call", "echo", "-d", "-", stdin='{"fail": true}')
    assert done.returncode == 1 and "ValueError: asked to fail" in done.stderr and not done.stdout


async def test_a_call_that_may_have_begun_is_not_made_again(town: Town) -> None:
    await town.deploy("dies", "import os\ndef handler(event, context):\n    print('begun')\n    os._exit(3)")
    done = await rota(town, "call", "dies")
    assert done.returncode == 1 and done.stderr.count("begun\n") == 1
    assert "the process of the function ended with exit code 3" in done.stderr


async def test_who_does_not_wait_gets_the_name_of_the_task(town: Town) -> None:
    await town.deploy("echo", CODE)
    done = await rota(town, "call", "echo", "--no-wait")
    assert done.stdout.startswith("task.rota.dev/echo-")
    task = await town.task(done.stdout.strip().partition("/")[2])
    assert task.status is not None and task.status.result == {}
    # It is found where calls over HTTP are.
    assert task.metadata.labels["rota.dev/function"] == "echo"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("-d", "[1]"), "must be a JSON object"),
        (("-d", "{nonsense"), "is not JSON"),
        (("-X", "PUT"), "goes with --path"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_what_to_do(town: Town, argv: tuple[str, ...], why: str) -> None:
    await town.deploy("echo", CODE)
    done = await rota(town, "call", "echo", *argv)
    assert done.returncode != 0 and why in done.stderr


SAYS = """
    print("while it is loaded")
    def handler(event, context):
        print("one", event["path"])
        print("two")
"""


async def test_the_logs_of_a_function_are_those_of_its_calls_each_line_with_its_call_and_worker(town: Town) -> None:
    await town.deploy("loud", SAYS)
    first, second = [(await town.call(f"/default/loud/{which}")).call for which in ("a", "b")]
    worker = (await town.instances("loud"))[0].metadata.name
    shown = (await rota(town, "logs", "fn/loud")).stdout.splitlines()
    loaded = f"- {worker}  while it is loaded"
    calls = [f"{first} {worker}  one /a", f"{first} {worker}  two", f"{second} {worker}  one /b"]
    assert shown == [loaded, *calls, f"{second} {worker}  two"]
    assert (await rota(town, "logs", "fn/loud", "--tail", "2")).stdout.splitlines() == shown[-2:]
    # One of them by itself.
    assert (await rota(town, "logs", f"task/{first}")).stdout == "one /a\ntwo\n"


async def test_a_function_that_is_not_there_is_said_before_a_task_is_made(town: Town) -> None:
    done = await rota(town, "call", "nothing")
    assert done.returncode == 1 and 'functions.rota.dev "nothing" not found' in done.stderr


async def test_a_deploy_says_where_functions_are_called_but_not_of_those_that_cannot_be_loaded(
    town: Town, tmp_path: Path
) -> None:
    file = tmp_path / "rota.yaml"
    file.write_text(
        "name: shop\nfunctions:\n"
        '  - {name: wrong, entrypoint: "m:h", source: {inline: "def h(event context): return 1"}}\n'
        '  - {name: right, entrypoint: "m:h", source: {inline: "def h(event, context): return 1"}}\n'
    )
    done = await rota(town, "deploy", "-f", str(file))
    assert done.returncode == 1 and "Function/wrong cannot be loaded" in done.stderr
    assert "Function/right is called at " in done.stdout and "Function/wrong is called" not in done.stdout
