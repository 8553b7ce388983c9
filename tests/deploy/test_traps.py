"""Declared is enforced, omitted is the server's: on a registry, on a server and on a real Kubernetes API server."""

from __future__ import annotations

import pytest

from rota import ApiError
from rota.api import KINDS
from rota.manifest import deploy_lookup
from rota.manifest.deploy import DeployRefused
from rota.manifest.deploy_lookup import IncompleteList, list_all
from rota.manifest.project_format import PROJECT_LABEL
from tests.deploy.world import World, outcomes

FUNCTION = """\
name: shop
functions:
  - name: report
    entrypoint: main:handler
    source: {inline: "def handler(event, context): return 1"}
"""
SCHEDULE = "    schedules:\n      - name: nightly\n        cron: '0 3 * * *'\n"
POOL = "name: shop\npools:\n  - name: workers\n"


async def test_a_second_deploy_finds_everything_unchanged_and_writes_nothing(world: World) -> None:
    text = FUNCTION + SCHEDULE + "        payload: {b: 1, a: [1.0, null, {c: true}]}\n        regions: [ber, par]\n"
    text += "pools:\n  - name: workers\n    worker: {env: [{name: B, value: b}, {name: A, value: a}]}\n"
    first = await world.deploy(text)
    assert outcomes(first) == {"report": "created", "report.nightly": "created", "workers": "created"}
    before = await world.versions()
    second = await world.deploy(text)
    assert set(outcomes(second).values()) == {"unchanged"} and second.writes == 0
    assert await world.versions() == before


async def test_an_update_is_made_in_place(world: World) -> None:
    await world.deploy(FUNCTION + SCHEDULE)
    before = await world.get("Schedule", "report.nightly")
    done = await world.deploy(FUNCTION + SCHEDULE.replace("0 3", "30 4"))
    assert outcomes(done) == {"report": "unchanged", "report.nightly": "updated"}
    (change,) = next(step.changes for step in done.steps if step.name == "report.nightly")
    assert change == (("spec", "cron"), "0 3 * * *", "30 4 * * *")
    after = await world.get("Schedule", "report.nightly")
    assert after["spec"]["cron"] == "30 4 * * *"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_schedule_that_somebody_paused_stays_paused(world: World) -> None:
    await world.deploy(FUNCTION + SCHEDULE)
    await world.edit("Schedule", "report.nightly", enabled=False)
    done = await world.deploy(FUNCTION + SCHEDULE)
    assert outcomes(done)["report.nightly"] == "unchanged"
    await world.deploy(FUNCTION + SCHEDULE.replace("0 3", "0 4"))
    assert (await world.get("Schedule", "report.nightly"))["spec"]["enabled"] is False


@pytest.mark.parametrize("wanted", [True, False])
async def test_enabled_that_is_declared_is_enforced(world: World, wanted: bool) -> None:
    text = FUNCTION + SCHEDULE + f"        enabled: {str(wanted).lower()}\n"
    await world.deploy(text)
    await world.edit("Schedule", "report.nightly", enabled=not wanted)
    assert outcomes(await world.deploy(text))["report.nightly"] == "updated"
    assert (await world.get("Schedule", "report.nightly"))["spec"]["enabled"] is wanted
    assert (await world.deploy(text)).writes == 0


async def test_a_payload_that_is_not_declared_is_left_alone(world: World) -> None:
    await world.deploy(FUNCTION + SCHEDULE)
    await world.edit("Schedule", "report.nightly", payload={"by": "hand"}, regions=["ber"])
    assert (await world.deploy(FUNCTION + SCHEDULE)).writes == 0
    spec = (await world.get("Schedule", "report.nightly"))["spec"]
    assert (spec["payload"], spec["regions"]) == ({"by": "hand"}, ["ber"])


async def test_a_payload_that_is_declared_is_enforced_as_a_whole(world: World) -> None:
    text = FUNCTION + SCHEDULE + "        payload: {a: {b: 1}}\n"
    await world.deploy(text)
    await world.edit("Schedule", "report.nightly", payload={"a": {"c": 2}, "d": 3})
    await world.deploy(text)
    assert (await world.get("Schedule", "report.nightly"))["spec"]["payload"] == {"a": {"b": 1}}


async def test_the_order_of_names_in_a_payload_is_no_change(world: World) -> None:
    await world.deploy(FUNCTION + SCHEDULE + "        payload: {a: 1, b: {c: 2, d: 3}}\n")
    same = await world.deploy(FUNCTION + SCHEDULE + "        payload: {b: {d: 3.0, c: 2}, a: 1}\n")
    assert same.writes == 0


