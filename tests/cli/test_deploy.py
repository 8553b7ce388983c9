"""`rota deploy`: what is said, what is asked, and the exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.api import KINDS
from rota.cli import deploy as deploying
from rota.cli import deploy_report as showing
from rota.manifest.deploy import Deployer, Step
from rota.manifest.project import Project
from tests.cli.conftest import Terminal

PROJECT = """\
name: shop
pools:
  - name: workers
    replicas: 2
    worker:
      env: [{name: TOKEN, value: s3cr3t}]
schedules:
  - name: tick
    cron: "* * * * *"
    taskTemplate: {command: [date], workerPoolRef: {name: workers}}
"""
CREATED = """\
+ WorkerPool/workers created
+ Schedule/tick created
Schedule: 1 created, 0 updated, 0 unchanged
WorkerPool: 1 created, 0 updated, 0 unchanged
"""


def deployed(rota: Terminal, text: str = PROJECT, *more: str) -> str:
    ran = rota("deploy", "-f", rota.write("rota.yaml", text), *more)
    assert ran.code == 0, ran.err
    return ran.out


def revision(rota: Terminal) -> int:
    async def read(client: object) -> int:
        found: int = client.backend._registry.store.revision  # type: ignore[attr-defined]
        return found

    found: int = rota.act(read)
    return found


def test_what_was_created_updated_and_left_is_counted_for_each_kind(rota: Terminal) -> None:
    assert deployed(rota) == CREATED
    text = PROJECT.replace("replicas: 2", "replicas: 3").replace("* * * * *", "@daily")
    assert deployed(rota, text) == (
        "~ WorkerPool/workers updated\n"
        "    spec.replicas  2 → 3\n"
        "~ Schedule/tick updated\n"
        '    spec.cron  "* * * * *" → "@daily"\n'
        "Schedule: 0 created, 1 updated, 0 unchanged\n"
        "WorkerPool: 0 created, 1 updated, 0 unchanged\n"
    )


def test_a_second_run_says_unchanged_and_the_store_is_as_it_was(rota: Terminal) -> None:
    deployed(rota)
    before = revision(rota)
    assert deployed(rota) == (
        "Schedule: 0 created, 0 updated, 1 unchanged\nWorkerPool: 0 created, 0 updated, 1 unchanged\n"
    )
    assert revision(rota) == before


def test_a_dry_run_says_the_same_and_writes_nothing(rota: Terminal) -> None:
    before = revision(rota)
    out = deployed(rota, PROJECT, "--dry-run")
    assert out.replace(" (dry run)", "") == CREATED and out != CREATED
    assert revision(rota) == before


def test_values_of_environment_variables_are_not_shown(rota: Terminal) -> None:
    deployed(rota)
    out = deployed(rota, PROJECT.replace("s3cr3t", "other"))
    assert "spec.worker.env" in out and "***" in out
    assert "s3cr3t" not in out and "other" not in out


def test_what_is_secret_in_addresses_headers_and_files_is_not_shown(rota: Terminal) -> None:
    text = """\
name: shop
workspaces:
  - name: w
    repo: https://me:s3cr3t1@git.example/x.git
    files: [{path: .npmrc, content: s3cr3t2}]
    remotes: [{name: up, url: "https://s3cr3t3@git.example/y.git"}]
agents:
  - name: g
    mcpServers: [{name: m, type: http, url: "https://m.example/?key=s3cr3t4", headers: {Authorization: s3cr3t5}}]
