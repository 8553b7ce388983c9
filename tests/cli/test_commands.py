"""The command line, as a user calls it: real processes, no server."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rota
from rota.cli.app import COMMANDS

COMMAND = str(Path(sys.executable).parent / "rota")


def run(*arguments: str, home: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROTA_HOME": str(home or "/nonexistent"), "NO_COLOR": "", **env}
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_version_prints_the_version() -> None:
    for asked in (("version",), ("--version",), ("--home", "/nonexistent", "--version")):
        done = run(*asked)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{rota.__version__}\n", "")


def test_crds_prints_documents_that_kubectl_can_apply() -> None:
    printed = [*yaml.safe_load_all(run("crds").stdout)]
    assert {document["kind"] for document in printed} == {"CustomResourceDefinition"}
    assert "workerpools.rota.dev" in [document["metadata"]["name"] for document in printed]


def test_crds_prints_json_when_asked_for() -> None:
    printed = json.loads(run("crds", "-o", "json").stdout)
    assert printed["kind"] == "List" and len(printed["items"]) == len([*yaml.safe_load_all(run("crds").stdout)])


def test_crds_are_never_installed_on_a_cluster_that_was_not_named() -> None:
    refused = run("crds", "--install")
    assert refused.returncode == 2 and "--context" in refused.stderr


def test_an_unknown_command_is_refused_with_the_nearest() -> None:
    refused = run("aply")
    assert refused.returncode == 2
    said = 'error: rota has no command "aply"; did you mean apply?\n  there are start, stop, '
    assert refused.stderr.startswith(said)


def test_help_names_every_command() -> None:
    printed = run("--help").stdout
    assert all(f"\n  {name} " in printed for name in COMMANDS)


def test_without_a_command_the_help_is_shown() -> None:
    shown = run()
    assert shown.returncode == 2 and "Usage: rota" in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "wp"),
        ("describe", "wp"),
        ("delete", "wp", "--all"),
        ("events",),
        ("edit", "wp/a"),
        ("token", "list"),
        ("backup", "new.db"),
    ],
)
def test_without_a_server_every_command_says_how_to_start_one(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    refused = run(*arguments, home=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: no Rota server is running") and "rota start" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_apply_checks_manifests_before_it_looks_for_a_server(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: Task\n")
    refused = run("apply", "-f", str(tmp_path / "bad.yaml"), home=tmp_path)
    assert refused.returncode == 2
    assert "bad.yaml:1:1: apiVersion: required" in refused.stderr


def test_a_home_and_a_context_do_not_go_together(tmp_path: Path) -> None:
    refused = run("get", "wp", "--home", str(tmp_path), "--context", "x")
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1


def test_an_unknown_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n")
    refused = run("get", "wp", "--kubeconfig", str(tmp_path / "config"), "--context", "x")
    assert refused.returncode == 2 and refused.stderr.startswith("error: ")


def test_restore_refuses_what_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    for file in ("text", "nothing"):
        refused = run("restore", str(tmp_path / file), "--yes", home=tmp_path / "home")
        assert refused.returncode == 1 and refused.stderr.startswith("error: ")


def test_the_shell_completes_commands_and_kinds() -> None:
    asked = "complete_bash"
    assert "describe" in run(_ROTA_COMPLETE=asked, COMP_WORDS="rota de", COMP_CWORD="1").stdout.split()
    kinds = run(_ROTA_COMPLETE=asked, COMP_WORDS="rota get work", COMP_CWORD="2").stdout.split()
    assert kinds == ["workerpools", "workloaddeployments", "workloads", "workspaces"]


def on_a_terminal(*arguments: str, **env: str) -> bytes:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", **env}
    with subprocess.Popen([COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        process.wait()
    os.close(ours)
    return seen


def test_colour_is_for_terminals_and_not_where_it_is_unwanted() -> None:
    plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    assert b"\x1b[" in on_a_terminal("get", "nothing", **plain, NO_COLOR="")
    assert b"\x1b[" not in on_a_terminal("get", "nothing", NO_COLOR="1")
    assert "\x1b[" not in run("get", "nothing").stderr


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("version",), ("rich", "yaml", "pydantic", "rota.server", "rota.manifest")),
        (("--version",), ("rich", "yaml", "pydantic", "rota.server", "rota.manifest")),
        (("get", "wp"), ("rich", "yaml", "pydantic", "rota.server", "rota.manifest", "rota.cli.apply")),
        (("get", "wp"), ("rota.registry.registry", "rota.client.local", "rota.control")),
        (("rebalance", "web"), ("rota.control", "rota.registry.registry", "rota.server")),
        (("stop",), ("yaml", "rota.server.main", "rota.registry.registry", "rota.control.table", "rota.store")),
        (("status",), ("yaml", "rota.server.main", "rota.registry.registry", "rota.control.table")),
    ],
)
def test_a_command_imports_no_more_than_it_needs(
    tmp_path: Path, arguments: tuple[str, ...], unwanted: tuple[str, ...]
) -> None:
    program = f"import sys; from rota.cli import main; main({arguments!r}); print(*sys.modules, file=sys.stderr)"
    environment = {**os.environ, "ROTA_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert set(ran.stderr.split()) & set(unwanted) == set()


def test_a_reader_that_leaves_is_no_error() -> None:
    with subprocess.Popen([COMMAND, "crds"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