async def test_taking_a_field_out_of_the_file_does_not_reset_it(world: World) -> None:
    more = "    timeoutSeconds: 99\n    scale: {min: 1, max: 2}\n    requirements: [httpx]\n"
    await world.deploy(FUNCTION + more)
    done = await world.deploy(FUNCTION + "    scale: {max: 2}\n")
    assert done.writes == 0
    spec = (await world.get("Function", "report"))["spec"]
    assert (spec["timeoutSeconds"], spec["scale"]["min"], spec["requirements"]) == (99, 1, ["httpx"])


async def test_what_is_not_declared_is_never_deleted(world: World) -> None:
    await world.deploy(FUNCTION + SCHEDULE)
    await world.deploy("name: shop\n")
    assert set(await world.versions()) == {("Function", "report"), ("Schedule", "report.nightly")}


async def test_a_function_that_is_only_named_is_left_alone(world: World) -> None:
    await world.deploy(FUNCTION)
    before = (await world.versions())["Function", "report"]
    await world.deploy("name: shop\nfunctions:\n  - name: report\n" + SCHEDULE)
    after = await world.versions()
    assert after["Function", "report"] == before and ("Schedule", "report.nightly") in after


async def test_a_function_that_is_only_named_and_not_there_is_refused(world: World) -> None:
    with pytest.raises(DeployRefused, match=r'rota.yaml:3: Function "rapport" is neither on the server nor declared'):
        await world.deploy("name: shop\nfunctions:\n  - name: rapport\n" + SCHEDULE)
    assert await world.versions() == {}


async def test_fields_of_a_function_can_be_declared_without_its_code(world: World) -> None:
    visible = "name: shop\nfunctions:\n  - name: report\n    public: true\n"
    with pytest.raises(DeployRefused, match="too little is said here to make it"):
        await world.deploy(visible)
    await world.deploy(FUNCTION)
    await world.deploy(visible)
    spec = (await world.get("Function", "report"))["spec"]
    assert spec["public"] is True and spec["entrypoint"] == "main:handler"


async def test_nothing_is_written_when_one_object_is_refused(world: World) -> None:
    partial = "  - name: missing\n    public: true\n"
    with pytest.raises(DeployRefused):
        await world.deploy(FUNCTION + SCHEDULE + partial)
    assert await world.versions() == {}


async def test_a_namespace_that_is_not_there_is_told_before_anything_is_written(world: World) -> None:
    world.client.namespace = "nowhere"
    nowhere = await World.open(world.client, world.folder)
    with pytest.raises(DeployRefused, match=r'rota.yaml: there is no namespace "nowhere"'):
        await nowhere.deploy(FUNCTION + SCHEDULE)


# What there is one of.


async def test_what_excludes_what_is_declared_goes(world: World) -> None:
    template = "    template: {containers: [{name: main, command: [sleep, inf]}]}\n"
    await world.deploy(POOL + "    worker: {type: custom, entrypoint: [run]}\n    replicas: 3\n")
    await world.deploy(POOL + template + "    scale: {min: 1, max: 2}\n")
    spec = (await world.get("WorkerPool", "workers"))["spec"]
    assert "worker" not in spec and "replicas" not in spec
    await world.deploy(POOL + "    worker: {type: shell}\n")
    spec = (await world.get("WorkerPool", "workers"))["spec"]
    assert "template" not in spec and spec["scale"]["max"] == 2


async def test_a_worker_that_is_no_longer_an_agent_has_neither_entrypoint_nor_model(world: World) -> None:
    await world.deploy(POOL + "    worker: {type: custom, entrypoint: [run], model: m}\n")
    await world.deploy(POOL + "    worker: {type: shell}\n")
    worker = (await world.get("WorkerPool", "workers"))["spec"]["worker"]
    assert worker == {"type": "shell"}


async def test_a_maximum_below_the_live_minimum_takes_the_minimum_along(world: World) -> None:
    await world.deploy(FUNCTION + "    scale: {min: 10, max: 20}\n")
    await world.deploy(FUNCTION + "    scale: {max: 5}\n")
    scale = (await world.get("Function", "report"))["spec"]["scale"]
    assert (scale["min"], scale["max"]) == (0, 5)


async def test_a_task_of_another_kind_takes_the_place_of_the_first(world: World) -> None:
    text = "name: shop\nschedules:\n  - name: tick\n    cron: '@hourly'\n    taskTemplate: "
    await world.deploy(text + "{command: [cat], stdin: text, worker: {}}\n")
    await world.deploy(text + "{prompt: think, workerPoolRef: {name: workers}}\n")
    await world.deploy(text + "{function: {name: report}}\n")
    template = (await world.get("Schedule", "tick"))["spec"]["target"]["taskTemplate"]
    assert template == {"function": {"name": "report"}, "priority": 0}