"""
    deployed(rota, text)
    out = deployed(rota, text.replace("s3cr", "0ther").replace("m.example", "n.example"))
    assert out.count(" → ") == 4 and "n.example" in out
    assert "s3cr" not in out and "0ther" not in out
    refused = rota("deploy", "-f", rota.write("rota.yaml", text.replace("s3cr3t1", "s3cr@t1")))
    assert refused.code == 2 and "workspaces[0].repo" in refused.err
    assert "s3cr" not in refused.err and "t1@" not in refused.err


def test_of_a_large_value_that_part_is_shown_in_which_it_differs(rota: Terminal) -> None:
    text = PROJECT.replace("[date]", "[date, " + "-" * 200 + "a, " + "-" * 200 + "]")
    deployed(rota, text)
    (change,) = (line for line in deployed(rota, text.replace("-a", "-b")).splitlines() if " → " in line)
    assert '-a", ' in change and '-b", ' in change
    assert len(change) < 200


def test_many_changes_of_one_object_are_counted_beyond_a_bound(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "FIELDS_MAX", 1)
    deployed(rota)
    out = deployed(rota, PROJECT.replace("replicas: 2", "replicas: 3").replace("s3cr3t", "x"))
    assert "    … and 1 more fields\n" in out


def test_a_deploy_that_is_stopped_half_way_says_how_far_it_came(
    rota: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Deployer._write

    async def failing(self: Deployer, step: Step, project: Project, *, take_over: bool, dry_run: bool) -> Any:
        if step.name == "tick" and not dry_run:
            raise ConnectionError("the server is gone")
        return await written(self, step, project, take_over=take_over, dry_run=dry_run)

    with monkeypatch.context() as patched:
        patched.setattr(Deployer, "_write", failing)
        ran = rota("deploy", "-f", rota.write("rota.yaml", PROJECT))
    assert (ran.code, ran.out) == (1, "+ WorkerPool/workers created\n")
    assert "stopped after 1 of 2 objects; deploy again to go on from there" in ran.err
    assert "the server is gone" in ran.err
    assert deployed(rota).startswith("+ Schedule/tick created\nSchedule: 1 created")


def test_problems_are_told_with_their_place_and_nothing_is_changed(rota: Terminal) -> None:
    ran = rota("deploy", "-f", rota.write("rota.yaml", PROJECT + "colour: red\n"))
    assert ran.code == 2
    assert "rota.yaml:11:1: colour: unknown key" in ran.err and "nothing was changed" in ran.err


def test_a_namespace_that_is_not_there_is_told_once(rota: Terminal) -> None:
    ran = rota("deploy", "-n", "nowhere", "-f", rota.write("rota.yaml", PROJECT))
    assert ran.code == 1
    assert ran.err.count('there is no namespace "nowhere"') == 1 and "nothing was changed" in ran.err


def test_what_nobody_has_is_told_and_stands_in_nobodys_way(rota: Terminal) -> None:
    text = "name: shop\npools: [{name: crew, replicas: 0, worker: {type: shell, workspaceRef: {name: tree}}}]\n"
    ran = rota("deploy", "-f", rota.write("rota.yaml", text))
    assert ran.code == 0 and "WorkerPool/crew created" in ran.out
    told = "Workspace/tree is neither declared nor on the server: WorkerPool/crew cannot be ready without it"
    assert told in ran.err
    whole = text + 'workspaces: [{name: tree, repo: "https://git.example/shop.git"}]\n'
    assert rota("deploy", "-f", rota.write("rota.yaml", whole)).err == ""
    assert told in rota("deploy", "--prune", "--yes", "-f", rota.write("rota.yaml", text)).err


def test_the_file_is_looked_for_in_the_folder(rota: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rota.write("rota.yaml", PROJECT)
    monkeypatch.chdir(tmp_path)
    assert rota("deploy").out == CREATED
    assert rota("deploy", "-f", str(tmp_path)).code == 0


def test_the_environment_is_that_of_the_command(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROJECT.replace("replicas: 2", "replicas: ${MANY}")
    ran = rota("deploy", "-f", rota.write("rota.yaml", text))
    assert ran.code == 2 and "rota.yaml:4:15: pools[0].replicas: the environment variable MANY is not set" in ran.err
    monkeypatch.setenv("MANY", "7")
    deployed(rota, text)
    assert rota.stored("WorkerPool", "workers")["spec"]["replicas"] == 7


# Pruning.


SMALLER = PROJECT.partition("schedules:")[0]


def test_pruning_shows_what_goes_and_needs_a_yes_where_nobody_can_answer(rota: Terminal) -> None:
    deployed(rota)
    before = revision(rota)
    ran = rota("deploy", "-f", rota.write("rota.yaml", SMALLER.replace("2", "5")), "--prune")
    assert ran.code == 1
    assert "  Schedule/tick" in ran.err and "say --yes to delete them" in ran.err
    assert revision(rota) == before, "not even the update was made"
    ran = rota("deploy", "-f", rota.write("rota.yaml", SMALLER), "--prune", "--yes")
    assert "no longer in the file, to be deleted:\n  Schedule/tick\n" in ran.err, "it is shown all the same"
    assert "- Schedule/tick deleted\n" in ran.out
    assert "Schedule: 0 created, 0 updated, 0 unchanged, 1 deleted\n" in ran.out


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_pruning_asks_on_a_terminal(rota: Terminal, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    deployed(rota)
    monkeypatch.setattr(deploying, "is_terminal", lambda: True)
    ran = rota("deploy", "-f", rota.write("rota.yaml", SMALLER), "--prune", stdin=answer)
    assert ran.code == code
    assert "Delete it?" in ran.err
    left = rota.act(lambda client: client.list(KINDS["Schedule"])).items
    assert len(left) == code


def test_a_dry_run_of_pruning_only_shows(rota: Terminal) -> None:
    deployed(rota)
    assert "- Schedule/tick deleted (dry run)" in deployed(rota, SMALLER, "--prune", "--dry-run")
    assert rota.stored("Schedule", "tick")


def test_what_left_the_file_is_told_and_stays_without_prune(rota: Terminal) -> None:
    deployed(rota)
    ran = rota("deploy", "-f", rota.write("rota.yaml", SMALLER))
    assert ran.code == 0 and rota.stored("Schedule", "tick")
    said = "no longer in the file, and still there: Schedule/tick; `rota deploy --prune` takes them away\n"
    assert ran.err == said
    assert rota("deploy", "-f", rota.write("rota.yaml", PROJECT)).err == ""


def test_what_is_released_is_shown_before_the_question(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    other = PROJECT.replace("workers", "theirs").replace("tick", "tock")
    theirs = rota("compile", "-f", rota.write("other.yaml", other.partition("schedules:")[0])).out
    assert rota("apply", "-f", rota.write("theirs.yaml", theirs)).code == 0
    deployed(rota, other, "--take-over")
    monkeypatch.setattr(deploying, "is_terminal", lambda: True)
    ran = rota("deploy", "-f", rota.write("rota.yaml", "name: shop\n"), "--prune", stdin="n\n")
    assert ran.code == 1
    before, _, _ = ran.err.partition("Delete it?")
    assert "to be deleted:\n  Schedule/tock\n" in before
    assert "to be released; these stay, because the project did not create them:\n  WorkerPool/theirs\n" in before


def test_yes_without_prune_is_bad_usage(rota: Terminal) -> None:
    assert rota("deploy", "--yes").code == 2


def test_what_another_project_has_is_taken_over_only_when_it_is_said(rota: Terminal) -> None:
    deployed(rota)
    other = PROJECT.replace("shop", "market")
    ran = rota("deploy", "-f", rota.write("rota.yaml", other))
    assert ran.code == 1 and "is of the project shop" in ran.err
    assert "metadata.labels.rota.dev/project" in deployed(rota, other, "--take-over")


def test_output_of_values_that_a_terminal_would_obey_is_escaped(rota: Terminal) -> None:
    deployed(rota)
    out = deployed(rota, PROJECT.replace("[date]", '["a\\e[2Jb"]'))
    assert "\x1b" not in out and "\\u001b" in out
