"""Plans that start from the objects of a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rota.api import KINDS
from rota.manifest import loads
from rota.manifest.rehearsal import rehearse
from rota.manifest.rehearsal_server import ServerState
from tests.manifest.test_plan import obj, planned, pool, ready, spawner, task, workspace

Json = dict[str, Any]


def on_server(kind: str, name: str, spec: Json, status: Json | None = None) -> Json:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7", "generation": 1}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
    return body | ({"status": status} if status else {})


def server(*objects: Json) -> ServerState:
    return ServerState({KINDS[o["kind"]].key("default", o["metadata"]["name"]): o for o in objects}, {})


TASK: Json = {"command": ["true"], "worker": {}, "cancel": False, "priority": 0}


async def test_what_is_on_the_server_is_there_and_not_listed() -> None:
    live = on_server("Workspace", "w", {"repo": "https://git.example.com/x"})
    plan = await planned(pool("p", "w"), server=server(live))
    assert plan.converges and ready(plan) == ["WorkerPool/p"]


async def test_with_a_server_nothing_is_assumed() -> None:
    plan = await planned(workspace("w", secretRef={"name": "token"}), server=server())
    (cause,) = plan.never_ready
    assert cause.message == "Secret/token is neither in the manifests nor on the server" and not plan.assumed


async def test_what_failed_on_the_server_stays_failed() -> None:
    live = on_server("Task", "a", TASK, {"phase": "Failed", "reason": "ExitCode", "message": "exit code 3"})
    plan = await planned(task("b", "a"), server=server(live))
    (cause,) = plan.never_ready
    assert (cause.type, cause.message) == ("Object", "Task/a: exit code 3")
    assert [one.name for one in cause.held_up] == ["Task/b"]


def not_ready(reason: str, message: str = "it is so", generation: int = 1) -> Json:
    said = {"type": "Ready", "status": "False", "reason": reason, "message": message}
    return {"conditions": [{**said, "observedGeneration": generation, "lastTransitionTime": "2024-01-01T00:00:00Z"}]}


IS_READY: Json = {"conditions": [{**not_ready("Ready")["conditions"][0], "status": "True"}], "observedGeneration": 1}
CODE: Json = {"entrypoint": "a:b", "source": {"inline": "b = print"}}


def beside(*objects: Json, **changed: Json) -> ServerState:
    """A server with these objects, which would make of some, by name, what is given, and of the others nothing new."""
    there = server(*objects).objects
    made = {id_: {**one, "spec": changed.get(one["metadata"]["name"], one["spec"])} for id_, one in there.items()}
    for id_, one in made.items():
        if one["spec"] != there[id_]["spec"]:
            made[id_] = {**one, "metadata": {**one["metadata"], "generation": 2}}
    return ServerState(there, made)


def written(live: ServerState) -> list[Json]:
    """The manifests of what a server would make."""
    return [obj(one["kind"], one["metadata"]["name"], **one["spec"]) for one in live.planned.values()]


@pytest.mark.parametrize("reason", ["RequirementsConflict", "ImportFailed", "TimedOut", "PackageNotFound"])
async def test_a_function_that_cannot_be_loaded_there_stays_so_and_holds_up_what_calls_it(reason: str) -> None:
    schedule = {"cron": "@daily", "target": {"functionRef": {"name": "f"}}}
    live = beside(
        on_server("Function", "f", CODE, not_ready(reason, "it excludes itself")),
        on_server("Schedule", "s", schedule, IS_READY),
    )
    plan = await planned(*written(live), server=live)
    (cause,) = plan.never_ready
    assert cause.message == "Function/f: it excludes itself"
    assert [one.name for one in cause.held_up] == ["Schedule/s"]
    changed = beside(*live.objects.values(), f={**CODE, "requirements": ["idna"]})
    plan = await planned(*written(changed), server=changed)
    assert plan.converges, plan.never_ready


async def test_a_function_that_is_still_being_loaded_there_is_followed_as_if_it_went_well() -> None:
    live = beside(on_server("Function", "f", CODE, not_ready("Loading")))
    assert (await planned(*written(live), server=live)).converges


async def test_a_spawner_goes_by_what_the_server_says_of_its_api() -> None:
    evil, good = (spawner("x", f"https://{host}.example")["spec"] for host in ("evil", "good"))
    polled = {**IS_READY, "lastPollTime": "2024-01-01T00:00:00Z"}
    live = beside(
        on_server("TaskSpawner", "sp", evil, not_ready("ApiNotAllowed", "not on the list")),
        on_server("TaskSpawner", "polled", good, polled),
    )
    plan = await planned(*written(live), spawner("more", "https://good.example"), server=live)
    assert [cause.message for cause in plan.never_ready] == ["TaskSpawner/sp: not on the list"]
    assert ready(plan) == ["TaskSpawner/polled", "TaskSpawner/more"]


async def failing_pool() -> tuple[Json, Json, Json]:
    """A workspace, a pool on it, and its instance, which cannot have it."""
    went_well = await rehearse(loads("\n---\n".join(map(json.dumps, (workspace("w"), pool("p", "w")))), "all.yaml"))
    made: list[Json] = []
    for kind, name in (("Workspace", "w"), ("WorkerPool", "p"), ("Instance", "p-0")):
        named = {"apiVersion": KINDS[kind].api_version, "kind": kind}
        made.append(msgspec.to_builtins(went_well.find(KINDS[kind].key("default", name))) | named)
    why = not_ready("ConfigurationError", "RepositoryNotFound: it is not there")["conditions"][0]
    said = [why, {**why, "type": "Available"}, {**why, "type": "Programmed", "status": "True"}]
    made[2]["status"].update(phase="Starting", conditions=said)
    made[1]["status"] = not_ready("ConfigurationError", "0 of 1 ready")
    made[0]["status"] = IS_READY
    return made[0], made[1], made[2]


async def test_a_pool_whose_instances_cannot_run_there_holds_up_who_waits_for_one() -> None:
    live = beside(*await failing_pool())
    plan = await planned(task("t", pool="p"), server=ServerState(live.objects, {}))
    (cause,) = plan.never_ready
    assert cause.name == "WorkerPool/p" and "RepositoryNotFound: it is not there" in cause.message
    assert [one.name for one in cause.held_up] == ["Task/t"]
    assert cause.advice == "correct the repo of Workspace/w, or make the repository: `rota edit workspace/w`"


@pytest.mark.parametrize(
    ("changes", "goes_well"),
    [
        ({"w": {"repo": "https://git.example.com/another"}}, True),
        ({"p": {"worker": {"type": "shell"}, "replicas": 1}}, True),
        ({"p": {"worker": {"workspaceRef": {"name": "w"}}, "replicas": 2}}, False),
    ],
)
async def test_what_changes_may_mend_an_instance_that_cannot_run_there(changes: Json, goes_well: bool) -> None:
    there = await failing_pool()
    live = beside(*there, **changes)
    wanted = {id_: one for id_, one in live.planned.items() if one["kind"] != "Instance"}
    live = ServerState(live.objects, wanted)
    plan = await planned(*written(live), task("t", pool="p"), server=live)
    assert plan.converges is goes_well, plan.never_ready
    assert ("Task/t" in ready(plan)) is goes_well


async def test_what_waits_on_the_server_for_what_is_written_goes_on() -> None:
    live = on_server("WorkerPool", "p", {"worker": {"workspaceRef": {"name": "w"}}})
    plan = await planned(task("a", pool="p"), workspace("w"), server=server(live))
    assert plan.converges and ready(plan) == ["Workspace/w", "Task/a"]
