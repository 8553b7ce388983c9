"""`rota plan`: what manifests would come to, without a server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota import Client
from rota.api import WorkerPool
from rota.cli.plan_text import write_plan
from rota.engine import Context, ObjectReconciler, Outcome
from rota.manifest.plan_types import Plan, Ready, Summary
from tests.cli.conftest import Ran, Terminal, pool
from tests.server.live import Live, live

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "plan"
PAGE = ROOT / "docs" / "howto" / "plan.md"
ROTA = str(Path(sys.executable).parent / "rota")
WORKSPACE = """\
apiVersion: rota.dev/v1alpha1
kind: Workspace
metadata: {name: shop}
spec: {repo: "https://git.example.com/shop.git", secretRef: {name: token}}
"""
POOL = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: agents}
spec:
  worker: {workspaceRef: {name: shop}}
  replicas: 2
"""
TASK = """\
apiVersion: rota.dev/v1alpha1
kind: Task
metadata: {name: t}
spec: {command: [x], workerPoolRef: {name: agents}}
"""
WITHOUT_NETWORK = """\
import socket, sys
def refuse(*_): raise AssertionError("a plan needs no network")
socket.socket.connect = socket.socket.bind = socket.getaddrinfo = refuse
from rota.cli import main
sys.exit(main(sys.argv[1:]))
"""


def document(ran: Ran) -> Any:
    return json.loads(ran.out)


# The example.


def test_the_documentation_shows_what_the_command_prints(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = re.findall(r"```console\n\$ rota (plan [^\n]*)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(shown) == 2
    for command, output in shown:
        assert rota(*command.split()).out == output, f"rota {command}"


def test_the_example_has_everything_that_can_go_wrong(rota: Terminal) -> None:
    ran = rota("plan", "-f", str(EXAMPLE), "-o", "json")
    plan = document(ran)
    assert ran.code == 1 and not plan["converges"]
    assert plan["summary"]["objects"] - plan["summary"]["made"] >= 30
    assert {cause["type"] for cause in plan["neverReady"]} == {"Missing", "Circle"}
    assert max(one["depth"] for cause in plan["neverReady"] for one in cause["heldUp"]) >= 4
    late = next(one for one in plan["ready"] if one["name"] == "WorkerPool/sandboxes")
    assert late["needs"] == ["instancetypes.rota.dev//d1-standard-2"] and late["step"] > 1
    assert "Secret/git-token" in [one["name"] for one in plan["assumed"]]


def test_what_of_the_example_works_out_has_exit_code_0(rota: Terminal) -> None:
    folder = rota.folder / "some"
    folder.mkdir()
    for name in ("1-shared.yaml", "4-release.yaml"):
        shutil.copy(EXAMPLE / name, folder)
    parts = [(EXAMPLE / name).read_text().split("\n---\n") for name in ("2-pools.yaml", "3-functions.yaml")]
    good = [part for file in parts for part in file if "legacy" not in part]
    (folder / "good.yaml").write_text("\n---\n".join(good))
    ran = rota("plan", "-f", str(folder))
    assert ran.code == 0, ran.out + ran.err
    assert "Never ready" not in ran.out
    assert re.search(r"\n(\d+) objects \(12 made by Rota\): \1 ready, 4 assumed\n$", ran.out)


def test_it_needs_neither_a_server_nor_a_network_nor_a_home(tmp_path: Path) -> None:
    home = tmp_path / "nowhere"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ROTA_HOME": str(home / "rota"),
        "KUBECONFIG": str(home),
    }
    outputs = set()
    for seed in ("1", "2", "3"):
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT_NETWORK, "plan", "-f", "examples/plan"],
            cwd=ROOT,
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (1, "")
        outputs.add(ran.stdout)
    assert len(outputs) == 1, "the same on every run"
    assert outputs.pop() in PAGE.read_text()
    assert not home.exists()


# What is said.


