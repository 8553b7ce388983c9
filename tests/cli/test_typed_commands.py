"""Every command that a message prints works as it is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.session import Settings
from rota.cli.typed_commands import as_typed, given
from rota.engine.advice import CREATED_BY_HAND
from tests.local.place import processes_of
from tests.printed import BARE, FIELD, commands_in, filled, messages, problem_of, words_of
from tests.server.live import ROTA, Live, live
from tests.until import until

SECONDS_MAX = 60
FIELDS = {
    f"rota restart {FIELD}": ["rota restart --allow-api https://git.example"],
    f"kubectl create {FIELD} {FIELD} --from-literal=KEY=VALUE{FIELD}": [
        f"kubectl create {made} x --from-literal=KEY=VALUE -n x" for made in CREATED_BY_HAND.values()
    ],
}
"""Commands of which a field is more than a word."""


def test_every_command_in_a_message_is_one_that_the_parser_takes() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on this machine")
    wrong, found = [], 0
    for where, text in messages():
        for command in commands_in(text):
            found += 1
            problems = (problem_of(words_of(one)) for one in FIELDS.get(command, [filled(command)]))
            wrong += [f"{where}: {command.replace(FIELD, '{…}')}: {problem}" for problem in problems if problem]
    assert not wrong, "\n".join(wrong)
    assert found > 80


def test_every_command_in_a_message_is_in_backquotes() -> None:
    # Only those are found by the test above, and are printed with the options of the running command.
    bare = []
    for where, text in messages():
        outside = re.sub(r"`[^`]*`", "", text)
        bare += [f"{where}: {found}" for found in BARE.findall(outside)]
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize(
    ("settings", "message", "typed"),
    [
        (Settings(), "`rota stop` ends it", "`rota stop` ends it"),
        (Settings(home="/a b"), "`rota stop` ends it", "`rota --home '/a b' stop` ends it"),
        (Settings(context="prod"), "see `rota start`", "see `rota start`"),
        (Settings(context="prod"), "`rota why wp/a`", "`rota --context prod why wp/a`"),
        (Settings(namespace="team"), "`rota why wp/a`", "`rota -n team why wp/a`"),
        (Settings(namespace="team"), "`rota why wp/a -n x`", "`rota why wp/a -n x`"),
        (Settings(namespace="team", home="/h"), "`rota init`, `rota start`", "`rota init`, `rota --home /h start`"),
        (Settings(home="/h"), "`rota why wp/a --home FOLDER`", "`rota why wp/a --home FOLDER`"),
        (Settings(home="/h"), "`kubectl get wp`", "`KUBECONFIG=/h/kubeconfig kubectl get wp`"),
        (Settings(context="prod"), "`kubectl get wp`", "`kubectl --context prod get wp`"),
        (Settings(home="/h"), "`echo '{}' | rota apply -f -`", "`echo '{}' | rota --home /h apply -f -`"),
    ],
)
def test_a_command_is_printed_for_the_server_and_the_namespace_of_the_one_that_runs(
    settings: Settings, message: str, typed: str
) -> None:
    with given(settings):
        assert as_typed(message) == typed
    assert as_typed(message) == message


def test_kubectl_needs_no_more_where_it_has_the_kubeconfig_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/h/kubeconfig")
    with given(Settings(home="/h")):
        assert as_typed("`kubectl get wp`") == "`kubectl get wp`"


# What an error prints as its mend is run as it is printed, by a shell that knows of no home.

POOL = """
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: crew}
spec: {replicas: 0, worker: {type: shell}}
"""
FUNCTION = """
apiVersion: rota.dev/v1alpha1
kind: Function
metadata: {name: hello}
spec: {entrypoint: "main:handler", source: {inline: "def handler(event, context): return 7"}}
"""
WORKSPACE = """
apiVersion: rota.dev/v1alpha1
kind: Workspace
metadata: {name: w}
spec: {repo: "https://git.example/x.git", secretRef: {name: t}}
"""
SPAWNER = """
apiVersion: rota.dev/v1alpha1
kind: TaskSpawner
metadata: {name: issues}
spec:
  source: {github: {repo: a/b, apiURL: "https://git.example/api"}}
  taskTemplate: {command: [x], workerPoolRef: {name: crew}}
