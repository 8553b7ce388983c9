"""`rota run`, `cancel`, `retry`, and `wait` for tasks: what they ask for and what they say; nothing runs here."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota import Client
from rota.api import Task
from rota.api.model import VALUE_LENGTH_MAX
from rota.api.task import TaskSpec
from rota.cli.run import stem
from rota.cli.task_wait import BAR_LENGTH, FULL, bar
from rota.control.tasks.templating import given as given_to
from tests.cli.conftest import Ran, Terminal, pool, until

Object = dict[str, Any]


def task(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"command": ["make"], "workerPoolRef": {"name": "agents"}, **spec},
    }


async def set_status(client: Client, name: str, phase: str, **status: Any) -> None:
    await client.patch(Task.api, name, {"status": {"phase": phase, **status}}, subresource="status")


@pytest.fixture
def made(rota: Terminal) -> Terminal:
    """There is a pool."""
    rota.act(lambda client: client.create(pool()))
    return rota


@pytest.fixture
def crowd(made: Terminal) -> Terminal:
    """There are tasks: one that is over, and two that are not."""

    async def create(client: Client) -> None:
        for name, app in (("done", "shop"), ("busy", "shop"), ("idle", "mail")):
            await client.create(task(name, {"app": app}))
        await set_status(client, "done", "Succeeded")
        await set_status(client, "busy", "Running", instanceName="agents-0")

    made.act(create)
    return made


# Run.


def run(rota: Terminal, *argv: str, stdin: str = "") -> Object:
    """The task that was made."""
    ran = rota("run", *argv, stdin=stdin)
    assert ran.code == 0, ran.err
    kind, _, name = ran.out.strip().partition("/")
    assert kind == "task.rota.dev"
    return rota.stored("Task", name)


def test_a_command_becomes_a_task_of_the_only_pool(made: Terminal) -> None:
    stored = run(made, "--", "/usr/bin/make", "-j2", "all")
    assert stored["spec"]["command"] == ["/usr/bin/make", "-j2", "all"]
    assert stored["spec"]["workerPoolRef"] == {"name": "agents"}
    assert stored["metadata"]["name"].startswith("make-")


def test_a_prompt_becomes_a_task(made: Terminal) -> None:
    stored = run(made, "-p", "Fix the login, please")
    assert stored["spec"]["prompt"] == "Fix the login, please" and "command" not in stored["spec"]
    assert stored["metadata"]["name"].startswith("fix-the-login-please-")


def test_everything_that_is_said_of_a_task_is_in_it(made: Terminal) -> None:
    options = ["--name", "build", "--timeout", "1m30s", "--priority", "-5", "--branch", "main"]
    stored = run(made, *options, "--depends-on", "fetch", "--depends-on", "task/check", "--", "make")
    assert stored["metadata"]["name"] == "build"
    expected = {"timeoutSeconds": 90, "priority": -5, "branch": "main", "dependsOn": ["fetch", "check"]}
    assert {name: stored["spec"][name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/usr/bin/python3.11", "python3-11"),
        ("shop.orders:close", "shop-orders-close"),
        ("Look at src/a.py and tidy it up, then run all of the tests", "look-at-src-a-py-and-tidy-it-up-then-run"),
        ("...", "task"),
        ("./", "task"),
    ],
)
def test_a_task_is_named_after_what_it_does(text: str, name: str) -> None:
    assert stem(text) == name


def test_standard_input_is_given_only_when_it_is_asked_for(made: Terminal) -> None:
    assert run(made, "-i", "--", "cat", stdin="ein Käse\n")["spec"]["stdin"] == "ein Käse\n"
    assert "stdin" not in run(made, "--", "cat", stdin="not this")["spec"]


def test_more_input_than_a_task_can_have_is_refused(made: Terminal) -> None:
    assert len(run(made, "-i", "--", "cat", stdin="ä" * VALUE_LENGTH_MAX)["spec"]["stdin"]) == VALUE_LENGTH_MAX
    ran = made("run", "-i", "--", "cat", stdin="ä" * (VALUE_LENGTH_MAX + 1))
    assert ran.code == 2 and "65536 characters at most" in ran.err


def test_what_is_no_text_is_refused(made: Terminal) -> None:
    ran = made("run", "--", "cat", "\udcff")
    assert ran.code == 2 and "not text" in ran.err


def test_without_a_pool_nothing_is_made(rota: Terminal) -> None:
    template = {"containers": [{"name": "main", "command": ["sleep", "9"]}]}
    boxes = {**pool("boxes"), "spec": {"template": template}}
    rota.act(lambda client: client.create(boxes))
    ran = rota("run", "--", "make")
    assert ran.code == 1 and "no pool in namespace default has workers" in ran.err
    assert rota("get", "task").out == ""


def test_of_several_pools_one_has_to_be_named(made: Terminal) -> None:
    made.act(lambda client: client.create(pool("shells")))
    ran = made("run", "--", "make")
    assert (ran.code, ran.err) == (1, "error: name the pool with --pool: there are agents, shells\n")
    assert run(made, "--pool", "shells", "--", "make")["spec"]["workerPoolRef"] == {"name": "shells"}


def test_a_pool_that_is_not_there_is_refused_with_those_that_are(made: Terminal) -> None:
    ran = made("run", "--pool", "agnets", "--", "make")
    said = 'error: workerpools.rota.dev "agnets" not found; did you mean agents?\n  namespace default has agents\n'
    assert ran == Ran(1, "", said)
    assert made("get", "tasks").out == ""


@pytest.mark.parametrize("options", [(), ("--pool", "agents")])
def test_a_namespace_that_is_not_there_is_told(made: Terminal, options: tuple[str, ...]) -> None:
    ran = made("run", "-n", "nowhere", *options, "--", "make")
    assert ran.code == 1 and ran.err.startswith("error: there is no namespace nowhere; there are: default")


def test_what_is_piped_in_is_data_whatever_is_in_it(made: Terminal) -> None:
    text = "{{ tasks.build.outputs.image }} and {{ more }}\n"
    stored = run(made, "-i", "--", "cat", stdin=text)["spec"]["stdin"]
    assert given_to(TaskSpec(command=["cat"], stdin=stored), []).stdin == text


def test_nothing_is_made_that_could_not_be_followed(made: Terminal) -> None:
    ran = made("run", "-f", "--", "make")
    assert ran.code == 1 and "is not Rota's" in ran.err
    assert made("get", "task").out == ""


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "say what to run"),
        (("-p", "fix it", "--", "make"), "not both: leave out -p, or what is after --"),
        (("-i", "-p", "fix it"), "--stdin goes with a command"),
        (("--timeout", "soon", "--", "make"), '"soon" is no time span'),
        (("--priority", "9999", "--", "make"), "9999 is not in the range"),
    ],
)
def test_bad_usage_of_run_is_2(made: Terminal, argv: tuple[str, ...], says: str) -> None:
    ran = made("run", *argv)
    assert ran.code == 2 and says in ran.err


# Cancel.


def is_cancelled(rota: Terminal, name: str) -> bool:
    asked: bool = rota.stored("Task", name)["spec"]["cancel"]
    return asked


def test_tasks_are_cancelled_and_what_was_over_is_said(crowd: Terminal) -> None:
    ran = crowd("cancel", "task/done", "task/busy", "task/idle")
    assert (ran.code, ran.out.splitlines()) == (
        0,
        [
            "task.rota.dev/done was over already: Succeeded",
            "task.rota.dev/busy is being cancelled",
            "task.rota.dev/idle is being cancelled",
        ],
    )
    assert [is_cancelled(crowd, name) for name in ("done", "busy", "idle")] == [False, True, True]


@pytest.mark.parametrize("words", [(), ("task",)])
def test_tasks_are_cancelled_by_their_labels(crowd: Terminal, words: tuple[str, ...]) -> None:
    assert crowd("cancel", *words, "-l", "app=shop").out == "task.rota.dev/busy is being cancelled\n"
    assert not is_cancelled(crowd, "idle")


def test_labels_that_select_nothing_are_said(crowd: Terminal) -> None:
    assert crowd("cancel", "-l", "app=none") == Ran(0, "", "no task is selected\n")


def test_one_that_is_not_there_does_not_keep_others_from_being_cancelled(crowd: Terminal) -> None:
    ran = crowd("cancel", "task", "nothing", "idle")
    assert ran.code == 1 and '"nothing" not found' in ran.err
    assert is_cancelled(crowd, "idle")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "name tasks"),
        (("task",), "name tasks"),
        (("wp/agents",), "name tasks"),
        (("task/a", "-l", "app=shop"), "does not go with --selector"),
    ],
)
def test_bad_usage_of_cancel_is_2(rota: Terminal, argv: tuple[str, ...], says: str) -> None:
    ran = rota("cancel", *argv)
    assert ran.code == 2 and says in ran.err


# Retry.


def over(rota: Terminal, name: str, phase: str = "Failed", **spec: Any) -> None:
    async def create(client: Client) -> None:
        await client.create(task(name, {"app": "shop", "rota.dev/spawner": "hooks"}, **spec))
        await client.patch(Task.api, name, {"spec": {"cancel": True}})
        await set_status(client, name, phase)

    rota.act(create)


def test_a_retry_is_a_new_task_of_the_same_spec(made: Terminal) -> None:
    over(made, "build", branch="main", timeoutSeconds=9)
    assert made("retry", "task/build") == Ran(0, "task.rota.dev/build-retry-1\n", "")
    first, again = made.stored("Task", "build"), made.stored("Task", "build-retry-1")
    assert again["spec"] == {**first["spec"], "cancel": False}
    assert again["metadata"]["labels"] == {"app": "shop", "rota.dev/retry-of": "build"}


def test_retries_are_counted_from_the_first_task(made: Terminal) -> None:
    over(made, "build")
    made("retry", "task/build")
    made.act(lambda client: set_status(client, "build-retry-1", "Cancelled"))
    assert made("retry", "task/build-retry-1").out == "task.rota.dev/build-retry-2\n"
    assert made("retry", "task/build").out == "task.rota.dev/build-retry-3\n"
    assert made.stored("Task", "build-retry-2")["metadata"]["labels"]["rota.dev/retry-of"] == "build"


def test_a_name_that_somebody_took_is_passed_over(made: Terminal) -> None:
    over(made, "build")
    over(made, "build-retry-1")
    assert made("retry", "task/build").out == "task.rota.dev/build-retry-2\n"


def test_a_long_name_is_cut_so_that_it_can_be_a_label(made: Terminal) -> None:
    name = "build-" + "x" * 80
    over(made, name)
    first, second = (made("retry", f"task/{name}").out.strip().partition("/")[2] for _ in range(2))
    assert first.endswith("-retry-1") and second == first.removesuffix("1") + "2" and len(first) <= 63


def test_what_is_not_over_is_not_retried(crowd: Terminal) -> None:
    ran = crowd("retry", "task/done", "task/busy")
    assert ran == Ran(1, "", "error: task.rota.dev/busy is not over: it is Running; `rota cancel task/busy` ends it\n")
    assert "retry" not in crowd("get", "task", "-o", "name").out, "all of them, or none"


def test_bad_usage_of_retry_is_2(rota: Terminal) -> None:
    assert rota("retry", "wp/agents").code == 2


# Wait.


def test_tasks_are_waited_for_until_they_are_over(crowd: Terminal) -> None:
    async def meanwhile(client: Client, screen: io.StringIO) -> None:
        await until(screen, "done succeeded")
        await set_status(client, "idle", "Running")
        times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01.25Z"}
        await set_status(client, "busy", "Succeeded", **times)
        await until(screen, "busy succeeded")
        await set_status(client, "idle", "Succeeded")

    ran = crowd("wait", "task/done", "task/busy", "task/idle", meanwhile=meanwhile)
    assert (ran.code, ran.out.splitlines(), ran.err) == (
        0,
        [
            "task.rota.dev/done succeeded",
            "task.rota.dev/busy succeeded in 1.2s",
            "task.rota.dev/idle succeeded",
        ],
        "",
    )


def test_that_one_cannot_go_on_by_itself_is_said_while_it_is_waited_for(crowd: Terminal) -> None:
    async def stick(client: Client) -> None:
        ring = "dependency cycle detected: Task/idle → Task/busy → Task/idle"
        await set_status(client, "idle", "Waiting", reason="DependencyCycle", message=ring)

    crowd.act(stick)
    ran = crowd("wait", "task/idle", "--timeout", "100ms")
    assert ran.code == 1
    assert ran.err.splitlines()[0] == (
        "task.rota.dev/idle: Waiting (DependencyCycle: dependency cycle detected: Task/idle → Task/busy → Task/idle)"
    )


def test_one_that_failed_is_named_with_its_message(crowd: Terminal) -> None:
    async def end(client: Client) -> None:
        await set_status(client, "busy", "Failed", reason="Timeout", message="it took longer than 3 s\nlast line")

    crowd.act(end)
    ran = crowd("wait", "task", "done", "busy")
    assert (ran.code, ran.out) == (1, "task.rota.dev/done succeeded\n")
    assert ran.err == "error: task.rota.dev/busy failed: Timeout: it took longer than 3 s\n  last line\n"


def test_one_that_was_cancelled_has_not_succeeded(crowd: Terminal) -> None:
    crowd.act(lambda client: set_status(client, "busy", "Cancelled", reason="Cancelled", message="it was cancelled"))
    assert crowd("wait", "task/busy") == Ran(1, "", "error: task.rota.dev/busy was cancelled\n")


def test_one_that_is_deleted_has_not_succeeded(crowd: Terminal) -> None:
    async def meanwhile(client: Client, screen: io.StringIO) -> None:
        await until(screen, "done succeeded")
        await client.delete(Task.api, "busy")

    ran = crowd("wait", "-l", "app=shop", meanwhile=meanwhile)
    assert ran == Ran(1, "task.rota.dev/done succeeded\n", "error: task.rota.dev/busy is gone\n")


def test_the_end_of_patience_says_how_each_is(crowd: Terminal) -> None:
    crowd.act(lambda client: set_status(client, "idle", "Waiting", reason="BranchLocked", message="main is held"))
    ran = crowd("wait", "task", "--all", "--timeout", "50ms")
    assert ran.code == 1 and ran.err.splitlines() == [
        "error: task.rota.dev/busy is not over in time; it is Running on agents-0",
        "error: task.rota.dev/idle is not over in time; it is Waiting (BranchLocked: main is held)",
    ]


def test_a_goal_may_be_named_for_tasks_too(crowd: Terminal) -> None:
    assert crowd("wait", "task/busy", "--for=jsonpath={.status.phase}=Running").code == 0


@given(counts=some.lists(some.integers(0, 300), min_size=4, max_size=4), left=some.integers(1, 300))
def test_a_bar_always_has_its_length(counts: list[int], left: int) -> None:
    over = Counter(dict(zip(("Succeeded", "Failed", "Cancelled", "Gone"), counts, strict=True)))
    texts = [text for text, _ in bar(over, sum(counts) + left)]
    assert len("".join(texts)) == BAR_LENGTH and texts[-1], "it is full when nothing is left, and not before"
    full = "".join(text for text, _ in bar(over + Counter(Succeeded=left), sum(counts) + left))
    assert full == FULL * BAR_LENGTH


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (("task",), 2, "--selector or --all"),
        (("task/done", "wp/agents"), 2, "say what to wait for with --for"),
        (("-l", "app=none"), 1, "nothing is selected"),
    ],
)
def test_what_cannot_be_waited_for_is_said(crowd: Terminal, argv: tuple[str, ...], code: int, says: str) -> None:
    ran = crowd("wait", *argv)
    assert ran.code == code and says in ran.err