def test_all_that_is_ready_is_one_summary_without_causes(rota: Terminal) -> None:
    ran = rota("plan", "-f", rota.write("a.yaml", f"{WORKSPACE}---\n{POOL}"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Ready, in this order\n"
        "  1  Workspace/shop               after Secret/token\n"
        "     Location/local               made by Rota\n"
        "     Cell/local                   made by Rota\n"
        "     InstanceType/d1-standard-2   made by Rota\n"
        "  3  WorkerPool/agents            after Workspace/shop\n"
        "     ├─ Instance/agents-0         made by Rota, after Workspace/shop\n"
        "     └─ Instance/agents-1         made by Rota, after Workspace/shop\n"
        "\n"
        "Assumed\n"
        "  Secret/token   on the server, for Workspace/shop\n"
        "\n"
        "7 objects (5 made by Rota): 7 ready, 1 assumed\n"
    )


def test_what_is_made_for_an_object_is_drawn_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    def one(name: str, step: int, owner: str = "") -> Ready:
        return Ready(name, name, step, False, bool(owner), owner, [], "", 0)

    made = [one(f"Instance/p-{i}", 1, "WorkerPool/p") for i in range(10)]
    claim = one("QuotaClaim/p-0", 1, "Instance/p-0")
    objects = [*made, claim, one("WorkerPool/p", 2)]
    write_plan(Plan(True, objects, [], [], [], Summary(12, 11, 12, 0, 0, 0)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "Ready, in this order",
        "  2  WorkerPool/p",
        "     ├─ Instance/p-0        made by Rota",
        "     │  └─ QuotaClaim/p-0   made by Rota",
    ]
    assert lines[-1] == "     └─ … and 2 more" and len(lines) == 12


def test_a_namespace_is_that_of_objects_which_name_none(rota: Terminal) -> None:
    ran = rota("plan", "-n", "team", "-f", rota.write("a.yaml", WORKSPACE))
    assert ran.code == 0
    assert "Workspace/team/shop" in ran.out
    assert "Namespace/team      on the server, for Workspace/team/shop" in ran.out
    assert "Secret/team/token   on the server, for Workspace/team/shop" in ran.out


def test_manifests_may_come_from_standard_input(rota: Terminal) -> None:
    assert "Workspace/shop" in rota("plan", "-f", "-", stdin=WORKSPACE).out


def test_the_json_is_complete_and_the_same_on_every_run(rota: Terminal) -> None:
    file = rota.write("a.yaml", f"{WORKSPACE}---\n{POOL.replace('shop', 'ghost')}")
    ran = rota("plan", "-f", file, "-o", "json")
    plan = document(ran)
    assert ran.code == 1
    assert list(plan) == ["converges", "ready", "neverReady", "notHonoured", "assumed", "summary"]
    assert plan["ready"][0] == {
        "id": "workspaces.rota.dev/default/shop",
        "name": "Workspace/shop",
        "step": 1,
        "skipped": False,
        "made": False,
        "owner": "",
        "needs": ["secrets/default/token"],
        "source": file,
        "line": 1,
    }
    (cause,) = plan["neverReady"]
    assert (cause["type"], cause["id"]) == ("Missing", "workspaces.rota.dev/default/ghost")
    assert cause["heldUp"][0]["line"] == 6 and cause["heldUp"][0]["reason"] == "DependencyNotFound"
    assert plan["assumed"][0]["neededBy"] == ["workspaces.rota.dev/default/shop"]
    counts = {"objects": 5, "made": 3, "ready": 4, "neverReady": 1, "causes": 1, "assumed": 1}
    assert plan["summary"] == counts
    assert rota("plan", "-f", file, "-o", "json").out == ran.out


def test_every_field_of_the_json_is_documented(rota: Terminal) -> None:
    text = PAGE.read_text()

    def names(value: Any) -> set[str]:
        if isinstance(value, list):
            return {name for item in value for name in names(item)}
        return (
            set(value) | {name for item in value.values() for name in names(item)} if isinstance(value, dict) else set()
        )

    found = names(document(rota("plan", "-f", str(EXAMPLE), "-o", "json")))
    assert len(found) > 20
    assert not [name for name in found if f"`{name}" not in text and f".{name}" not in text]


def test_long_chains_and_large_circles_are_cut_in_the_text(rota: Terminal) -> None:
    def task(name: str, after: str) -> str:
        spec = f"{{command: ['true'], worker: {{}}, dependsOn: [{after}]}}"
        return f"apiVersion: rota.dev/v1alpha1\nkind: Task\nmetadata: {{name: {name}}}\nspec: {spec}\n"

    chain = [task(f"t{i}", f"t{i - 1}" if i else "ghost") for i in range(40)]
    circle = [task(f"c{i}", f"c{(i + 1) % 20}") for i in range(20)]
    ran = rota("plan", "-f", rota.write("a.yaml", "---\n".join(chain + circle)))
    assert "… and 28 more behind these" in ran.out
    assert "Task/c0 → Task/c1 → Task/c2 → Task/c3 → … → Task/c0 (20 in all) wait for each other" in ran.out
    assert "60 never ready (2 causes)" in ran.out


def test_a_controller_that_fails_is_told_in_words(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising(ObjectReconciler[Any]):
        async def sync(self, context: Context, obj: Any) -> Outcome:
            raise ZeroDivisionError("no workers")

    monkeypatch.setattr("rota.manifest.rehearsal.all_controllers", lambda: [Raising(WorkerPool)])
    file = rota.write("a.yaml", f"{POOL}---\n{TASK}")
    ran = rota("plan", "-f", file)
    assert (ran.code, ran.err) == (1, "")
    told = "WorkerPool/agents: controller workerpools.rota.dev failed: ZeroDivisionError: no workers"
    assert f"{told}   {file}:1\n" in ran.out
    assert rota("plan", "-f", file, "--explain", "wp/agents").code == 1


def test_what_is_in_no_server_is_corrected_in_its_file(rota: Terminal) -> None:
    boxes = "  template: {containers: [{name: main, command: [sleep, infinity]}]}"
    file = rota.write("a.yaml", f"{POOL.replace('  worker: {workspaceRef: {name: shop}}', boxes)}---\n{TASK}")
    ran = rota("plan", "-f", file)
    assert ran.code == 1 and f"→ correct Task/t: edit {file}:8\n" in ran.out and "`rota" not in ran.out
    explained = rota("plan", "-f", file, "--explain", "task/t")
    assert explained.code == 1 and explained.out.endswith(f"→ correct Task/t: edit {file}:8\n")
    assert document(rota("plan", "-f", file, "--explain", "task/t", "-o", "json"))["advice"].endswith(f"{file}:8")


def test_explain_of_what_waits_for_a_pool_without_workers_says_to_give_it_one(rota: Terminal) -> None:
    plain = POOL.replace("  worker: {workspaceRef: {name: shop}}", "  worker: {}").replace("2", "0")
    file = rota.write("a.yaml", f"{plain}---\n{TASK.replace('prompt: x', 'command: [x]')}")
    ran = rota("plan", "-f", file, "--explain", "task/t")
    assert ran.code == 1 and ran.out.startswith("Task/t   never ready")
    told = f"→ give WorkerPool/agents a worker: set its spec.replicas to 1 or more in {file}:1\n"
    assert ran.out.endswith(told)
    pool = rota("plan", "-f", file, "--explain", "wp/agents")
    assert pool.code == 0 and pool.out.startswith("WorkerPool/agents   ready in step")


# Invalid manifests.


def test_all_problems_of_all_files_are_told_with_their_lines(rota: Terminal) -> None:
    broken = rota.write("all/broken.yaml", "kind: [Task\n")
    twice = rota.write("all/twice.yaml", f"{POOL}---\n{POOL}")
    wrong = WORKSPACE.replace("{repo:", "{reff: main, repo:")
    unknown = rota.write("all/unknown.yaml", f"{POOL.replace('WorkerPool', 'WorkrPool')}---\n{wrong}")
    ran = rota("plan", "-f", str(rota.folder / "all"))
    assert ran.code == 2 and ran.out == ""
    places = [line.removeprefix("error: ").strip().split(": ")[0] for line in ran.err.splitlines()]
    assert places[:4] == [f"{broken}:2:1", f"{unknown}:2:7", f"{unknown}:11:8", f"{twice}:8:1"]
    assert "did you mean WorkerPool?" in ran.err and "is also at" in ran.err
    assert ran.err.endswith("\n  correct these 4 problems first\n"), "a plan changes nothing, so it need not say so"


def test_names_that_differ_only_in_a_namespace_left_out_are_duplicates(rota: Terminal) -> None:
    explicit = POOL.replace("{name: agents}", "{name: agents, namespace: default}")
    file = rota.write("a.yaml", f"{POOL}---\n{explicit}")
    ran = rota("plan", "-f", file)
    assert ran.code == 2
    assert f'{file}:8:1: metadata.name: WorkerPool "agents" is also at {file}:1' in ran.err


def test_an_empty_folder_is_an_error(rota: Terminal) -> None:
    (rota.folder / "empty").mkdir()
    ran = rota("plan", "-f", str(rota.folder / "empty"))
    assert ran.code == 2 and "no objects in it" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name what to read with -f"),
        (("-o", "xml"), "there is json"),
        (("--context", "prod"), "say --against prod"),
        (("--force",), "--force goes with --against"),
    ],
)
def test_bad_usage_says_what_to_do(rota: Terminal, arguments: tuple[str, ...], told: str) -> None:
    file = ("-f", rota.write("a.yaml", WORKSPACE)) if arguments else ()
    ran = rota("plan", *file, *arguments)
    assert ran.code == 2 and told in ran.err and ran.out == ""


# One object.


def test_explain_follows_an_object_down_to_the_cause(rota: Terminal) -> None:
    ran = rota("plan", "-f", str(EXAMPLE), "--explain", "task/shut-down-v1")
    assert ran.code == 1
    names = re.findall(r"(\w+/[\w-]+)   (?:never|not)", ran.out)
    chain = ["Task/shut-down-v1", "Task/verify", "Task/import", "Task/export", "WorkerPool/legacy", "Workspace/shop-v1"]
    assert [name for name in names if name in chain] == chain
    assert "ResolvedRefs=False  DependencyFailed" in ran.out
    assert "dependency cycle detected" in ran.out, "both causes are in it"
    assert "\n→ " in ran.out


def test_explain_shows_what_a_ready_object_took(rota: Terminal) -> None:
    ran = rota("plan", "-f", str(EXAMPLE), "--explain", "WorkerPool/agents")
    assert ran.code == 0
    assert ran.out.startswith("WorkerPool/agents   ready in step 3   ")
    assert "spec.worker.credentials.secretRef: Secret/model-key   assumed to be on the server" in ran.out
    assert "spec.worker.agentConfigRefs[0]: AgentConfig/house-rules   ready in step 1" in ran.out
    assert "→" not in ran.out


def test_explain_of_a_circle_ends_where_it_began(rota: Terminal) -> None:
    ran = rota("plan", "-f", str(EXAMPLE), "--explain", "Task/copy-rest")
    assert ran.code == 1
    assert ran.out.count("Task/copy-rest   never ready") == 2 and "never ready (see above)" in ran.out
    assert ran.out.endswith("→ take one of these references out\n")


def test_explain_takes_a_namespace_and_finds_the_only_one_without_it(rota: Terminal) -> None:
    file = rota.write("a.yaml", WORKSPACE.replace("{name: shop}", "{name: shop, namespace: team}"))
    for node in ("ws/team/shop", "Workspace/shop"):
        assert rota("plan", "-f", file, "--explain", node).out.startswith("Workspace/team/shop   ready in step 1")


def test_explain_as_json_is_the_chain(rota: Terminal) -> None:
    ran = rota("plan", "-f", str(EXAMPLE), "--explain", "task/import", "-o", "json")
    why = document(ran)
    assert ran.code == 1
    assert why["step"]["name"] == "Task/import" and why["root"]["name"] == "Workspace/shop-v1"


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("Task/reviw", "there is no Task/reviw in the plan\n  did you mean Task/review"),
        ("Tsk/review", 'no kind "Tsk"; did you mean task'),
        ("review", "write KIND/NAME"),
    ],
)
def test_explain_of_what_is_not_there_names_what_is_near(rota: Terminal, node: str, told: str) -> None:
    ran = rota("plan", "-f", str(EXAMPLE), "--explain", node)
    assert ran.code == 2 and told in ran.err and ran.out == ""