"""


def shell(line: str, stdin: str = "", code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("ROTA_HOME", "KUBECONFIG")}
    environment["PATH"] = f"{Path(ROTA).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env=environment,
        check=False,
        cwd="/",
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{line}: exit code {done.returncode}\n{said}"
    return said


def printed(said: str, containing: str) -> str:
    """The command in backquotes that contains this."""
    found: list[str] = [command for command in re.findall(r"`([^`]+)`", said) if containing in command]
    assert found, f"no {containing!r} in: {said}"
    return found[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("printed"), "--edge-port", "0") as server:
        yield server


@pytest.fixture
def rota(server: Live) -> str:
    return f"rota --home {server.home}"


def shell_until(line: str, sign: str, code: int = 0) -> str:
    said = ""

    def found() -> bool:
        nonlocal said
        said = shell(f"{line} 2>&1; true")
        return sign in said

    until(found, lambda: said, seconds=SECONDS_MAX)
    return said


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_a_missing_secret_is_made_by_the_command_that_why_prints(rota: str) -> None:
    shell(f"{rota} apply -f -", WORKSPACE)
    said = shell_until(f"{rota} why workspace/w", "create secret")
    shell(printed(said, "create secret").replace("KEY=VALUE", "token=s3cret"))
    shell_until(f"{rota} why workspace/w", "is ready")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_a_function_that_takes_a_key_is_called_with_the_one_whose_command_it_prints(rota: str) -> None:
    shell(f"{rota} apply -f -", FUNCTION)
    shell(f"{rota} wait fn/hello --timeout 60s")
    url = shell(f"{rota} get fn hello -o jsonpath={{.status.url}}").strip()
    refused = shell(f"curl -sS {url}")
    # Whoever calls is not told where the server's home is.
    command = printed(refused, "token create").replace("rota ", f"{rota} ", 1).replace("NAMESPACE", "default")
    made = shell(f"{command} 2>/dev/null")
    assert shell(f"curl -sS -H 'X-Rota-Key: {made.strip()}' {url}") == "7"


def test_fields_of_another_owner_are_taken_over_with_the_flag_that_is_named(rota: str, server: Live) -> None:
    theirs, ours = POOL.replace("name: crew", "name: shared"), POOL.replace("name: crew", "name: shared")
    server.kubectl("apply", "--server-side", "--field-manager=they", "-f", "-", stdin=theirs)
    ours = ours.replace("replicas: 0", "replicas: 2")
    context = f"--kubeconfig {server.kubeconfig}"
    for command in (f"{rota} apply -f -", f"{rota} diff -f -", f"rota plan -f - --against rota {context}"):
        refused = shell(f"{command}; test $? -ne 0", ours)
        assert "take them over with --force" in refused, refused
    assert "1 to change" in shell(f"rota plan -f - --against rota {context} --force", ours)
    assert "replicas" in shell(f"{rota} diff -f - --force; true", ours)
    assert "configured" in shell(f"{rota} apply -f - --force", ours)


def test_a_missing_namespace_is_made_by_the_command_that_a_deploy_prints(rota: str, tmp_path: Path) -> None:
    (tmp_path / "rota.yaml").write_text("name: shop\npools: [{name: p, replicas: 0, worker: {}}]\n")
    deploy = f"{rota} -n team deploy -f {tmp_path}"
    shell(printed(shell(deploy, code=1), "apply -f -"))
    assert "WorkerPool: 1 created" in shell(deploy)


def test_a_task_without_workers_runs_after_the_command_that_why_prints(rota: str) -> None:
    shell(f"{rota} apply -f -", POOL)
    shell(f"{rota} run --pool crew --name first -- false")
    said = shell_until(f"{rota} why task/first", " scale ")
    shell(printed(said, " scale "))
    failed = shell_until(f"{rota} why task/first", " retry ")
    assert "task.rota.dev/first-retry-1" in shell(printed(failed, " retry "))
    assert shell(printed(failed, " logs ")) == ""
    waited = shell(f"{rota} wait task/first-retry-1 --timeout 60s", code=1)
    assert "failed" in waited


def test_a_claim_that_is_kept_is_used_and_released_by_the_commands_that_it_prints(rota: str) -> None:
    shell(f"{rota} apply -f -", POOL.replace("name: crew", "name: boxes").replace("replicas: 0", "replicas: 1"))
    said = shell(f"{rota} claim boxes --name mine --keep --wait 60s")
    assert "inside" in shell(printed(said, " claim ").replace("COMMAND", "echo inside"))
    assert "claim/mine released" in shell(printed(said, " release "))


def test_a_token_is_revoked_by_the_command_that_its_making_prints(rota: str) -> None:
    said = shell(f"{rota} token create ci")
    assert " revoked" in shell(printed(said, " revoke "))


def test_a_server_is_started_replaced_and_ended_by_the_commands_that_are_printed(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    rota = f"rota --home '{home}'"
    said = shell(f"{rota} get wp", code=1)
    shell(f"{rota} start --port 0 --edge-port 0")
    try:
        # What was started once is started in the same way again: the port is the one that was free.
        shell(printed(shell(f"{rota} up", code=1), " stop"))
        shell(printed(said, " start"))
        shell(f"{rota} restart --allow-api https://first.example")
        shell(f"{rota} apply -f -", POOL + "---" + SPAWNER)
        refused = shell_until(f"{rota} why spawner/issues", "--allow-api")
        assert "--allow-api https://first.example --allow-api https://git.example/api" in refused
        shell(printed(refused, "--allow-api"))
        asked = (home / "last-start.json").read_text()
        assert "https://first.example" in asked and "https://git.example/api" in asked
        backup = tmp_path / "all.db"
        saved = shell(f"{rota} backup {backup}")
        shell(f"{rota} stop")
        shell(f"{printed(saved, ' restore ')} --yes")
        shell(printed(shell(f"{rota} status", code=3), " start"))
        assert "issues" in shell(f"{rota} get spawner")
    finally:
        shell(f"{rota} stop")
    assert processes_of(home) == []


def test_a_new_project_runs_with_the_commands_that_init_prints(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "a project"
    said = shell(f"rota --home {home} init '{folder}'")
    shell(f"{printed(said, ' start')} --port 0 --edge-port 0")
    try:
        assert "Function/hello is called at" in shell(printed(said, " deploy"))
    finally:
        shell(f"rota --home {home} stop")
