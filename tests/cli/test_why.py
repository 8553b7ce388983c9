"""`rota why`, against a server that runs its controllers."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rota.api import KINDS
from rota.cli import main
from rota.cli import why as command
from rota.client import Client
from tests.cli.conftest import Ran, Terminal
from tests.server.live import Live, live
from tests.until import until

Object = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("why") / "home") as started:
        yield started


@pytest.fixture
def namespace(server: Live, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name: str = request.node.name.replace("_", "-")[:60].strip("-")
    act(server, "default", lambda client: client.create(obj("Namespace", name)))
    return name


def obj(kind: str, name: str, spec: Any = None, **meta: Any) -> Object:
    body: Object = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": name, **meta}}
    return body if spec is None else {**body, "spec": spec}


def act(server: Live, namespace: str, *what: Callable[[Client], Any]) -> None:
    async def acting() -> None:
        client = Client.connect(home=str(server.home), namespace=namespace)
        try:
            for one in what:
                await one(client)
        finally:
            await client.close()

    asyncio.run(acting())


def create(server: Live, namespace: str, *objects: Object) -> None:
    act(server, namespace, *(lambda client, one=one: client.create(one) for one in objects))


def why(server: Live, namespace: str, *arguments: str, watching: Callable[[str], None] | None = None) -> Ran:
    """Return the outcome of the command. `watching` gets the screen whenever something is added."""
    out, err = Screen(watching), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["why", *arguments, "--home", str(server.home), "-n", namespace])
    return Ran(code, out.getvalue(), err.getvalue())


class Screen(io.StringIO):
    def __init__(self, watching: Callable[[str], None] | None) -> None:
        super().__init__()
        self._watching = watching

    def flush(self) -> None:
        super().flush()
        if self._watching is not None:
            self._watching(self.getvalue())


def why_until(server: Live, namespace: str, target: str, *texts: str) -> Ran:
    """Ask until all of this is in the answer: controllers take a moment."""
    ran: Ran | None = None

    def found() -> bool:
        nonlocal ran
        ran = why(server, namespace, target)
        return all(text in ran.out for text in texts)

    until(found, lambda: ran)
    assert ran is not None
    return ran


WORKSPACE = obj("Workspace", "repo", {"repo": "https://example.com/shop", "secretRef": {"name": "token"}})
POOL = obj("WorkerPool", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})
SECRET = obj("Secret", "token")


def task(name: str, **spec: Any) -> Object:
    return obj("Task", name, {"prompt": "x", "workerPoolRef": {"name": "agents"}, **spec})


def test_the_chain_is_a_tree_with_the_next_step_below(server: Live, namespace: str) -> None:
    create(server, namespace, WORKSPACE, POOL)
    first = f"│  DependencyNotReady: not ready: Workspace/{namespace}/repo (DependencyNotFound)"
    ran = why_until(server, namespace, "wp/agents", first)
    assert ran.code == 1 and ran.err == ""
    shown = [line.partition("  Pending for")[0] for line in ran.out.splitlines()]
    assert shown[:6] == [
        f"WorkerPool/{namespace}/agents",
        first,
        f"└─ Workspace/{namespace}/repo (spec.worker.workspaceRef)",
        f"   │  DependencyNotFound: dependency not found: Secret/{namespace}/token (spec.secretRef)",
        f"   └─ Secret/{namespace}/token (spec.secretRef)  Absent",
        f"         NotFound: not found; referred to by Workspace/{namespace}/repo",
    ]
    assert "conditions:" in shown and shown[-2] == ""
    create_it = f"`KUBECONFIG={server.home}/kubeconfig kubectl create secret generic token "
    assert shown[-1].startswith(f"next: create Secret/{namespace}/token: {create_it}")
    assert f"-n {namespace}`" in shown[-1]


def test_events_are_shown(server: Live, namespace: str) -> None:
    create(server, namespace, WORKSPACE)
    ran = why_until(server, namespace, "workspace/repo", "events:")
    assert ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"] in ran.lines
    assert any(words[1:4] == ["Warning", "DependencyNotFound", f"Workspace/{namespace}/repo"] for words in ran.lines)


def test_a_kind_and_a_name_may_be_two_words(server: Live, namespace: str) -> None:
    create(server, namespace, SECRET)
    assert why(server, namespace, "secret", "token").code == 0


def test_what_is_ready_is_one_line(server: Live, namespace: str) -> None:
    create(server, namespace, SECRET, WORKSPACE)
    ran = why_until(server, namespace, "workspace/repo", "is ready")
    assert ran.code == 0 and len(ran.out.splitlines()) == 1
    assert ran.out.startswith(f"Workspace/{namespace}/repo is ready since 20")


def test_what_is_paused_is_ready_and_said_to_be_paused(server: Live, namespace: str) -> None:
    spec = {"cron": "@daily", "enabled": False, "target": {"taskTemplate": {"command": ["x"], "worker": {}}}}
    create(server, namespace, obj("Schedule", "quiet", spec))
    ran = why_until(server, namespace, "sched/quiet", "is ready")
    assert ran.code == 0 and ran.out.endswith("), but paused\n")


def test_what_a_person_has_to_correct_is_not_waited_for(server: Live, namespace: str) -> None:
    code = {"entrypoint": "app:handler", "source": {"inline": ""}}
    create(server, namespace, obj("Function", "far", {**code, "regions": ["tokyo"]}))
    ran = why_until(server, namespace, "fn/far", "RegionNotServed")
    assert ran.out.splitlines()[-1].startswith(f"next: correct the regions of Function/{namespace}/far, or leave them")


NO_REPO = obj("Workspace", "gone", {"repo": "file:///there/is/no/such.git"})
DATE = {"command": ["date"]}


def last(ran: Ran) -> str:
    return ran.out.splitlines()[-1]


def test_who_waits_for_workers_that_cannot_come_up_is_told_what_to_correct(server: Live, namespace: str) -> None:
    create(
        server,
        namespace,
        NO_REPO,
        obj("WorkerPool", "wsbad", {"worker": {"workspaceRef": {"name": "gone"}}}),
        obj("Task", "t", {**DATE, "workerPoolRef": {"name": "wsbad"}}),
        obj("Claim", "c", {"poolRef": {"name": "wsbad"}, "waitSeconds": 3600}),
    )
    advice = f"next: correct the repo of Workspace/{namespace}/gone, or make the repository: `rota"
    for target in ("wp/wsbad", "task/t", "claim/c"):
        ran = why_until(server, namespace, target, "RepositoryNotFound")
        assert ran.code == 1 and last(ran).startswith(advice), ran.out
    ran = why_until(server, namespace, "ws/gone", "RepositoryNotFound")
    assert "It cannot go on all the same:\n" in ran.out and "Instance/" in ran.out
    assert last(ran).startswith(advice) and "edit workspace/gone" in last(ran)


def test_who_waits_for_workers_that_lack_a_program_is_told_to_install_it(server: Live, namespace: str) -> None:
    worker = {"type": "claude-code", "env": [{"name": "PATH", "value": "/nowhere"}]}
    create(
        server,
        namespace,
        obj("WorkerPool", "cc", {"worker": worker}),
        obj("Task", "t", {"prompt": "hi", "workerPoolRef": {"name": "cc"}}),
    )
    ran = why_until(server, namespace, "task/t", "ProgramNotFound")
    told = f"next: install the program that WorkerPool/{namespace}/cc lacks, or correct its worker: `rota"
    assert last(ran).startswith(told), ran.out


def test_who_waits_for_a_pool_without_workers_is_told_to_give_it_one(server: Live, namespace: str) -> None:
    create(
        server,
        namespace,
        obj("WorkerPool", "zero", {"worker": {}, "replicas": 0}),
        obj("Task", "t", {**DATE, "workerPoolRef": {"name": "zero"}}),
        obj("Claim", "c", {"poolRef": {"name": "zero"}, "waitSeconds": 3600}),
    )
    for target in ("task/t", "claim/c"):
        ran = why_until(server, namespace, target, "which has none")
        assert last(ran).startswith(f"next: give WorkerPool/{namespace}/zero a worker: `rota"), ran.out
        assert "scale workerpool/zero --replicas=1" in last(ran)


def test_who_waits_for_a_busy_worker_is_told_to_wait(server: Live, namespace: str) -> None:
    hold = {"command": ["sleep", "600"], "workerPoolRef": {"name": "half"}}
    create(server, namespace, obj("WorkerPool", "half", {"worker": {}, "replicas": 1}), obj("Task", "first", hold))
    why_until(server, namespace, "wp/half", "is ready")
    create(server, namespace, obj("Task", "second", hold))
    # At first it may say that the task is being looked at right now.
    why_until(server, namespace, "task/second", "1 of 1 busy", f"\nnext: wait for Task/{namespace}/second")


def test_a_spawner_whose_api_is_not_allowed_is_not_waited_for(server: Live, namespace: str) -> None:
    source = {"github": {"repo": "o/r", "apiURL": "https://evil.example"}}
    create(server, namespace, obj("TaskSpawner", "sp", {"source": source, "taskTemplate": {**DATE, "worker": {}}}))
    ran = why_until(server, namespace, "taskspawner/sp", "ApiNotAllowed")
    assert last(ran).startswith(f"next: allow the API as TaskSpawner/{namespace}/sp says, or correct its apiURL: `rota")


def test_colour_is_for_terminals(server: Live, namespace: str) -> None:
    create(server, namespace, WORKSPACE)
    assert "\x1b" not in why_until(server, namespace, "workspace/repo", "Absent").out


def test_a_circle_ends_where_it_began(server: Live, namespace: str) -> None:
    create(server, namespace, POOL, task("a", dependsOn=["b"]), task("b", dependsOn=["a"]))
    back = f"└─ Task/{namespace}/a (spec.dependsOn[0])  Pending, as above"
    ran = why_until(server, namespace, "task/a", back)
    assert "next: break the circle" in ran.out


def test_what_a_failed_task_wrote_is_shown_line_by_line(server: Live, namespace: str) -> None:
    shell = obj("WorkerPool", "agents", {"worker": {"type": "shell"}})
    script = "echo first; echo last; exit 3"
    made = obj("Task", "bad", {"command": ["sh", "-c", script], "workerPoolRef": {"name": "agents"}})
    create(server, namespace, shell, made)
    ran = why_until(server, namespace, "task/bad", " retry ")
    assert "\\n" not in ran.out
    assert [line.strip() for line in ran.out.splitlines()[1:3]] == ["Failed: first", "last"]
    assert ran.out.splitlines()[-1] == (
        f"next: see what it wrote: `rota --home {server.home} logs task/bad -n {namespace}`;"
        f" then run it once more: `rota --home {server.home} retry task/bad -n {namespace}`"
    )


def test_the_answer_can_be_json(server: Live, namespace: str) -> None:
    create(server, namespace, WORKSPACE)
    why_until(server, namespace, "workspace/repo", "Absent")
    ran = why(server, namespace, "workspace/repo", "-o", "json")
    answer = json.loads(ran.out)
    assert ran.code == 1 and answer["root"]["verdict"] == "Missing" and answer["step"]["state"] == "Pending"


def test_what_is_not_there_and_what_is_meant_wrongly_is_refused(server: Live, namespace: str) -> None:
    ran = why(server, namespace, "task/none")
    assert (ran.code, ran.err) == (1, f'error: tasks.rota.dev "none" not found\n  namespace {namespace} has no tasks\n')
    for arguments in (("tasks",), ("task", "a", "b"), ("task/a", "-o", "wide")):
        assert why(server, namespace, *arguments).code == 2


def test_watching_ends_when_the_object_is_ready(server: Live, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "WATCH_SECONDS", 0.05)
    create(server, namespace, WORKSPACE)
    why_until(server, namespace, "workspace/repo", "Absent")
    helped: list[Thread] = []

    def help_it(screen: str) -> None:
        if "next: create" in screen and not helped:
            thread = Thread(target=create, args=(server, namespace, SECRET))
            helped.append(thread)
            thread.start()

    ran = why(server, namespace, "workspace/repo", "--watch", watching=help_it)
    helped[0].join()
    assert ran.code == 0 and ran.out.splitlines()[-1].startswith(f"Workspace/{namespace}/repo is ready")
    assert ran.out.count("\n--- ") >= 1


def test_watching_ends_when_the_object_has_failed(server: Live, namespace: str) -> None:
    create(server, namespace, POOL, task("build"))
    ran = why(server, namespace, "task/build", "--watch")
    assert ran.code == 1 and "NotAnAgent: a prompt is for a worker" in ran.out
    again = f"`rota --home {server.home} retry task/build -n {namespace}`"
    assert f"next: put right what it says, and run it once more: {again}" in ran.out


def test_watching_ends_when_the_object_is_gone(server: Live, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "WATCH_SECONDS", 0.05)
    create(server, namespace, WORKSPACE)
    removed: list[Thread] = []

    def remove(screen: str) -> None:
        if "next: " in screen and not removed:
            delete = lambda client: client.delete(KINDS["Workspace"], "repo")  # noqa: E731
            thread = Thread(target=act, args=(server, namespace, delete))
            removed.append(thread)
            thread.start()

    ran = why(server, namespace, "workspace/repo", "--watch", watching=remove)
    removed[0].join()
    assert ran.code == 1 and f"Workspace/{namespace}/repo is gone, and nothing refers to it" in ran.err


# How an answer looks, whatever it is.


def answer(step: Object, **more: Any) -> Object:
    whole = {"id": "tasks.rota.dev/default/a", "name": "Task/a", "state": "Pending", "verdict": "Working", **step}
    return {
        "step": whole,
        "root": whole,
        "advice": "",
        "over": False,
        "events": [],
        "time": "2026-01-01T00:10:00Z",
    } | more


def test_an_error_shows_how_often_and_when_again(capsys: pytest.CaptureFixture[str]) -> None:
    step = {"verdict": "Error", "reason": "ReconcileFailed", "message": "no route", "runs": 7, "againSeconds": 12.4}
    command._write(answer({**step, "waitingSeconds": 75.0}), "")
    assert capsys.readouterr().out == (
        "Task/a  Pending for 75s\n"
        "   ReconcileFailed: no route\n"
        "   looked at 7 times since it last came to rest, again in 12s\n"
    )


def test_what_is_left_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    inner = {"id": "x", "name": "Task/b", "state": "Absent", "verdict": "Missing", "hidden": True}
    command._write(answer({"causes": [inner], "leftOut": 6, "moreCauses": 3, "since": "2026-01-01T00:00:00Z"}), "")
    assert capsys.readouterr().out == (
        "Task/a  Pending for 10m\n"
        "┆  6 steps further down:\n"
        "├─ Task/b  Absent\n"
        "│     you may not read it\n"
        "└─ and 3 more\n"
    )


def test_what_is_ready_but_cannot_go_on_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    ready = answer({"state": "Ready", "verdict": "Error", "message": "no route", "runs": 1}, advice="do it")
    command._write(ready, "")
    assert capsys.readouterr().out.splitlines() == [
        "Task/a is ready",
        "It cannot go on all the same:",
        "Task/a  Ready",
        "   no route",
        "   looked at 1 time since it last came to rest",
        "",
        "next: do it",
    ]


def test_nothing_that_a_terminal_would_obey_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command._write(answer({"message": "\x1b[2J", "name": "Task/\x07"}, advice="\x1b]0;x"), "")
    assert "\x1b" not in (out := capsys.readouterr().out) and "\x07" not in out


def test_what_is_the_same_but_for_its_age_is_not_told_anew() -> None:
    step = {"waitingSeconds": 1.0, "engine": "parked", "runs": 1}
    later = {"waitingSeconds": 2.0, "engine": "runnable", "runs": 2}
    assert command._lasting(answer(step)) == command._lasting(answer(later, time="2026-01-01T00:11:00Z"))
    assert command._lasting(answer(step)) != command._lasting(answer({"message": "new"}))


# Servers that cannot tell.


def test_without_a_server_of_rotas_it_says_where_to_ask(rota: Terminal) -> None:
    ran = rota("why", "task/a")
    assert ran.code == 1 and "the server there is not Rota's" in ran.err and "`rota describe task/a`" in ran.err


class Cluster(BaseHTTPRequestHandler):
    """Answers as a Kubernetes API server does on a path that it does not know."""

    code = 404
    text = "404 page not found"

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextmanager
def cluster(code: int, text: str, folder: Path) -> Iterator[Path]:
    http = HTTPServer(("127.0.0.1", 0), type("Answering", (Cluster,), {"code": code, "text": text}))
    serving = Thread(target=http.serve_forever)
    serving.start()
    config = {
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{http.server_port}"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield folder / "kubeconfig"
    finally:
        http.shutdown()
        serving.join()
        http.server_close()


FORBIDDEN = json.dumps(
    {
        "kind": "Status",
        "status": "Failure",
        "reason": "Forbidden",
        "message": 'forbidden: User "jo" cannot get path "/v1/why/tasks/default/a"',
        "code": 403,
    }
)


@pytest.mark.parametrize(("code", "text"), [(404, "404 page not found"), (403, FORBIDDEN)])
def test_a_cluster_says_where_to_ask(code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(code, text, tmp_path) as kubeconfig:
        assert main(["why", "task/a", "--kubeconfig", str(kubeconfig), "--context", "test"]) == 1
    assert "the server there is not Rota's" in capsys.readouterr().err
