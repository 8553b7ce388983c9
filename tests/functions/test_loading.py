"""A version is ready when a worker has loaded it once, and a failure to load stays until it is mended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.api import Event, Function
from rota.control.functions import load_queue
from rota.runtime import sandbox
from tests.functions.test_cli import rota
from tests.functions.test_code import put, tar
from tests.functions.town import API, Town, ready, serving

GOOD = "def handler(event, context):\n    return 1"
OLD = "def handler(event, context):\n    return 'old'"
SYNTAX = "import json\n\ndef handler(event, context)\n    return 1"
BRIEF = {"idleSeconds": 1}
"""Workers that are not needed go soon."""
FAILURES = ("ImportFailed", "TimedOut", "CommandNotFound", "ConfigurationError")


async def failed(town: Town, name: str) -> str:
    """The message of a function that cannot be loaded, when that is known."""
    found = await town.function(name, lambda one: ready(one) in FAILURES)
    loaded = found.status.condition("Loaded") if found.status is not None else None
    ready_ = found.status.condition("Ready") if found.status is not None else None
    assert loaded is not None and ready_ is not None and loaded.status == ready_.status == "False"
    assert (loaded.reason, loaded.message) == (ready_.reason, ready_.message)
    return loaded.message


async def test_code_that_nobody_calls_is_loaded_once_and_then_nothing_runs(town: Town) -> None:
    await town.deploy("calm", GOOD, scale=BRIEF)
    found = await town.function("calm", lambda one: one.readiness().state == "Ready")
    status = found.status
    assert status is not None and status.last_loaded is not None and status.last_loaded.version == status.version
    assert status.digest is not None
    await town.workers("calm", 0)
    assert ready(await town.function("calm", lambda one: ready(one) == "ScaledToZero"))


@pytest.mark.parametrize(
    ("code", "entrypoint", "message"),
    [
        (SYNTAX, "app:handler", "SyntaxError: expected ':' (app.py:3)"),
        (GOOD, "app:handlr", "entrypoint app:handlr: module app has no handlr; did you mean app:handler?"),
        ("handler = 3", "app:handler", "entrypoint app:handler: it is int, which cannot be called"),
        ("import json\njson.loads('{')", "app:handler", "(app.py:2)"),
        ("import sys\nsys.exit(4)", "app:handler", "SystemExit: 4 (app.py:2)"),
        ("import os\nos._exit(4)", "app:handler", "the process of the function ended with exit code 4"),
    ],
)
async def test_code_that_cannot_be_loaded_is_said_with_its_place_though_nobody_calls_it(
    town: Town, code: str, entrypoint: str, message: str
) -> None:
    await town.deploy("broken", code, entrypoint=entrypoint)
    assert message in await failed(town, "broken")


async def test_an_entrypoint_whose_module_is_not_in_the_code_is_said_with_what_is(town: Town) -> None:
    digest = await put(town.home, tar(app=GOOD, lib__part="value = 7"))
    await town.deploy("broken", "", entrypoint="main.part:handler", source={"digest": digest})
    message = "entrypoint main.part:handler: there is no module main; the code has app.py, lib"
    assert await failed(town, "broken") == message


async def test_a_failure_stays_when_the_worker_is_gone_and_so_does_its_traceback(town: Town) -> None:
    await town.deploy("broken", "print('before it')\nraise RuntimeError('not today')", scale=BRIEF)
    message = await failed(town, "broken")
    worker = (await town.instances("broken"))[0].metadata.name
    await town.workers("broken", 0)
    # It is looked at again, and nothing runs that could say so.
    await town.client.patch(Function.api, "broken", {"spec": {"timeoutSeconds": 31}})
    await town.client.patch(Function.api, "broken", {"metadata": {"annotations": {"a": "b"}}})
    await town.function("broken", lambda one: one.status and one.status.observed_generation == 2)
    assert await failed(town, "broken") == message == "RuntimeError: not today (app.py:2)"
    await town.workers("broken", 0)
    shown = (await rota(town, "logs", "fn/broken")).stdout
    assert "- load  before it" in shown and "- load  RuntimeError: not today" in shown and worker not in shown
    # The new version that loads mends it.
    await town.deploy("broken", GOOD, scale=BRIEF)
    await town.function("broken", lambda one: one.readiness().state == "Ready")
    assert "- load" not in (await rota(town, "logs", "fn/broken")).stdout


async def test_a_failure_and_the_version_before_outlive_the_server(tmp_path: Path) -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    async with serving(tmp_path / "home") as town:
        await town.deploy("kept", OLD, scale=BRIEF)
        await town.function("kept", lambda one: one.readiness().state == "Ready")
        await town.deploy("kept", "raise RuntimeError('not today')", scale=BRIEF)
        await town.deploy("alone", "raise RuntimeError('never')", scale=BRIEF)
        messages = [await failed(town, name) for name in ("kept", "alone")]
        for name in ("kept", "alone"):
            await town.workers(name, 0)
    async with serving(tmp_path / "home") as town:
        # Nothing is known by workers any more, and the version before has to be started from nothing.
        assert (await town.served("/default/kept")).json == "old"
        assert [await failed(town, name) for name in ("kept", "alone")] == messages
        found = await town.function("kept")
        assert found.status is not None and found.status.last_loaded is not None
        assert found.status.version != found.status.last_loaded.version
        # What nobody calls is not tried again by itself.
        assert not await town.instances("alone")


async def test_a_failure_that_something_else_caused_is_mended_by_that(town: Town) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {}}
    await town.client.create(config)
    env = [{"name": "VALUE", "valueFrom": {"configMapKeyRef": {"name": "there", "key": "late"}}}]
    await town.deploy("waits", "import os\nos.environ['VALUE']\n" + GOOD, env=env, scale=BRIEF)
    assert "there has no key late" in await failed(town, "waits")
    await town.workers("waits", 0)
    await town.client.apply({**config, "data": {"late": "now"}}, force=True)
    await town.function("waits", lambda one: one.readiness().state == "Ready")


async def test_a_call_tries_again_what_could_not_be_loaded(town: Town) -> None:
    code = """
        import os
        if not os.path.exists("/rota/code/never"):
            print("tried")
            raise RuntimeError("not yet")
    """
    await town.deploy("again", code, scale=BRIEF)
    await failed(town, "again")
    await town.workers("again", 0)
    reply = await town.call("/default/again")
    assert (reply.status, reply.json["error"]) == (500, "the function cannot be loaded")
    assert "not yet" in await failed(town, "again")


async def test_who_calls_right_after_it_was_mended_is_not_told_what_was_wrong_before(town: Town) -> None:
    await town.deploy("mended", SYNTAX)
    await failed(town, "mended")
    await town.deploy("mended", GOOD)
    reply = await town.call("/default/mended")
    assert (reply.status, reply.json) == (200, 1)


async def test_calls_go_to_the_version_before_while_the_new_one_is_not_loaded(town: Town) -> None:
    await town.deploy("kept", OLD, scale=BRIEF)
    await town.function("kept", lambda one: one.readiness().state == "Ready")
    old = (await town.function("kept")).status
    await town.workers("kept", 0)
    await town.deploy("kept", SYNTAX, scale=BRIEF)
    await failed(town, "kept")
    assert (await town.call("/default/kept")).json == "old"
    new = (await town.function("kept")).status
    # It is said which code answers.
    assert old is not None and new is not None and new.digest == old.digest is not None


async def test_a_command_is_loaded_when_its_program_is_found(town: Town) -> None:
    async def deploy(name: str, *command: str) -> None:
        spec = {"runtime": "command", "command": [*command], "source": {"inline": "#!/bin/sh\necho 1"}, "scale": BRIEF}
        body = {"apiVersion": API, "kind": "Function", "metadata": {"name": name}, "spec": spec}
        await town.client.apply(body, force=True)

    await deploy("there", "sh", "main")
    await deploy("own", "./main")
    await deploy("nowhere", "no-such-program", "-x")
    await deploy("missing", "./none")
    for name in ("there", "own"):
        await town.function(name, lambda one: one.readiness().state == "Ready")
    assert await failed(town, "nowhere") == "command: there is no program no-such-program in the PATH of its sandbox"
    assert await failed(town, "missing") == "command: there is no program ./none in its code"
    found = await town.function("missing")
    assert ready(found) == "CommandNotFound"


async def test_only_so_many_are_loaded_at_once_and_all_in_the_end(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_queue, "AT_ONCE_MAX", 2)
    names = [f"f{number}" for number in range(6)]
    await asyncio.gather(*(town.deploy(name, f"{GOOD}  # {name}") for name in names))
    most = 0

    async def are_ready() -> bool:
        nonlocal most
        found = [await town.instances(name) for name in names]
        most = max(most, sum(one.metadata.deletion_timestamp is None for each in found for one in each))
        functions = (await town.client.list(Function)).items
        return all(one.readiness().state == "Ready" for one in functions) and len(functions) == len(names)

    await town.until(are_ready)
    assert most <= 2


# As people type it.


async def test_waiting_for_a_function_that_cannot_be_loaded_ends_at_once_with_the_reason(town: Town) -> None:
    await town.deploy("broken", SYNTAX)
    done = await rota(town, "wait", "fn/broken", "--timeout", "50s")
    assert done.returncode == 1
    assert (
        "function.rota.dev/broken cannot be loaded: ImportFailed: SyntaxError: expected ':' (app.py:3)" in done.stderr
    )
    await town.deploy("broken", GOOD)
    done = await rota(town, "wait", "fn/broken", "--timeout", "50s")
    assert (done.returncode, done.stdout) == (0, "function.rota.dev/broken condition Ready=True\n"), done.stderr


async def test_a_deploy_tells_what_cannot_be_loaded_and_where(town: Town, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "code").mkdir(parents=True)
    file = project / "code" / "main.py"
    (project / "rota.yaml").write_text(
        "name: shop\nfunctions:\n- {name: report, path: code, entrypoint: 'main:handler'}\n"
        "- {name: needy, path: code, entrypoint: 'main:handler',\n"
        "   env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}\n"
    )
    file.write_text(GOOD)
    good = await rota(town, "deploy", "-f", str(project))
    # What a project refers to may come later.
    assert good.returncode == 0 and "Function/needy is not ready: DependencyNot" in good.stderr, good.stderr
    assert "Secret/s" in good.stderr
    file.write_text(SYNTAX)
    bad = await rota(town, "deploy", "-f", str(project))
    assert bad.returncode == 1 and "Function/report cannot be loaded: ImportFailed: SyntaxError" in bad.stderr
    assert "code/main.py:3)" in bad.stderr and "the version before goes on to answer calls" in bad.stderr
    # It is no better for having been deployed before.
    again = await rota(town, "deploy", "-f", str(project))
    assert again.returncode == 1 and "cannot be loaded" in again.stderr and "2 unchanged" in again.stdout
    skipped = await rota(town, "deploy", "-f", str(project), "--no-wait")
    assert skipped.returncode == 0 and "cannot be loaded" not in skipped.stderr
    told = await rota(town, "deploy", "-f", str(project), "-o", "json")
    assert told.returncode == 1
    assert '"loaded": false' in told.stdout and '"finished": true' in told.stdout


async def test_a_function_that_cannot_be_loaded_has_one_event_for_that_and_its_calls_are_dated(town: Town) -> None:
    await town.deploy("broken", SYNTAX)
    await failed(town, "broken")
    assert (await town.call("/default/broken")).status >= 500
    found = await town.function("broken", lambda one: one.status is not None and one.status.last_call_time is not None)
    assert found.status is not None and found.status.ready_workers == 0

    async def reasons() -> list[str]:
        events: Any = await town.client.list(Event)
        about = [one for one in events.items if (one.involved_object.name or "").startswith("broken")]
        return sorted(one.reason for one in about if one.reason != "TaskFailed")

    assert await reasons() == ["ImportFailed"]
