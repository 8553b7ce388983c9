"""Handlers are called in this process; what cannot be is done by what a test puts in its place."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.testing import Call, Project, Result
from tests.testing.projects import COMMANDS, MARCH, NIGHTLY


def a_function(folder: Path, name: str, code: str, more: str = "") -> str:
    """The code of a function, as files, and its entry in the project file."""
    (folder / name).mkdir()
    (folder / name / "main.py").write_text(code)
    return f"  - {{name: {name}, path: {name}, entrypoint: 'main:handler'{more}}}\n"


def written(folder: Path, *functions: str) -> Path:
    (folder / "rota.yaml").write_text("name: shop\nfunctions:\n" + "".join(functions))
    return folder / "rota.yaml"


def test_a_call_returns_what_the_handler_returns() -> None:
    with Project(NIGHTLY) as project:
        assert project.call("report", {"x": 1}) == {"said": None, "by": "report"}
        assert project.calls("report")[0].event == {"x": 1} and project.list("Task") == []


def test_a_call_raises_what_the_handler_raises() -> None:
    with Project(NIGHTLY) as project:
        with pytest.raises(ValueError, match="no such shop"):
            project.call("report", {"fail": True})
        assert isinstance(project.calls("report")[0].error, ValueError)


def test_a_scheduled_call_is_told_of_its_schedule() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        project.advance(days=1)
        (call,), (run,) = project.calls("report.nightly"), project.runs("report.nightly")
        told = call.event["schedule"]
        assert (
            call.event["full"] is True and told["name"] == "report.nightly" and told["runId"] == run.task == call.task
        )


def test_an_exception_is_a_failed_run_and_is_tried_again_as_the_task_says() -> None:
    retry = "taskTemplate: {retry: {limit: 2, reasons: [Failed], backoffSeconds: 60}, "
    with Project(COMMANDS.replace("taskTemplate: {", retry), at=MARCH) as project:

        def do(call: Call) -> str:
            if call.attempt < 3:
                raise RuntimeError("not yet")
            return "done"

        project.on("workers", do)
        project.advance(minutes=10)
        assert [run.phase for run in project.runs("tidy")] == ["Waiting"]
        project.run_until_idle()
        (run,) = project.runs("tidy")
        assert (run.phase, run.result) == ("Succeeded", "done")
        minutes = [(call.at - run.at).total_seconds() / 60 for call in project.calls("tidy")]
        assert minutes == [0, 1, 3], "the pause doubles"


def test_what_takes_too_long_is_ended() -> None:
    with Project(NIGHTLY, at=MARCH) as project:
        project.on("report", takes=31)
        project.advance(days=1)
        (run,) = project.runs("report.nightly")
        assert run.ended is not None
        assert (run.phase, run.message) == ("Failed", "Timeout: not done in 30 s")
        assert (run.ended - run.at).total_seconds() == 30


def test_a_command_succeeds_at_once_unless_a_test_says_otherwise() -> None:
    with Project(COMMANDS, at=MARCH) as project:
        project.advance(minutes=10)
        project.on("workers", lambda call: Result(exit_code=3))
        project.advance(minutes=10)
        assert [(run.phase, run.message) for run in project.runs("tidy")] == [
            ("Succeeded", ""),
            ("Failed", "Failed: exit code 3"),
        ]
        assert project.calls("workers")[0].command == ("sh", "tidy.sh")
        assert project.calls("tidy")[1].env["ROTA_SCHEDULE_TIME"] == "2026-03-01T00:20:00Z"


def test_outputs_reach_those_that_depend_on_them() -> None:
    with Project(COMMANDS, at=MARCH) as project:
        project.on("workers", lambda call: Result(outputs={"version": "7"}) if call.task == "build" else None)
        for name, after, command in (("ship", ["build"], "{{ tasks.build.outputs.version }}"), ("build", [], "x")):
            spec = {"command": ["sh", command], "dependsOn": after, "workerPoolRef": {"name": "workers"}}
            meta = {"name": name}
            project.apply({"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": meta, "spec": spec})
        assert [call.command for call in project.calls("workers")] == [("sh", "x"), ("sh", "7")]
        assert project.get("Task", "ship").status.phase == "Succeeded"


def test_a_result_is_whole_also_where_a_task_has_only_its_digest() -> None:
    with Project(COMMANDS) as project:
        project.on("workers", lambda call: "x" * 10_000)
        run = project.run("tidy")
        assert len(run.result) == 10_000 and project.get("Task", run.task).status.result.startswith("sha256:")


def test_a_prompt_waits_for_what_its_worker_needs_as_on_a_server() -> None:
    agent = "type: claude-code, credentials: {type: api-key, secretRef: {name: k}}"
    text = COMMANDS.replace("type: shell", agent).replace("command: [sh, tidy.sh]", "prompt: Tidy up.")
    with Project(text) as project:
        assert project.run("tidy").phase != "Succeeded"
        project.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "k"}, "stringData": {"key": "s"}})
        project.run_until_idle()
        assert project.calls("tidy")[0].stdin == "Tidy up." and project.runs("tidy")[0].succeeded


def test_a_task_s_stand_in_goes_before_that_of_its_pool() -> None:
    with Project(COMMANDS, at=MARCH) as project:
        project.on("workers", lambda call: "pool")
        project.on("tidy", lambda call: "schedule")
        assert project.run("tidy").result == "schedule"


def test_a_stand_in_for_nothing_is_a_mistake() -> None:
    with Project(COMMANDS) as project:
        with pytest.raises(LookupError, match="did you mean workers"):
            project.on("worker", lambda call: None)
        with pytest.raises(LookupError, match="no schedule nightly: there are tidy"):
            project.runs("nightly")
        with pytest.raises(LookupError, match="did you mean workers"):
            project.calls("worker")
        assert project.calls("workers") == []
        with pytest.raises(LookupError, match="no function report: there is none"):
            project.call("report")


def test_two_functions_have_modules_of_one_name_to_themselves(tmp_path: Path) -> None:
    code = "import helper\ndef handler(event, context):\n    import late\n    return helper.NAME + late.NAME\n"
    functions = [a_function(tmp_path, name, code) for name in ("a", "b")]
    for name in ("a", "b"):
        (tmp_path / name / "helper.py").write_text(f"NAME = {name!r}")
        (tmp_path / name / "late.py").write_text(f"NAME = {name.upper()!r}")
    before, path = set(sys.modules), list(sys.path)
    with Project(written(tmp_path, *functions)) as project:
        assert [project.call(name) for name in ("a", "b", "a")] == ["aA", "bB", "aA"]
    assert set(sys.modules) - before == set() and sys.path == path


def test_a_handler_s_module_can_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def fetch():\n    raise OSError('no network')\ndef handler(event, context):\n    return fetch()\n"
    with Project(written(tmp_path, a_function(tmp_path, "a", code))) as project:
        monkeypatch.setattr(project.module("a"), "fetch", lambda: 7)
        assert project.call("a") == 7


def test_a_handler_has_the_variables_of_its_function(tmp_path: Path) -> None:
    code = "import os\nAT_IMPORT = os.environ['SHOP']\ndef handler(event, context):\n    return os.environ['TOKEN']\n"
    env = ", env: [{name: SHOP, value: x}, {name: TOKEN, valueFrom: {secretKeyRef: {name: api, key: token}}}]"
    with Project(written(tmp_path, a_function(tmp_path, "a", code, env))) as project:
        with pytest.raises(LookupError, match="Secret/api has no key token"):
            project.call("a")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "api"}, "stringData": {"token": "s"}}
        project.apply(secret)
        assert project.call("a") == "s" and "TOKEN" not in os.environ


def test_handlers_that_are_coroutines_share_a_loop_and_others_may_have_their_own(tmp_path: Path) -> None:
    coroutine = "import asyncio\nasync def handler(event, context):\n    return id(asyncio.get_running_loop())\n"
    plain = "import asyncio\ndef handler(event, context):\n    return asyncio.run(asyncio.sleep(0, 5))\n"
    functions = [a_function(tmp_path, "a", coroutine), a_function(tmp_path, "b", plain)]
    with Project(written(tmp_path, *functions)) as project:
        assert project.call("a") == project.call("a") and project.call("b") == 5


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def handler(event, context):\n    return {1, 2}\n", "TypeError: what the handler returned is not JSON"),
        ("import nowhere\n", "ModuleNotFoundError: No module named 'nowhere'"),
        ("handler = 3\n", "TypeError: main:handler is int, which cannot be called"),
        ("def handler(event, context):\n    raise SystemExit(2)\n", "SystemExit: 2"),
    ],
)
def test_a_handler_that_is_no_good_fails_its_run(tmp_path: Path, code: str, error: str) -> None:
    schedule = ", schedules: [{name: s, cron: '@daily'}]"
    with Project(written(tmp_path, a_function(tmp_path, "a", code, schedule))) as project:
        project.advance(days=1)
        (run,) = project.runs("a.s")
        assert run.phase == "Failed" and error in run.message


def test_an_interrupt_is_not_a_failed_run() -> None:
    def interrupted(call: Call) -> Any:
        raise KeyboardInterrupt

    with Project(COMMANDS) as project:
        project.on("workers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            project.run("tidy")


async def test_the_async_form_calls_coroutines_on_the_test_s_loop(tmp_path: Path) -> None:
    code = "import asyncio\nasync def handler(event, context):\n    return id(asyncio.get_running_loop())\n"
    schedule = ", schedules: [{name: s, cron: '@daily'}]"
    async with Project(written(tmp_path, a_function(tmp_path, "a", code, schedule)), at=MARCH) as project:
        await project.advance(days=3)
        runs = await project.runs("a.s")
        assert {run.result for run in runs} == {id(asyncio.get_running_loop())} and len(runs) == 3
        assert await project.call("a") == runs[0].result
