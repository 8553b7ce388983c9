"""`rota wait`."""

from __future__ import annotations

import io

import pytest

from rota import Client
from rota.api import Function, WorkerPool
from rota.cli.options import seconds
from rota.cli.session import CommandError
from tests.cli.conftest import Terminal, pool


async def set_status(client: Client, status: str) -> None:
    live = await client.get(WorkerPool.api, "agents")
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "Starting",
        "message": "not yet",
        "observedGeneration": 1,
    }
    await client.update_status({**live, "status": {"phase": "Ready", "conditions": [ready]}})


@pytest.fixture
def made(rota: Terminal) -> Terminal:
    rota.act(lambda client: client.create(pool()))
    return rota


def test_a_condition_is_waited_for(made: Terminal) -> None:
    async def meanwhile(client: Client, _: io.StringIO) -> None:
        await set_status(client, "False")
        await set_status(client, "True")

    ran = made("wait", "wp", "agents", "--for=condition=ready", meanwhile=meanwhile)
    assert (ran.code, ran.out) == (0, "workerpool.rota.dev/agents condition ready=True\n")


def test_of_a_function_it_is_that_its_newest_version_answers(rota: Terminal) -> None:
    spec = {"entrypoint": "a:b", "source": {"inline": ""}}
    body = {"apiVersion": Function.api.api_version, "kind": "Function", "metadata": {"name": "f"}, "spec": spec}
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}

    async def deployed_anew(client: Client) -> None:
        live = await client.create(body)
        await client.update_status({**live, "status": {"conditions": [{**ready, "observedGeneration": 1}]}})
        await client.patch(Function.api, "f", {"spec": {"timeoutSeconds": 5}})

    async def meanwhile(client: Client, _: io.StringIO) -> None:
        live = await client.get(Function.api, "f")
        await client.update_status({**live, "status": {"conditions": [{**ready, "observedGeneration": 2}]}})

    rota.act(deployed_anew)
    assert rota("wait", "fn/f", "--timeout=50ms").code == 1
    ran = rota("wait", "fn/f", meanwhile=meanwhile)
    assert (ran.code, ran.out) == (0, "function.rota.dev/f condition Ready=True\n")


def test_a_condition_may_have_to_be_false(made: Terminal) -> None:
    made.act(lambda client: set_status(client, "False"))
    assert made("wait", "wp/agents", "--for=condition=Ready=false").code == 0


def test_a_condition_of_an_older_generation_does_not_count(made: Terminal) -> None:
    async def change(client: Client) -> None:
        await set_status(client, "True")
        await client.patch(WorkerPool.api, "agents", {"spec": {"replicas": 3}})

    made.act(change)
    assert made("wait", "wp/agents", "--for=condition=Ready", "--timeout=50ms").code == 1


def test_a_time_out_says_how_it_is_instead(made: Terminal) -> None:
    made.act(lambda client: set_status(client, "False"))
    ran = made("wait", "wp/agents", "--for=condition=Ready", "--timeout=50ms")
    assert ran.code == 1 and ran.out == ""
    assert ran.err == (
        "error: workerpool.rota.dev/agents: condition Ready=True has not come true in time; "
        "Ready is False (Starting: not yet)\n"
    )


def test_a_field_is_waited_for(made: Terminal) -> None:
    async def meanwhile(client: Client, _: io.StringIO) -> None:
        await set_status(client, "True")

    ran = made("wait", "wp/agents", "--for=jsonpath={.status.phase}=Ready", meanwhile=meanwhile)
    assert (ran.code, ran.out) == (0, "workerpool.rota.dev/agents {.status.phase}=Ready\n")


def test_a_filter_may_have_an_equals_sign(made: Terminal) -> None:
    made.act(lambda client: set_status(client, "True"))
    goal = '--for=jsonpath={.status.conditions[?(@.type=="Ready")].status}=True'
    assert made("wait", "wp/agents", goal).code == 0


def test_an_end_is_waited_for(made: Terminal) -> None:
    async def meanwhile(client: Client, _: io.StringIO) -> None:
        await client.delete(WorkerPool.api, "agents")

    assert made("wait", "wp/agents", "--for=delete", meanwhile=meanwhile).out == "workerpool.rota.dev/agents deleted\n"
    assert made("wait", "wp/agents", "--for=delete").code == 0, "what is gone is gone"


def test_a_beginning_is_waited_for(rota: Terminal) -> None:
    async def meanwhile(client: Client, _: io.StringIO) -> None:
        await client.create(pool())

    assert rota("wait", "wp/agents", "--for=create", meanwhile=meanwhile).code == 0


def test_what_is_not_there_is_not_waited_for(rota: Terminal) -> None:
    ran = rota("wait", "wp/agents", "--for=condition=Ready")
    said = 'error: workerpools.rota.dev "agents" not found\n  namespace default has no workerpools\n'
    assert (ran.code, ran.err) == (1, said)


def test_all_that_are_selected_are_waited_for(made: Terminal) -> None:
    made.act(lambda client: client.create(pool("other")))
    ran = made("wait", "wp", "--all", "--for=jsonpath={.spec.worker.type}=shell")
    assert sorted(ran.out.split()[::2]) == ["workerpool.rota.dev/agents", "workerpool.rota.dev/other"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("wp/a",), "say what to wait for with --for"),
        (("wp/a", "--for=bliss"), "there are condition=TYPE"),
        (("wp/a", "--for=jsonpath={.a[}=1"), "is not closed"),
        (("wp", "--for=delete"), "--selector or --all"),
        (("wp/a", "--for=delete", "--timeout=soon"), '"soon" is no time span'),
    ],
)
def test_bad_usage_is_2(rota: Terminal, argv: tuple[str, ...], says: str) -> None:
    ran = rota("wait", *argv)
    assert ran.code == 2 and says in ran.err


@pytest.mark.parametrize(
    ("text", "length"), [("30", 30), ("1.5s", 1.5), ("1h30m", 5400), ("7d", 604800), ("5ms", 0.005)]
)
def test_a_time_span_is_read(text: str, length: float) -> None:
    assert seconds(text) == pytest.approx(length)


@pytest.mark.parametrize("text", ["", "s", "5 m", "-3s", "1y", "99999d"])
def test_what_is_no_time_span_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        seconds(text)