async def test_a_function_becomes_a_command_and_back(world: World) -> None:
    await world.deploy(FUNCTION)
    await world.deploy(FUNCTION.replace("entrypoint: main:handler", "command: [python, main.py]"))
    spec = (await world.get("Function", "report"))["spec"]
    assert spec["runtime"] == "command" and "entrypoint" not in spec
    await world.deploy(FUNCTION)
    spec = (await world.get("Function", "report"))["spec"]
    assert spec["runtime"] == "python" and "command" not in spec


async def test_a_list_is_one_value_and_its_order_counts_only_where_it_means_something(world: World) -> None:
    text = POOL + "    worker: {env: [{name: A, value: a}, {name: B, value: b}]}\n"
    await world.deploy(text)
    turned = POOL + "    worker: {env: [{name: B, value: b}, {name: A, value: a}]}\n"
    assert (await world.deploy(turned)).writes == 0
    await world.edit(
        "WorkerPool", "workers", worker={"env": [{"name": "A", "value": "a"}, {"name": "C", "value": "c"}]}
    )
    assert (await world.deploy(text)).writes == 1
    env = (await world.get("WorkerPool", "workers"))["spec"]["worker"]["env"]
    assert [one["name"] for one in env] == ["A", "B"]


# Others who write.


async def test_what_is_deployed_by_another_project_is_not_taken_without_asking(world: World) -> None:
    await world.deploy(FUNCTION)
    other = FUNCTION.replace("shop", "market")
    with pytest.raises(DeployRefused, match=r'Function "report" is of the project shop; .* --take-over'):
        await world.deploy(other)
    assert (await world.deploy(other, take_over=True)).writes == 1
    assert (await world.get("Function", "report"))["metadata"]["labels"] == {PROJECT_LABEL: "market"}


async def test_labels_of_others_stay(world: World) -> None:
    await world.deploy(FUNCTION)
    await world.client.patch(KINDS["Function"], "report", {"metadata": {"labels": {"a": "b", PROJECT_LABEL: None}}})
    await world.deploy(FUNCTION)
    assert (await world.get("Function", "report"))["metadata"]["labels"] == {"a": "b", PROJECT_LABEL: "shop"}


async def test_what_changes_between_the_look_and_the_write_is_looked_at_again(world: World) -> None:
    text = FUNCTION + SCHEDULE
    await world.deploy(text + POOL.removeprefix("name: shop\n") + "    worker: {}\n")
    project = world.project(FUNCTION + SCHEDULE.replace("0 3", "0 4") + "        payload: {a: 1}\n    public: true\n")
    foreseen = await world.deployer.plan(project)
    await world.client.delete(KINDS["Schedule"], "report.nightly")
    await world.edit("Function", "report", timeoutSeconds=77)
    done: list[object] = []
    await world.deployer.apply(foreseen, done.append)
    assert (await world.get("Schedule", "report.nightly"))["spec"]["payload"] == {"a": 1}
    spec = (await world.get("Function", "report"))["spec"]
    assert spec["public"] is True and spec["timeoutSeconds"] == 77


async def test_what_another_project_has_made_meanwhile_is_not_taken_either(world: World) -> None:
    theirs = POOL.replace("shop", "market") + "    worker: {}\n    replicas: 5\n"
    foreseen = await world.deployer.plan(world.project(POOL + "    worker: {}\n    replicas: 2\n"))
    await world.deploy(theirs)
    with pytest.raises(DeployRefused, match=r'WorkerPool "workers" is of the project market'):
        await world.deployer.apply(foreseen, lambda one: None)
    assert (await world.deploy(theirs)).writes == 0


async def test_what_somebody_else_has_made_meanwhile_is_updated(world: World) -> None:
    foreseen = await world.deployer.plan(world.project(POOL + "    worker: {}\n    replicas: 2\n"))
    obj = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "workers"}}
    await world.client.create({**obj, "spec": {"worker": {"type": "python"}, "replicas": 5}})
    done: list[object] = []
    await world.deployer.apply(foreseen, done.append)
    spec = (await world.get("WorkerPool", "workers"))["spec"]
    assert (spec["replicas"], spec["worker"]["type"]) == (2, "python")


# Pruning.


async def test_pruning_deletes_what_this_project_has_and_its_file_no_longer(world: World) -> None:
    await world.deploy(FUNCTION + SCHEDULE)
    await world.deploy("name: other\npools:\n  - name: theirs\n    worker: {}\n")
    done = await world.deploy(POOL + "    worker: {}\n", prune=True)
    assert [(one.kind.name, one.name) for one in done.removals] == [
        ("Schedule", "report.nightly"),
        ("Function", "report"),
    ]
    assert set(await world.versions()) == {("WorkerPool", "theirs"), ("WorkerPool", "workers")}