# Beside a server.


def test_against_a_server_each_object_is_created_changed_or_unchanged(rota: Terminal) -> None:
    token = "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {key: geheim}\n"
    file = rota.write("a.yaml", f"{token}---\n{WORKSPACE}---\n{POOL}")
    rota("apply", "-f", file)
    changed = f"{token.replace('geheim', 'anders')}---\n{WORKSPACE}---\n{POOL.replace('2', '3')}---\n{TASK}"
    ran = rota("plan", "-f", rota.write("b.yaml", changed), "--against", "staging")
    assert ran.code == 0, ran.out + ran.err
    assert (
        "Against staging: 1 to create, 2 to change, 1 unchanged\n"
        "  ~ Secret/token\n"
        "      data.key  *** → ***\n"
        "  ~ WorkerPool/agents\n"
        "      spec.replicas  2 → 3\n"
        "  + Task/t\n"
    ) in ran.out
    assert "Assumed" not in ran.out
    assert "anders" not in ran.out and "YW5kZXJz" not in ran.out
    assert rota.stored("WorkerPool", "agents")["spec"]["replicas"] == 2, "nothing was changed"


def test_against_a_server_what_is_missing_there_is_a_cause(rota: Terminal) -> None:
    ran = rota("plan", "-f", rota.write("a.yaml", WORKSPACE), "--against", "staging")
    assert ran.code == 1
    assert "Secret/token is neither in the manifests nor on the server" in ran.out


