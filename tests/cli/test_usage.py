"""The form of the command line: its help, and one style for every error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rota.cli.app import COMMANDS, PURPOSES, build
from tests.cli.conftest import Terminal
from tests.server.live import ROTA, Live, live

WIDTH = 80
POOL_TEXT = "{apiVersion: rota.dev/v1alpha1, kind: WorkerPool, metadata: {name: p}, spec: {worker: {}}}"


def rota(*words: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROTA_HOME": str(home), "COLUMNS": str(WIDTH), **env}
    return subprocess.run([ROTA, *words], capture_output=True, text=True, check=False, env=environment, timeout=60)


def helps() -> Iterator[str]:
    """Every help that there is."""
    root: Any = typer.main.get_command(build())
    for path, command in [((), root), *_below((), root)]:
        yield command.get_help(command.make_context(" ".join(("rota", *path)), [], resilient_parsing=True))


def _below(path: tuple[str, ...], group: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from _below((*path, name), command)


def test_no_help_is_cut_off_or_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    shown = list(helps())
    assert len(shown) > len(COMMANDS)
    for text in shown:
        for line in text.splitlines():
            # What stands for arguments in a line of usage is no text that was cut.
            cut = line.rstrip().endswith("...") and not line.startswith("Usage: ")
            assert len(line) <= WIDTH and not cut, line


def test_the_help_is_sorted_by_purpose(tmp_path: Path) -> None:
    lines = [*rota("--help", home=tmp_path).stdout.splitlines(), ""]
    headings = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options", *PURPOSES]
    for heading, commands in PURPOSES.items():
        below = lines[lines.index(f"{heading}:") + 1 :]
        assert [line.split()[0] for line in below[: below.index("")] if line[2] != " "] == [*commands]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("gte wp", 'rota has no command "gte"; did you mean get?\n  there are start, '),
        ("schedule rnu x", 'rota schedule has no command "rnu"; did you mean run?\n  there are list, show, run, '),
        ("get wp --selectr a=b", "rota get has no option --selectr; did you mean --selector?\n  it has --output, "),
        ("--hoem x get wp", "rota has no option --hoem; did you mean --home?\n  it has --namespace, "),
        ("token create x --scope nope", "--scope: 'nope' is not one of 'admin', 'deployer', "),
        ("token create", "rota token create: NAME is missing\n"),
        ("run --priority 9999 -- x", "--priority: 9999 is not in the range -1000<=x<=1000\n"),
        ("start --port x", "--port: 'x' is not a whole number\n"),
        ("get wp -o", "rota get: option '-o' requires an argument\n"),
        ("version now", "rota version: got unexpected extra argument"),
        ("get workerpol", 'no kind "workerpol"; did you mean workerpool?\n  there are '),
        ("start --host nonsense", "--host nonsense: this machine has no such address; it takes "),
        ("start --host ::1:99", "--host ::1:99: this machine has no such address; it takes "),
        ("up --host 203.0.113.9", "--host 203.0.113.9: this machine has no such address; it takes "),
        ("start --host=", "--host is empty: name an address of this machine"),
        ("logs", "name a task, an instance, a pool or a function, such as task/build"),
        ("bogus", 'rota has no command "bogus"\n  there are start, '),
        ("restart --host 127.0.0.1:99", "--host 127.0.0.1:99: this machine has no such address; it takes "),
    ],
)
def test_every_error_of_usage_has_one_style_and_names_what_there_is(tmp_path: Path, argv: str, says: str) -> None:
    ran = rota(*argv.split(), home=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {says}"), ran.stderr
    assert "Usage:" not in ran.stderr and "Error:" not in ran.stderr


def test_an_address_of_this_machine_is_named_when_another_is_wanted(tmp_path: Path) -> None:
    said = rota("start", "--host", "203.0.113.9", home=tmp_path).stderr
    assert "127.0.0.1" in said and "0.0.0.0 for all" in said and "--port" in said
    assert not (tmp_path / "server.log").exists()


def test_an_unknown_context_is_refused_with_those_there_are(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text('{"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "prod", "context": {}}]}')
    ran = rota("get", "wp", "--context", "prd", home=tmp_path, KUBECONFIG=str(file))
    assert ran.returncode == 2
    assert ran.stderr == f"error: {file} has no context 'prd', only prod\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("usage")) as server:
        for manifest in (POOL, FUNCTION, SCHEDULE):
            ran = subprocess.run(
                [ROTA, "--home", server.home, "apply", "-f", "-"], input=manifest, text=True, capture_output=True
            )
            assert ran.returncode == 0, ran.stderr
        yield server


POOL = "{apiVersion: rota.dev/v1alpha1, kind: WorkerPool, metadata: {name: crew}, spec: {replicas: 0, worker: {}}}"
FUNCTION = """
apiVersion: rota.dev/v1alpha1
kind: Function
metadata: {name: greet}
spec: {entrypoint: "main:handler", source: {inline: "def handler(event, context): return 1"}}
"""
SCHEDULE = """
apiVersion: rota.dev/v1alpha1
kind: Schedule
metadata: {name: nightly}
spec: {cron: "@daily", target: {functionRef: {name: greet}}}
"""


@pytest.mark.parametrize(
    ("argv", "nearest"),
    [
        *(
            (argv, "crew")
            for argv in (
                "run --pool crw -- true",
                "claim crw -- true",
                "get wp crw",
                "describe wp/crw",
                "why wp/crw",
                "scale wp/crw --replicas 1",
                "rollout status wp/crw",
                "rollout restart wp/crw",
                "wait wp/crw --for condition=Ready",
                "logs wp/crw",
                "exec wp/crw -- true",
                "edit wp/crw",
                "delete wp/crw",
            )
        ),
        *((argv, "greet") for argv in ("call gret", "logs fn/gret", "get fn gret")),
        *((argv, "nightly") for argv in ("schedule run nightli", "schedule show nightli", "schedule pause nightli")),
        *((argv, "default") for argv in ("get wp crew -n defalt", "run -n defalt -- true", "deploy -n defalt -f .")),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_and_with_all(
    server: Live, tmp_path: Path, argv: str, nearest: str
) -> None:
    (tmp_path / "rota.yaml").write_text("name: shop\npools: [{name: other, worker: {}}]\n")
    environment = {**os.environ, "ROTA_HOME": str(server.home), "EDITOR": "true"}
    ran = subprocess.run([ROTA, *argv.split()], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert ran.returncode == 1 and ran.stdout == "", ran.stdout
    assert ran.stderr.startswith("error: ") and ran.stderr.count("error: ") == 1
    assert f"did you mean {nearest}?" in ran.stderr, ran.stderr
    assert ran.stderr.count(nearest) >= 2, "those that there are"


def test_nothing_is_made_for_a_pool_that_is_not_there(server: Live) -> None:
    assert rota("run", "--pool", "crw", "--", "true", home=server.home).returncode == 1
    assert rota("get", "tasks", "-o", "name", home=server.home).stdout == ""


def test_an_unknown_name_among_none_says_that_there_are_none(rota: Terminal) -> None:
    assert rota("scale", "wp/a", "--replicas", "1").err.endswith("namespace default has no workerpools\n")


@pytest.mark.parametrize("argv", ["plan -f -", "diff -f -", "version", "doctor", "schema"])
def test_nothing_is_said_when_who_read_the_output_has_left(tmp_path: Path, argv: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with live(tmp_path):
            ran = subprocess.run(
                [ROTA, *argv.split()],
                input=POOL_TEXT,
                stdout=writing,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env={**os.environ, "ROTA_HOME": str(tmp_path)},
                timeout=60,
            )
    finally:
        os.close(writing)
    assert ran.stderr == ""