async def test_pruning_knows_every_kind_that_a_project_can_have_and_leaves_what_is_not_labelled(world: World) -> None:
    everything = FUNCTION + SCHEDULE + "pools: [{name: p, worker: {}}]\nagents: [{name: g}]\n"
    everything += "workspaces: [{name: w, repo: 'https://a'}]\n"
    everything += "schedules: [{name: s, cron: '@daily', taskTemplate: {command: [a], workerPoolRef: {name: p}}}]\n"
    await world.deploy(everything)
    for kind in ("AgentConfig", "Workspace"):
        spec = {"repo": "https://a"} if kind == "Workspace" else {}
        meta = {"name": "by-hand"}
        await world.client.create({"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec})
    done = await world.deploy("name: shop\n", prune=True)
    assert len(done.removals) == 6
    assert set(await world.versions()) == {("AgentConfig", "by-hand"), ("Workspace", "by-hand")}


async def test_pruning_spares_a_function_that_is_still_named(world: World) -> None:
    await world.deploy(FUNCTION)
    await world.deploy("name: shop\nfunctions:\n  - name: report\n" + SCHEDULE, prune=True)
    assert set(await world.versions()) == {("Function", "report"), ("Schedule", "report.nightly")}


async def test_pruning_spares_and_releases_what_the_project_only_changed(world: World) -> None:
    by_hand = {"entrypoint": "m:h", "source": {"inline": "def h(event, context): return 1"}}
    await world.client.create(
        {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": "theirs"}, "spec": by_hand}
    )
    await world.deploy("name: shop\nfunctions:\n  - {name: theirs, public: true}\n")
    assert (await world.get("Function", "theirs"))["metadata"]["labels"] == {"rota.dev/project": "shop"}
    done = await world.deploy("name: shop\n", prune=True)
    assert [(one.name, one.outcome) for one in done.removals] == [("theirs", "released")]
    left = await world.get("Function", "theirs")
    assert left["spec"]["public"] is True and not left["metadata"].get("labels")
    assert (await world.deploy("name: shop\n", prune=True)).removals == []


async def test_pruning_spares_a_namesake_of_what_was_shown(world: World) -> None:
    await world.deploy(FUNCTION)
    foreseen = await world.deployer.plan(world.project("name: shop\n"), prune=True)
    await world.client.delete(KINDS["Function"], "report")
    await world.deploy(FUNCTION)
    await world.deployer.apply(foreseen, lambda one: None)
    assert ("Function", "report") in await world.versions()


async def test_lists_are_read_to_the_last_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_lookup, "PAGE_ITEMS", 2)
    entries = "".join(f"  - name: p{n}\n    worker: {{}}\n" for n in range(5))
    await world.deploy("name: shop\npools:\n" + entries)
    done = await world.deploy("name: shop\n", prune=True)
    assert len(done.removals) == 5 and await world.versions() == {}


async def test_a_list_that_is_not_whole_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_lookup, "PAGE_ITEMS", 1)
    monkeypatch.setattr(deploy_lookup, "PAGES_MAX", 2)
    entries = "".join(f"  - name: p{n}\n    worker: {{}}\n" for n in range(3))
    await world.deploy("name: shop\npools:\n" + entries)
    with pytest.raises(IncompleteList, match="more workerpools than the server lists"):
        await list_all(world.client, KINDS["WorkerPool"])
    with pytest.raises(IncompleteList):
        await world.deploy("name: shop\n", prune=True)
    assert len([one for one in [await world.client.list(KINDS["WorkerPool"])] for _ in one.items]) == 3


# Code.


async def test_code_is_sent_once_and_only_when_it_has_changed(world: World) -> None:
    code = world.folder / "report" / "main.py"
    code.parent.mkdir()
    code.write_text("def handler(event, context): return 1\n")
    text = "name: shop\nfunctions:\n  - name: report\n    path: report\n    entrypoint: main:handler\n"
    first = await world.deploy(text)
    assert len(first.missing) == 1
    second = await world.deploy(text)
    assert (second.missing, second.writes) == ([], 0)
    code.write_text("def handler(event, context): return 2\n")
    third = await world.deploy(text)
    assert len(third.missing) == 1 and third.writes == 1
    assert (await world.get("Function", "report"))["spec"]["source"] == {"digest": third.missing[0]}


async def test_a_server_that_has_lost_the_kinds_is_not_taken_for_an_empty_one(world: World) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")

    world.deployer._client.get = lost  # type: ignore[assignment, method-assign]
    with pytest.raises(ApiError, match="could not find"):
        await world.deploy(FUNCTION)
