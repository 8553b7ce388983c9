"""Deliveries: each becomes one task, or its sender is told why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api import TaskSpawner
from rota.client import Client
from rota.control.spawners.hooks import (
    LATER_SECONDS,
    LIMIT_SECONDS,
    UNSIGNED,
    AlreadyDelivered,
    DeliveryRefused,
    TaskCreated,
)
from rota.control.spawners.items import DELIVERIES_MAX
from rota.control.spawners.webhook import Ignored
from rota.engine.fence import Fenced
from rota.registry import ApiError
from tests.engine_loop.loops import World
from tests.spawners.spawning import Scene

NOBODY = DeliveryRefused("Unsigned", UNSIGNED)


@pytest.fixture(params=[True, False], ids=["atomic", "one by one"])
async def scene(world: World, request: pytest.FixtureRequest) -> Scene:
    made = Scene(world, atomic=request.param)
    await made.prepare()
    await made.serve()
    return made


async def made(scene: Scene, body: Any, **more: Any) -> str:
    answer = await scene.deliver(body, **more)
    assert isinstance(answer, TaskCreated), answer
    return answer.task


def refused(answer: Any, reason: str) -> DeliveryRefused:
    assert isinstance(answer, DeliveryRefused) and answer.reason == reason, answer
    return answer


# One task for each.


async def test_a_delivery_becomes_a_task_that_belongs_to_its_spawner(scene: Scene) -> None:
    await scene.hook()
    name = await made(scene, {"title": "Broken"}, delivery="d-1")
    (task,) = await scene.tasks()
    assert (task.metadata.name, task.spec.prompt) == (name, "Broken") and name.startswith("s-d-1-")
    assert task.metadata.labels == {"rota.dev/spawner": "s"}
    assert task.metadata.annotations["rota.dev/item"] == "d-1"
    (owner,) = task.metadata.owner_references
    assert (owner.kind, owner.name, owner.controller) == ("TaskSpawner", "s", True)


async def test_the_status_tells_of_it_at_once(scene: Scene) -> None:
    await scene.hook()
    name = await made(scene, {"title": "Broken"})
    status = await scene.status()
    assert (status.discovered, status.created, status.active, status.last_error) == (1, 1, 1, None)
    assert status.items == [name[-12:]] and await scene.ready() == ("True", "Listening", "")


async def test_a_redelivery_makes_no_second_task_and_names_the_first(scene: Scene) -> None:
    await scene.hook()
    name = await made(scene, {"title": "Broken"}, delivery="d-1")
    assert await scene.deliver({"title": "Broken"}, delivery="d-1") == AlreadyDelivered(name)
    assert await scene.deliver({"title": "Changed"}, delivery="d-1") == AlreadyDelivered(name)
    assert len(await scene.tasks()) == 1 and (await scene.status()).created == 1


async def test_a_redelivery_of_what_was_pruned_makes_no_second_task(scene: Scene) -> None:
    await scene.hook()
    name = await made(scene, {"title": "Broken"}, delivery="d-1")
    await scene.prune("Broken")
    assert await scene.deliver({"title": "Broken"}, delivery="d-1") == AlreadyDelivered(name)
    assert not await scene.tasks()


async def test_the_same_at_the_same_time_is_one_task(scene: Scene) -> None:
    await scene.hook()
    answers = await asyncio.gather(*(scene.deliver({"title": "Broken"}) for _ in range(20)))
    assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyDelivered"] * 19 + ["TaskCreated"]
    assert len({answer.task for answer in answers if not isinstance(answer, Ignored | DeliveryRefused)}) == 1


async def test_many_at_the_same_time_are_all_made(scene: Scene) -> None:
    await scene.hook()
    await asyncio.gather(*(made(scene, {"title": str(number)}) for number in range(50)))
    status = await scene.status()
    assert (status.created, status.active, len(status.items)) == (50, 50, 50)


async def test_another_spawner_makes_its_own_of_the_same_delivery(scene: Scene) -> None:
    await scene.hook("s")
    await scene.hook("other")
    assert await made(scene, {"title": "x"}, delivery="d") != await made(
        scene, {"title": "x"}, name="other", delivery="d"
    )


async def test_what_is_remembered_has_a_bound_and_the_oldest_go(scene: Scene) -> None:
    await scene.hook()
    found = await scene.world.client.get(TaskSpawner.api, "s")
    items = [f"{number:012x}" for number in range(DELIVERIES_MAX)]
    await scene.world.client.update_status({**found, "status": {"created": 500, "items": items}})
    name = await made(scene, {"title": "x"})
    status = await scene.status()
    assert len(status.items) == DELIVERIES_MAX and status.items[-1] == name[-12:] and items[0] not in status.items


# Who may.


async def test_who_does_not_sign_is_told_nothing(scene: Scene) -> None:
    await scene.hook()
    await scene.secret("empty", secret="")
    await scene.hook("empty", source={"secretRef": {"name": "empty"}})
    await scene.hook("lacking", source={"secretRef": {"name": "not-there"}})
    await scene.poll("polls")
    answers = [await scene.deliver({"title": "x"}, name, key=b"wrong") for name in ("s", "nobody", "polls", "lacking")]
    answers += [await scene.deliver({"title": "x"}, "empty", key=b""), await scene.deliver({}, "Not/A/Name")]
    answers.append(await scene.deliver(b"rubbish", key=b"wrong"))
    assert answers == [NOBODY] * 7
    assert not await scene.tasks() and (await scene.status()).last_error is None


async def test_a_suspended_or_full_spawner_tells_who_does_not_sign_nothing_either(scene: Scene) -> None:
    await scene.hook(suspend=True, maxTotal=1)
    assert await scene.deliver({"title": "x"}, key=b"wrong") == NOBODY


async def test_a_spawner_that_is_being_deleted_is_gone(scene: Scene) -> None:
    await scene.hook()
    await scene.world.patch("TaskSpawner", "s", {"metadata": {"finalizers": ["example.com/hold"]}})
    await scene.world.delete("TaskSpawner", "s")
    assert await scene.deliver({"title": "x"}) == NOBODY


async def test_a_key_that_was_replaced_signs_no_more(scene: Scene) -> None:
    await scene.hook()
    await scene.world.patch("Secret", "hook", {"stringData": {"secret": "new"}})
    assert await scene.deliver({"title": "x"}) == NOBODY
    assert isinstance(await scene.deliver({"title": "x"}, key=b"new"), TaskCreated)


# What is not wanted, or not now.


async def test_what_the_filters_do_not_want_is_ignored_with_a_word(scene: Scene) -> None:
    await scene.hook(source={"filters": [{"path": "action", "values": ["opened"]}]})
    assert isinstance(await scene.deliver({"title": "x", "action": "closed"}), Ignored)
    assert isinstance(await scene.deliver({"title": "x", "action": "opened"}), TaskCreated)
    assert (await scene.status()).discovered == 1


async def test_at_the_limit_a_sender_is_told_to_come_back_and_then_is_served(scene: Scene) -> None:
    await scene.hook(maxConcurrency=1)
    await made(scene, {"title": "one"})
    answer = refused(await scene.deliver({"title": "two"}), "AtLimit")
    assert answer.retry_seconds == LIMIT_SECONDS
    assert answer.message == "at the limit: maxConcurrency: 1 of 1 tasks are under way"
    assert await scene.prompts() == ["one"]
    await scene.finish("one", "Failed")
    await made(scene, {"title": "two"})


async def test_many_at_once_do_not_get_past_the_limit(scene: Scene) -> None:
    await scene.hook(maxConcurrency=3)
    answers = await asyncio.gather(*(scene.deliver({"title": str(number)}) for number in range(20)))
    assert sum(isinstance(answer, TaskCreated) for answer in answers) == 3 == len(await scene.tasks())


async def test_a_task_that_is_deleted_makes_room(scene: Scene) -> None:
    await scene.hook(maxConcurrency=1)
    await made(scene, {"title": "one"})
    await scene.prune("one")
    await made(scene, {"title": "two"})


async def test_a_total_counts_what_was_ever_made(scene: Scene) -> None:
    await scene.hook(maxTotal=2)
    await made(scene, {"title": "one"})
    await scene.prune("one")
    await made(scene, {"title": "two"})
    answer = refused(await scene.deliver({"title": "three"}), "AtLimit")
    assert answer.retry_seconds == LATER_SECONDS and "maxTotal: 2 of 2" in answer.message
    assert await scene.ready() == ("True", "Complete", "")


async def test_a_redelivery_at_the_limit_is_known_and_not_refused(scene: Scene) -> None:
    await scene.hook(maxConcurrency=1, maxTotal=1)
    name = await made(scene, {"title": "one"})
    assert await scene.deliver({"title": "one"}) == AlreadyDelivered(name)


async def test_while_suspended_nothing_is_taken_and_nothing_is_lost_in_silence(scene: Scene) -> None:
    await scene.hook(suspend=True)
    assert await scene.ready() == ("True", "Suspended", "")
    assert refused(await scene.deliver({"title": "x"}, delivery="d"), "Suspended").retry_seconds
    await scene.change(suspend=False)
    assert isinstance(await scene.deliver({"title": "x"}, delivery="d"), TaskCreated)


async def test_one_that_does_not_lead_says_so_to_everybody(scene: Scene) -> None:
    await scene.hook()
    await scene.world.stop()
    answers = [await scene.deliver({}), await scene.deliver({}, "nobody"), await scene.deliver({}, key=b"wrong")]
    assert len(set(answers)) == 1 and refused(answers[0], "NotServed").retry_seconds


async def test_one_that_leads_no_longer_makes_nothing(scene: Scene) -> None:
    await scene.hook()
    fenced = Fenced(scene.client.backend, lambda: False, lambda: "another")
    scene.spawning.maker._client = Client(fenced, manager="deposed")
    refused(await scene.deliver({"title": "x"}), "NotServed")
    assert not await scene.tasks()


# What goes wrong.


async def test_a_template_that_does_not_fit_is_told_to_the_sender_and_to_people(scene: Scene) -> None:
    await scene.hook()
    answer = refused(await scene.deliver({"name": "x"}), "TemplateError")
    assert answer.message == "taskTemplate.prompt: {{ item.title }}: the item has no title; it has: name"
    assert answer.retry_seconds == 0 and not await scene.tasks()
    await scene.world.rest()
    assert (await scene.status()).last_error == f"TemplateError: {answer.message}"
    assert await scene.ready() == ("False", "TemplateError", answer.message)
    assert scene.world.events.reasons("TaskSpawner/s") == ["TemplateError"]


async def test_the_same_mistake_again_is_not_written_again(scene: Scene) -> None:
    await scene.hook()
    await scene.deliver({"name": "x"})
    await scene.world.rest()
    before = await scene.version()
    for number in range(5):
        refused(await scene.deliver({"name": f"y{number}"}), "TemplateError")
    await scene.world.pass_time(120, step=10)
    assert await scene.version() == before and len(scene.world.events.said) == 1


async def test_an_error_goes_when_a_delivery_goes_well(scene: Scene) -> None:
    await scene.hook()
    await scene.deliver({"name": "x"})
    await made(scene, {"title": "x"})
    await scene.world.rest()
    assert (await scene.status()).last_error is None and await scene.ready() == ("True", "Listening", "")


async def test_an_error_goes_when_the_spawner_is_changed(scene: Scene) -> None:
    await scene.hook()
    await scene.deliver({"name": "x"})
    await scene.change(taskTemplate={"prompt": "{{ item.name }}"})
    assert (await scene.status()).last_error is None and await scene.ready() == ("True", "Listening", "")


async def test_a_task_that_the_server_does_not_take_is_told(scene: Scene) -> None:
    await scene.hook()
    answer = refused(await scene.deliver({"title": "x" * 70_000}), "InvalidTask")
    assert "spec.prompt" in answer.message and not await scene.tasks()
    assert ((await scene.status()).last_error or "").startswith("InvalidTask: spec.prompt")
    assert (await scene.status()).created == 0


async def test_a_body_that_is_no_object_is_told(scene: Scene) -> None:
    await scene.hook()
    refused(await scene.deliver(b"[]"), "BadBody")
    assert (await scene.status()).last_error is None, "it is the sender's mistake"


async def test_a_body_without_a_content_type_is_told_which_there_are(scene: Scene) -> None:
    await scene.hook()
    answer = refused(await scene.deliver(b"payload=%7B%7D"), "BadBody")
    assert answer.message.startswith("the body is not the JSON of an object: ")
    hint = "; the request has no Content-Type: send JSON as application/json, or a form as "
    assert answer.message.endswith(hint + "application/x-www-form-urlencoded")
    with_one: Any = {"content-type": "text/plain"}
    said = refused(await scene.deliver(b"payload", **with_one), "BadBody").message
    assert "Content-Type" not in said, "it has one"


async def test_a_body_that_curl_calls_a_form_and_that_is_none_is_told_that_it_is_no_json(scene: Scene) -> None:
    await scene.hook()
    as_form: Any = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"not json", b'["a"]', b'"a"'):
        said = refused(await scene.deliver(body, **as_form), "BadBody").message
        assert said == "the body is neither the JSON of an object nor a form with the field payload"


async def test_json_needs_no_content_type(scene: Scene) -> None:
    await scene.hook()
    await made(scene, {"title": "Broken"})


async def test_a_mistake_in_a_template_is_refused(scene: Scene) -> None:
    with pytest.raises(ApiError, match=r"spec\.taskTemplate\.prompt: Invalid value: .*: that is not understood"):
        await scene.hook(prompt="{{ titel }}")


async def test_a_field_that_is_not_mapped_is_refused(scene: Scene) -> None:
    with pytest.raises(ApiError, match="an item has no title; it has: name"):
        await scene.hook(source={"map": {"name": "a.b"}})


async def test_a_mistake_that_a_cluster_took_is_told_before_anything_is_delivered(scene: Scene) -> None:
    await scene.took({"webhook": {"secretRef": {"name": "hook"}, "map": {"name": "a.b"}}}, "{{ item.title }}")
    assert await scene.ready() == (
        "False",
        "TemplateError",
        'spec.taskTemplate.prompt: Invalid value: "{{ item.title }}": an item has no title; it has: name',
    )
    assert scene.world.events.reasons("TaskSpawner/s") == ["TemplateError"]


async def test_a_spawner_that_is_changed_meanwhile_is_read_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.hook()
    make = scene.spawning.maker.make
    changes = 0

    async def changed_first(*given: Any) -> Any:
        nonlocal changes
        changes += 1
        if changes < 3:
            await scene.world.patch("TaskSpawner", "s", {"metadata": {"annotations": {"n": str(changes)}}})
        return await make(*given)

    monkeypatch.setattr(scene.spawning.maker, "make", changed_first)
    await made(scene, {"title": "x"})
    assert (await scene.status()).created == 1 and len(await scene.tasks()) == 1


async def test_a_pool_that_is_not_there_yet_holds_up_the_task_and_not_the_delivery(scene: Scene) -> None:
    await scene.world.delete("WorkerPool", "pool")
    await scene.hook()
    await scene.world.pass_time(10, step=1)
    assert (await scene.ready())[:2] == ("False", "DependencyNotFound")
    await made(scene, {"title": "x"})
    await scene.world.rest()
    assert (await scene.ready())[:2] == ("False", "DependencyNotFound"), "it is still the first thing to see to"
    await scene.world.create("WorkerPool", "pool", {"worker": {}, "replicas": 0})
    await scene.world.rest()
    assert await scene.ready() == ("True", "Listening", "")


async def test_a_task_that_was_made_and_not_written_down_is_taken_up(scene: Scene) -> None:
    await scene.hook()
    name = await made(scene, {"title": "x"})
    found = await scene.world.client.get(TaskSpawner.api, "s")
    await scene.world.client.update_status({**found, "status": {**found["status"], "created": 0, "items": []}})
    await scene.world.rest()
    status = await scene.status()
    assert (status.created, status.items) == (1, [name[-12:]])
    await scene.prune("x")
    assert await scene.deliver({"title": "x"}) == AlreadyDelivered(name)


async def test_counts_follow_the_tasks_but_are_not_written_for_each(scene: Scene) -> None:
    await scene.hook()
    for number in range(10):
        await made(scene, {"title": str(number)})
    await scene.world.pass_time(60)
    seen = {await scene.version()}
    for number in range(10):
        await scene.finish(str(number))
        await scene.world.pass_time(1)
        seen.add(await scene.version())
    await scene.world.pass_time(60)
    assert (await scene.status()).active == 0 and len(seen) <= 3