def test_against_a_server_what_is_only_there_is_used(rota: Terminal) -> None:
    async def act(client: Client) -> None:
        await client.create(pool())

    rota.act(act)
    file = rota.write("a.yaml", TASK)
    assert rota("plan", "-f", file).code == 1
    ran = rota("plan", "-f", file, "--against", "staging", "-o", "json")
    plan = document(ran)
    assert ran.code == 0 and [one["name"] for one in plan["ready"] if not one["made"]] == ["Task/t"]
    assert plan["against"]["objects"] == [
        {"id": "tasks.rota.dev/default/t", "name": "Task/t", "what": "create", "fields": []}
    ]
    assert (plan["against"]["context"], plan["against"]["create"]) == ("staging", 1)


def test_what_the_server_refuses_has_exit_code_2(rota: Terminal) -> None:
    lost = POOL.replace("{name: agents}", "{name: agents, namespace: nowhere}")
    file = rota.write("a.yaml", lost)
    ran = rota("plan", "-f", file, "--against", "staging")
    assert ran.code == 2 and f'{file}:1: namespaces "nowhere" not found' in ran.err
    assert "nothing was changed" not in ran.err


def live_plan(server: Live, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [ROTA, "plan", "--kubeconfig", str(server.kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_against_a_live_server_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{WORKSPACE}---\n{POOL}")
    with live(tmp_path / "home") as server:
        rota = [ROTA, "--home", str(server.home)]
        subprocess.run([*rota, "apply", "-f", str(tmp_path / "a.yaml")], check=True, capture_output=True, timeout=60)
        context = yaml.safe_load(server.kubeconfig.read_text())["current-context"]
        (tmp_path / "a.yaml").write_text(f"{WORKSPACE}---\n{POOL.replace('2', '5')}")
        ran = live_plan(server, "-f", str(tmp_path / "a.yaml"), "--against", context)
        assert ran.returncode == 1, ran.stderr
        assert "Secret/token is neither in the manifests nor on the server" in ran.stdout
        assert "0 to create, 1 to change, 1 unchanged" in ran.stdout
        assert "spec.replicas  2 → 5" in ran.stdout
        got = subprocess.run(
            [*rota, "get", "wp", "agents", "-o", "json"], capture_output=True, text=True, timeout=60, check=True
        )
        assert json.loads(got.stdout)["spec"]["replicas"] == 2
        unknown = live_plan(server, "-f", str(tmp_path / "a.yaml"), "--against", "nowhere")
        assert unknown.returncode == 2 and "nowhere" in unknown.stderr


FAILING = """\
apiVersion: rota.dev/v1alpha1
kind: Function
metadata: {name: syn}
spec: {entrypoint: "app:handler", source: {inline: "raise ValueError('not today')"}}
---
apiVersion: rota.dev/v1alpha1
kind: Workspace
metadata: {name: gone}
spec: {repo: "file:///there/is/no/such.git"}
---
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: wsbad}
spec: {worker: {workspaceRef: {name: gone}}}
---
apiVersion: rota.dev/v1alpha1
kind: TaskSpawner
metadata: {name: sp}
spec:
  source: {github: {repo: o/r, apiURL: "https://evil.example"}}
  taskTemplate: {command: ["true"], worker: {}}
"""
ON_FAILING = """\
apiVersion: rota.dev/v1alpha1
kind: Schedule
metadata: {name: tick}
spec: {cron: "@daily", target: {functionRef: {name: syn}}}
---
apiVersion: rota.dev/v1alpha1
kind: Task
metadata: {name: onpool}
spec: {command: [date], workerPoolRef: {name: wsbad}}
---
apiVersion: rota.dev/v1alpha1
kind: Task
metadata: {name: calls}
spec: {function: {name: syn}}
"""


def test_against_a_live_server_what_failed_there_stays_failed(tmp_path: Path) -> None:
    (tmp_path / "failing.yaml").write_text(FAILING)
    (tmp_path / "on.yaml").write_text(ON_FAILING)
    reasons = {
        "function/syn": "ImportFailed",
        "workerpool/wsbad": "ConfigurationError",
        "taskspawner/sp": "ApiNotAllowed",
    }
    with live(tmp_path / "home") as server:
        rota = [ROTA, "--home", str(server.home)]
        failing = str(tmp_path / "failing.yaml")
        subprocess.run([*rota, "apply", "-f", failing], check=True, capture_output=True, timeout=60)
        for name, reason in reasons.items():
            goal = f"--for=jsonpath={{.status.conditions[?(@.type=='Ready')].reason}}={reason}"
            waited = subprocess.run([*rota, "wait", name, goal, "--timeout=60s"], capture_output=True, timeout=90)
            assert waited.returncode == 0, (name, waited)
        context = yaml.safe_load(server.kubeconfig.read_text())["current-context"]
        files = ("-f", failing, "-f", str(tmp_path / "on.yaml"))
        ran = live_plan(server, *files, "--against", context, "-o", "json")
    assert ran.returncode == 1, ran.stderr
    causes = {cause["name"]: cause for cause in json.loads(ran.stdout)["neverReady"]}
    assert set(causes) == {"Function/syn", "WorkerPool/wsbad", "TaskSpawner/sp"}
    assert "not today" in causes["Function/syn"]["message"]
    assert "RepositoryNotFound" in causes["WorkerPool/wsbad"]["message"]
    held_up = {name: [one["name"] for one in cause["heldUp"]] for name, cause in causes.items()}
    assert held_up["WorkerPool/wsbad"] == ["Task/onpool"]
    assert held_up["Function/syn"] == ["Schedule/tick", "Task/calls"]
