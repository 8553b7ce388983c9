"""Plans, compared with the work of controllers of all sorts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api import Condition, Function, Object, Task, WorkerPool, Workspace
from rota.api.meta import empty_status
from rota.client import Key
from rota.control.table import controllers as all_controllers
from rota.engine import DONE, Context, ObjectReconciler, Outcome, Reconciler, RequeueAfter
from rota.manifest import ManifestError, loads
from rota.manifest.causes import trees
from rota.manifest.plan import make_plan
from rota.manifest.plan_types import Plan
from rota.manifest.rehearsal import rehearse

Json = dict[str, Any]


def obj(kind: str, name: str, namespace: str | None = None, **spec: Any) -> Json:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def workspace(name: str, **spec: Any) -> Json:
    return obj("Workspace", name, repo="https://git.example.com/x", **spec)


def pool(name: str, workspace: str, namespace: str | None = None) -> Json:
    return obj("WorkerPool", name, namespace, worker={"workspaceRef": {"name": workspace}})


def task(name: str, *after: str, pool: str = "") -> Json:
    spec: Json = {"workerPoolRef": {"name": pool}} if pool else {"worker": {}}
    if after:
        spec["dependsOn"] = list(after)
    return obj("Task", name, command=["true"], **spec)


async def planned(*objects: Json, controllers: Iterable[Reconciler] | None = None, **more: Any) -> Plan:
    found = loads("\n---\n".join(map(json.dumps, objects)), "all.yaml")
    return make_plan(await rehearse(found, controllers=controllers, **more))


def ready(plan: Plan) -> list[str]:
    return [one.name for one in plan.ready if not one.made]


def instead_of(kind: type[Object], other: Reconciler) -> list[Reconciler]:
    """All controllers, but for that of a kind."""
    return [other, *(one for one in all_controllers() if one.kind is not kind)]


# What becomes ready.


async def test_everything_that_can_become_ready_does_so_after_what_it_needs() -> None:
    plan = await planned(task("b", "a"), task("a", pool="p"), pool("p", "w"), workspace("w"))
    assert plan.converges
    assert ready(plan) == ["Workspace/w", "WorkerPool/p", "Task/a", "Task/b"]
    assert [one.step for one in plan.ready if not one.made] == [1, 3, 4, 5]


async def test_what_does_not_depend_on_each_other_shares_a_step_in_the_order_of_the_files() -> None:
    plan = await planned(workspace("z"), workspace("a"), workspace("m"))
    assert ready(plan) == ["Workspace/z", "Workspace/a", "Workspace/m"]
    assert {one.step for one in plan.ready} == {1}


async def test_what_a_controller_makes_while_the_plan_runs_is_waited_for() -> None:
    template = {"instanceType": "d1-standard-2", "containers": [{"name": "main", "command": ["true"]}]}
    plan = await planned(obj("WorkerPool", "sized", template=template))
    assert plan.converges
    made = {one.name: one for one in plan.ready if one.made}
    assert set(made) == {"InstanceType/d1-standard-2", "Location/local", "Cell/local", "Instance/sized-0"}
    steps = {one.name: one.step for one in plan.ready}
    assert steps["InstanceType/d1-standard-2"] < steps["Instance/sized-0"] <= steps["WorkerPool/sized"]


async def test_a_namespace_that_is_written_holds_what_is_in_it_wherever_it_stands() -> None:
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    plan = await planned(
        pool("p", "w", "team"), {**workspace("w"), "metadata": {"name": "w", "namespace": "team"}}, team
    )
    assert plan.converges and not plan.assumed
    assert ready(plan) == ["Workspace/team/w", "Namespace/team", "WorkerPool/team/p"]


async def test_the_namespace_that_is_always_there_may_be_written() -> None:
    plan = await planned({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}, workspace("w"))
    assert plan.converges and not plan.assumed


# What is assumed.


async def test_secrets_and_namespaces_that_are_not_written_are_assumed() -> None:
    plan = await planned(workspace("w", secretRef={"name": "token"}), pool("p", "w"), namespace="team")
    assert plan.converges
    assert [(one.name, one.type) for one in plan.assumed] == [
        ("Namespace/team", "Exists"),
        ("Secret/team/token", "Exists"),
    ]
    assert plan.assumed[1].needed_by == ["workspaces.rota.dev/team/w"]


async def test_a_secret_that_is_written_is_not_assumed() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}}
    plan = await planned(workspace("w", secretRef={"name": "token"}), secret)
    assert plan.converges and not plan.assumed


async def test_what_no_controller_acts_on_is_assumed_to_become_ready() -> None:
    plan = await planned(obj("Cell", "here", cityCode="local"), controllers=[])
    assert plan.converges
    assert [(one.name, one.type) for one in plan.assumed] == [("Cell/here", "BecomesReady")]


async def test_a_cell_that_nobody_joins_as_never_becomes_ready() -> None:
    plan = await planned(obj("Cell", "here", cityCode="local"))
    [cause] = plan.never_ready
    assert (cause.type, cause.name) == ("Object", "Cell/here")
    assert "`rota cell join here` prints the command" in cause.message
    assert cause.advice == "have a server join under that name: `rota cell list` says how"


async def test_what_a_quota_has_no_room_for_never_becomes_ready() -> None:
    template = {"containers": [{"name": "a", "command": ["true"]}]}
    plan = await planned(
        obj("Quota", "default", hard={"instances": 1}), obj("WorkerPool", "p", template=template, replicas=2)
    )
    assert not plan.converges
    told = {cause.name: cause for cause in plan.never_ready}
    assert "the budget is short of instances" in next(iter(told.values())).message, told
    assert any("`rota quota -n default` shows who does" in cause.advice for cause in told.values()), told


async def test_a_workload_is_planned_down_to_its_instances() -> None:
    template = {"spec": {"containers": [{"name": "a", "command": ["true"]}]}}
    here, far = {"name": "a", "cityCodes": ["local"], "scale": {"min": 2}}, {"name": "b", "cityCodes": ["fra"]}
    plan = await planned(obj("Workload", "w", placements=[here], template=template))
    assert plan.converges
    made = [one.name.partition("/")[0] for one in plan.ready if one.made]
    assert made.count("Instance") == 2 and made.count("WorkloadDeployment") == 1
    plan = await planned(obj("Workload", "w", placements=[here, far], template=template))
    [cause] = plan.never_ready
    assert cause.name == "Workload/w" and "there is no Location of city fra" in cause.message
    assert "make a Location of the city" in cause.advice


async def test_a_city_that_nothing_serves_is_a_cause() -> None:
    code: Json = {"entrypoint": "a:b", "source": {"inline": "def b(event): ..."}}
    plan = await planned(
        obj("Cell", "there", cityCode="fra"),
        obj("Function", "f", **code, regions=["fra"]),
        obj("Function", "g", **code),
        obj("Schedule", "s", cron="@daily", target={"functionRef": {"name": "g"}}, regions=["fra"]),
    )
    told = {cause.name: cause.message for cause in plan.never_ready}
    assert set(told) == {"Cell/there", "Function/f", "Schedule/s"}
    assert "none of its regions is served here: fra" in told["Function/f"]
    assert "none of its regions is served here: fra" in told["Schedule/s"]


async def test_a_task_that_its_worker_could_not_run_is_a_cause() -> None:
    plain = {"containers": [{"name": "a", "command": ["sleep", "1"]}]}
    asks = obj("Task", "asks", prompt="fix it", workerPoolRef={"name": "p"})
    plan = await planned(
        obj("WorkerPool", "p", worker={}), asks, obj("WorkerPool", "q", template=plain), task("runs", pool="q")
    )
    told = {cause.name: cause.message for cause in plan.never_ready}
    assert "a prompt is for a worker of an agent's type" in told["Task/asks"]
    assert "WorkerPool/q has no worker" in told["Task/runs"]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ({"runtime": "pod", "containers": [{"name": "a", "image": "a:1"}]}, "runtime pod is for a cluster"),
        ({"runtime": "container", "containers": [{"name": "a"}]}, "container a has no image"),
        ({"containers": [{"name": "a", "image": "a:1"}]}, "container a has no command"),
        ({"worker": {}, "runtime": "container", "containers": [{"name": "a"}]}, "runs as a process"),
        ({"worker": {}, "containers": [{"name": "a"}, {"name": "b"}]}, "has one container, and no more"),
    ],
)
async def test_a_template_that_no_machine_could_run_is_a_cause(template: Json, why: str) -> None:
    plan = await planned(obj("WorkerPool", "p", template=template), task("t", pool="p"))
    (cause,) = [one for one in plan.never_ready if one.name == "Instance/p-0"]
    assert why in cause.message and "WorkerPool/p" in [one.name for one in cause.held_up]


async def test_a_claim_that_no_instance_could_serve_is_a_cause() -> None:
    plan = await planned(
        obj("WorkerPool", "p", worker={}), obj("Claim", "c", poolRef={"name": "p"}, images={"worker": "a:1"})
    )
    (cause,) = plan.never_ready
    assert cause.name == "Claim/c" and "have no images" in cause.message


# What never becomes ready.


async def test_a_pool_that_is_to_have_no_workers_is_ready_and_holds_up_who_waits_for_one() -> None:
    plan = await planned(
        obj("WorkerPool", "zero", worker={}, replicas=0),
        task("t", pool="zero"),
        task("after", "t"),
        obj("Claim", "c", poolRef={"name": "zero"}),
    )
    (cause,) = plan.never_ready
    assert cause.message == "WorkerPool/zero is to have no workers: spec.replicas is 0"
    assert cause.advice == "give WorkerPool/zero a worker: set its spec.replicas to 1 or more in all.yaml:1"
    assert [one.name for one in cause.held_up] == ["Task/t", "Task/after", "Claim/c"]
    assert ready(plan) == ["WorkerPool/zero"] and not plan.converges


async def test_a_pool_that_scales_by_demand_has_workers_for_who_waits() -> None:
    plan = await planned(obj("WorkerPool", "p", worker={}, scale={"min": 0, "max": 2}), task("t", pool="p"))
    assert plan.converges, plan.never_ready


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def handler(:\n  pass\n", "SyntaxError: "),
        ("def handler(event):\nreturn 1\n", "IndentationError: "),
        ("return 1\ndef handler(event): ...\n", "SyntaxError: 'return' outside function (app.py:1)"),
        ("", "entrypoint app:handler: module app has no handler"),
        ("class A:\n  def handler(self): ...\n", "entrypoint app:handler: module app has no handler"),
        ("def other():\n  def handler(event): ...\n", "entrypoint app:handler: module app has no handler"),
        ("def handle(event): ...", "entrypoint app:handler: module app has no handler; did you mean app:handle?"),
    ],
)
async def test_code_that_cannot_be_loaded_is_a_cause(code: str, why: str) -> None:
    plan = await planned(
        obj("Function", "f", entrypoint="app:handler", source={"inline": code}),
        obj("Schedule", "s", cron="@daily", target={"functionRef": {"name": "f"}}),
    )
    (cause,) = plan.never_ready
    assert cause.message.startswith(f"Function/f: {why}"), cause.message
    assert cause.advice == "correct the code of Function/f: edit all.yaml:1"
    assert [one.name for one in cause.held_up] == ["Schedule/s"]


@pytest.mark.parametrize(
    "code",
    [
        "async def handler(event): ...",
        "class handler: ...",
        "handler = lambda event: event",
        "handler: object = print",
        "from json import dumps as handler",
        "from elsewhere import *",
        "import handler.deep",
        "try:\n  import x\nexcept ImportError:\n  def handler(event): ...",
        "if (handler := print): ...",
        "for handler in (print,): ...",
        "with open('x') as handler: ...",
        "match print:\n  case handler: ...",
        "def make():\n  global handler\n  handler = print\nmake()",
        "globals()['hand' + 'ler'] = print",
        "def __getattr__(name): return print",
        "print('\\d')\ndef handler(event): raise SystemExit",
        "import sys\nsetattr(sys.modules[__name__], 'handler', print)",
        "raise SystemExit('a plan must not run this')\ndef handler(event): ...",
        "handler = " + "(" * 5_000 + ")" * 5_000,
    ],
)
async def test_code_that_may_have_its_handler_is_taken_to_load_and_is_not_run(code: str) -> None:
    plan = await planned(obj("Function", "f", entrypoint="app:handler", source={"inline": code}))
    assert plan.converges or "too many nested" in plan.never_ready[0].message, plan.never_ready


def spawner(name: str, api: str, **spec: Any) -> Json:
    source = {"github": {"repo": "o/r", "apiURL": api}}
    template = {"command": ["true"], "worker": {}}
    return obj("TaskSpawner", name, source=source, taskTemplate=template, **spec)


async def test_a_spawner_of_an_api_that_no_server_allows_by_itself_is_a_cause() -> None:
    plan = await planned(
        spawner("sp", "https://evil.example"),
        spawner("fine", "https://api.github.com"),
        spawner("paused", "https://evil.example", suspend=True),
    )
    (cause,) = plan.never_ready
    assert cause.message.startswith("TaskSpawner/sp: https://evil.example is not on the list of APIs that a server has")
    assert "--allow-api https://evil.example" in cause.message
    assert ready(plan) == ["TaskSpawner/fine", "TaskSpawner/paused"]


async def test_what_is_in_a_file_only_is_to_be_corrected_there() -> None:
    template = {"containers": [{"name": "main", "command": ["true"]}]}
    far: Json = {"entrypoint": "a:b", "source": {"inline": "b = print"}, "regions": ["par"]}
    plan = await planned(
        obj("WorkerPool", "tp", template=template), task("ontp", pool="tp"), obj("Function", "far", **far)
    )
    assert [cause.advice for cause in plan.never_ready] == [
        "correct Task/ontp: edit all.yaml:3",
        "correct the regions of Function/far, or leave them out: edit all.yaml:5",
    ]


async def test_what_nobody_declares_is_the_one_cause_of_the_whole_chain() -> None:
    plan = await planned(workspace("real"), pool("p", "reel"), task("a", pool="p"), task("b", "a"))
    (cause,) = plan.never_ready
    assert (cause.type, cause.name) == ("Missing", "Workspace/reel")
    assert cause.advice == "declare it, or correct the name in spec.worker.workspaceRef; did you mean Workspace/real?"
    assert [(one.name, one.depth, one.field) for one in cause.held_up] == [
        ("WorkerPool/p", 0, "spec.worker.workspaceRef"),
        ("Task/a", 1, "spec.workerPoolRef"),
        ("Task/b", 2, "spec.dependsOn[0]"),
    ]
    assert [one.line_number for one in cause.held_up] == [3, 5, 7]
    assert not plan.converges and plan.summary.never_ready == 3


async def test_those_that_wait_for_each_other_are_one_cause() -> None:
    plan = await planned(task("a", "b"), task("b", "c"), task("c", "a"), task("d", "c"))
    (cause,) = plan.never_ready
    assert cause.type == "Circle"
    assert cause.circle == ["Task/a", "Task/b", "Task/c", "Task/a"]
    assert [(one.name, one.because) for one in cause.held_up] == [
        ("Task/a", ""),
        ("Task/b", ""),
        ("Task/c", ""),
        ("Task/d", "tasks.rota.dev/default/c"),
    ]


async def test_a_circle_that_also_lacks_something_is_two_causes() -> None:
    plan = await planned(task("a", "b", pool="ghost"), task("b", "a"))
    circle, missing = plan.never_ready
    assert (missing.name, missing.held_up, missing.elsewhere) == ("WorkerPool/ghost", [], ["tasks.rota.dev/default/a"])
    assert circle.held_up[0].also == ["workerpools.rota.dev/default/ghost"]


async def test_what_two_causes_hold_up_is_listed_once_and_names_the_other() -> None:
    plan = await planned(task("a", "x"), task("b", "y"), task("c", "a", "b"))
    assert [[one.name for one in cause.held_up] for cause in plan.never_ready] == [["Task/a", "Task/c"], ["Task/b"]]
    assert plan.never_ready[0].held_up[1].also == ["tasks.rota.dev/default/b"]
    assert plan.summary.never_ready == 3


async def test_an_object_that_says_itself_that_it_failed_is_a_cause() -> None:
    disabled = obj("InstanceType", "old", cpu=1, memory="1Gi", state="Disabled")
    template = {"instanceType": "old", "containers": [{"name": "main"}]}
    plan = await planned(disabled, obj("WorkerPool", "p", template=template))
    (cause,) = plan.never_ready
    assert cause.type == "Object" and cause.line_number == 1
    assert cause.message == 'InstanceType/old: instance type "old" is disabled'
    assert [one.name for one in cause.held_up] == ["WorkerPool/p"]


# Controllers that fail, and controllers yet to come.


class Raising(ObjectReconciler[Any]):
    async def sync(self, context: Context, obj: Any) -> Outcome:
        raise KeyError("the body is broken")


class Restless(ObjectReconciler[Any]):
    async def sync(self, context: Context, obj: Any) -> Outcome:
        return RequeueAfter(1.0)


class Broken(Reconciler):
    name = "sweeper"
    seeds = (Key("", "all"),)

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        raise RuntimeError("cannot sweep")


async def test_a_controller_that_raises_is_named_with_what_it_holds_up() -> None:
    plan = await planned(
        workspace("w"), pool("p", "w"), task("a", pool="p"), controllers=instead_of(WorkerPool, Raising(WorkerPool))
    )
    (cause,) = plan.never_ready
    assert cause.type == "Controller" and not plan.converges
    assert cause.message == "WorkerPool/p: controller workerpools.rota.dev failed: KeyError: 'the body is broken'"
    assert [one.name for one in cause.held_up] == ["Task/a"]


async def test_a_controller_that_never_comes_to_rest_is_named() -> None:
    plan = await planned(task("a"), controllers=instead_of(Task, Restless(Task)))
    (cause,) = plan.never_ready
    assert cause.message.startswith("Task/a did not converge: it was run 33 times")
    assert cause.message.endswith("(controller tasks.rota.dev)")


async def test_a_controller_that_is_for_no_object_is_named_when_it_fails() -> None:
    plan = await planned(workspace("w"), controllers=[Broken(), *all_controllers()])
    (cause,) = plan.never_ready
    assert cause.message == "controller sweeper (all) failed: RuntimeError: cannot sweep"
    assert ready(plan) == ["Workspace/w"] and not plan.converges


class Making(ObjectReconciler[Any]):
    """Makes a Function for each Workspace, and is ready when that is."""

    owns = (Function,)

    async def sync(self, context: Context, obj: Any) -> Outcome:
        name, namespace = obj.metadata.name, obj.metadata.namespace
        child: Any = context.find(Function.api, namespace, name)
        if child is None:
            owner = {"apiVersion": obj.api.api_version, "kind": obj.api.name, "name": name, "uid": obj.metadata.uid}
            await context.client.create(
                {
                    "apiVersion": "rota.dev/v1alpha1",
                    "kind": "Function",
                    "metadata": {
                        "name": name,
                        "namespace": namespace,
                        "ownerReferences": [{**owner, "controller": True}],
                    },
                    "spec": {"entrypoint": "a:b", "source": {"workspaceRef": {"name": "other"}}},
                }
            )
        elif child.readiness().state == "Ready":
            status = context.condition(obj, empty_status(type(obj)), Condition(type="Ready", status="True"))
            await context.write_status(obj, status)
        return DONE


async def test_what_a_controller_makes_for_an_object_is_told_with_its_owner() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}

    class Simple(Making):
        async def sync(self, context: Context, obj: Any) -> Outcome:
            if obj.metadata.name != "other":
                return await super().sync(context, obj)
            status = context.condition(obj, empty_status(type(obj)), Condition(type="Ready", status="True"))
            await context.write_status(obj, status)
            return DONE

    plan = await planned(
        other, workspace("other"), workspace("w"), controllers=instead_of(Workspace, Simple(Workspace))
    )
    assert plan.converges
    (child,) = [one for one in plan.ready if one.name == "Function/w"]
    assert child.made and child.owner == "workspaces.rota.dev/default/w"
    steps = {one.name: one.step for one in plan.ready}
    assert steps["Workspace/other"] < steps["Function/w"] < steps["Workspace/w"]


async def test_an_owner_is_held_up_by_what_was_made_for_it() -> None:
    plan = await planned(workspace("w"), controllers=instead_of(Workspace, Making(Workspace)))
    (cause,) = plan.never_ready
    assert cause.name == "Workspace/other"
    assert [one.name for one in cause.held_up] == ["Function/w", "Workspace/w"]


# What a server would refuse.


async def test_a_name_that_stands_twice_once_with_its_namespace_is_refused() -> None:
    with pytest.raises(ManifestError) as refused:
        await planned(workspace("w"), {**workspace("w"), "metadata": {"name": "w", "namespace": "default"}})
    assert str(refused.value) == 'all.yaml:3:1: metadata.name: Workspace "w" is also at all.yaml:1'


async def test_everything_that_only_admission_refuses_is_told_with_its_line() -> None:
    files = [{"path": f"{i}.txt", "content": "y" * 60_000} for i in range(30)]
    large = [workspace(name, files=files) for name in "ab"]
    with pytest.raises(ManifestError) as refused:
        await planned(large[0], workspace("w"), large[1])
    assert [problem.line_number for problem in refused.value.problems] == [1, 5]
    assert all("1572864" in problem.message for problem in refused.value.problems), refused.value


# The causes at the bottom, of any graph.

graphs = st.integers(1, 12).flatmap(
    lambda n: st.dictionaries(
        st.integers(0, n - 1).map(str), st.lists(st.integers(0, n - 1).map(str), max_size=4), min_size=1
    )
)


def reachable(start: str, graph: dict[str, list[str]]) -> set[str]:
    seen: set[str] = set()
    coming = [one for one in graph.get(start, ()) if one != start]
    for one in coming:
        if one not in seen:
            seen.add(one)
            coming += [other for other in graph.get(one, ()) if other != one]
    return seen


@given(graphs)
def test_every_node_is_below_exactly_one_cause_that_it_depends_on(graph: dict[str, list[str]]) -> None:
    found = trees(graph, lambda id_: graph.get(id_, ()))
    below = [branch.id for tree in found for branch in tree.branches]
    alone = [tree.roots[0] for tree in found if not tree.is_circle]
    everything = set(graph) | {one for start in graph for one in reachable(start, graph)}
    assert sorted([*below, *alone]) == sorted(everything)
    for tree in found:
        for branch in tree.branches:
            assert tree.roots[0] in reachable(branch.id, graph)
            assert not branch.by or branch.by in graph[branch.id]


@given(graphs)
def test_a_cause_waits_for_nothing_or_for_itself(graph: dict[str, list[str]]) -> None:
    for tree in trees(graph, lambda id_: graph.get(id_, ())):
        root = tree.roots[0]
        assert (root in reachable(root, graph)) == tree.is_circle
        assert tree.is_circle or not [one for one in graph.get(root, ()) if one != root]
