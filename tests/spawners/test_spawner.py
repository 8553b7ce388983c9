"""Spawners that poll: every item one task, in time with the tracker, whatever that answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rota.control.spawner import MADE_AT_ONCE_MAX, TOO_MANY, Spawners
from rota.control.spawners import listing
from rota.control.spawners.poll import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, WHOLE_SECONDS
from rota.registry import ApiError
from tests.engine_loop.loops import START, World
from tests.spawners.spawning import Scene
from tests.spawners.tracker import Reply, Tracker, issue

TRIAGE = {"labels": ["agent"]}


@pytest.fixture(params=[True, False], ids=["atomic", "one by one"])
async def scene(world: World, github: Tracker, request: pytest.FixtureRequest) -> Scene:
    made = Scene(world, github, atomic=request.param)
    await made.prepare()
    await made.serve()
    return made


async def minutes(scene: Scene, count: float = 1) -> None:
    await scene.world.pass_time(60.0 * count, step=60.0)


# From items to tasks.


async def test_every_item_becomes_a_task(scene: Scene, github: Tracker) -> None:
    github.items = [issue(2, "agent"), issue(1, "agent")]
    await scene.poll(prompt="#{{ item.number }} {{ item.title }}")
    assert await scene.prompts() == ["#1 Issue 1", "#2 Issue 2"]
    names = sorted(task.metadata.name for task in await scene.tasks())
    assert [name[:-13] for name in names] == ["s-acme-app-issues-1", "s-acme-app-issues-2"]
    status = await scene.status()
    assert (status.discovered, status.created, status.active, len(status.items)) == (2, 2, 2, 2)
    assert status.last_poll_time.timestamp() == START and await scene.ready() == ("True", "Polling", "")


async def test_what_is_new_is_made_at_the_next_poll(scene: Scene, github: Tracker) -> None:
    await scene.poll()
    github.items = [issue(1)]
    await scene.world.pass_time(59)
    assert not await scene.tasks() and len(github.asked) == 1
    await scene.world.pass_time(1)
    assert await scene.prompts() == ["Issue 1"] and len(github.asked) == 2


async def test_an_item_that_changes_is_not_made_again(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1, "agent")]
    await scene.poll(source=TRIAGE)
    github.items = [issue(1, "agent", "p1", title="Another title")]
    await minutes(scene)
    github.items = [issue(1)]
    await minutes(scene)
    github.items = [issue(1, "agent")]
    await minutes(scene)
    assert await scene.prompts() == ["Issue 1"] and (await scene.status()).created == 1


async def test_an_item_whose_task_was_pruned_is_not_made_again(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1)]
    await scene.poll()
    await scene.finish("Issue 1")
    await scene.prune("Issue 1")
    github.items = [issue(1, title="Another title")]
    await minutes(scene, 120)
    assert not await scene.tasks() and (await scene.status()).created == 1


async def test_a_new_leader_makes_nothing_twice(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1), issue(2)]
    await scene.poll()
    await scene.prune("Issue 2")
    await scene.world.stop()
    other = Scene(scene.world, github)
    await other.serve()
    assert len(github.asked) == 2 and await scene.prompts() == ["Issue 1"]
    assert (await scene.status()).created == 2


async def test_two_leaders_at_once_make_nothing_twice(scene: Scene, github: Tracker) -> None:
    github.items = [issue(number) for number in range(30, 0, -1)]
    other = Scene(scene.world, github)
    rival = World(scene.world.registry, scene.world.clock, "store")
    await rival.serve(Spawners(other.spawning), client=other.client)
    await scene.poll(maxTotal=20)
    await rival.rest()
    await minutes(scene, 2)
    await rival.rest()
    assert len(await scene.tasks()) == 20 == (await scene.status()).created
    await rival.stop()


async def test_the_same_number_of_another_repository_is_another_item(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1)]
    await scene.poll(source={"repo": "Acme/App"})
    assert not await scene.tasks()
    await scene.change(source={"github": {"repo": "acme/app"}})
    assert len(await scene.tasks()) == 1, "a changed source is polled at once"
    await scene.change(source={"github": {"kind": "pulls"}})
    assert len(await scene.tasks()) == 2


async def test_many_items_are_made_in_few_commits(scene: Scene, github: Tracker) -> None:
    github.items = [issue(number) for number in range(3 * MADE_AT_ONCE_MAX, 0, -1)]
    await scene.poll()
    status = await scene.status()
    assert (status.created, status.active, len(status.items)) == (150, 150, 150)


# Limits.


async def test_what_has_no_room_waits_and_the_oldest_comes_first(scene: Scene, github: Tracker) -> None:
    github.items = [issue(3), issue(1), issue(2)]
    await scene.poll(maxConcurrency=1)
    status = await scene.status()
    assert await scene.prompts() == ["Issue 1"] and (status.discovered, status.created) == (3, 1)


async def test_when_a_task_ends_the_next_is_made_at_once_without_asking(scene: Scene, github: Tracker) -> None:
    github.items = [issue(2), issue(1)]
    await scene.poll(maxConcurrency=1)
    await scene.finish("Issue 1")
    assert await scene.prompts() == ["Issue 1", "Issue 2"] and len(github.asked) == 1


async def test_what_waits_is_made_though_nothing_has_changed_since(scene: Scene, github: Tracker) -> None:
    github.items = [issue(2), issue(1)]
    await scene.poll(maxConcurrency=1)
    await minutes(scene, 3)
    await scene.finish("Issue 1")
    assert await scene.prompts() == ["Issue 1", "Issue 2"]


async def test_a_total_ends_the_polling(scene: Scene, github: Tracker) -> None:
    github.items = [issue(2), issue(1)]
    await scene.poll(maxTotal=1)
    await minutes(scene, 5)
    assert await scene.prompts() == ["Issue 1"]
    assert await scene.ready() == ("True", "Complete", "") and len(github.asked) == 1
    await scene.change(maxTotal=2)
    assert await scene.prompts() == ["Issue 1", "Issue 2"]


async def test_a_suspended_spawner_asks_for_nothing(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1)]
    await scene.poll(suspend=True)
    await minutes(scene, 5)
    assert not github.asked and not await scene.tasks() and await scene.ready() == ("True", "Suspended", "")
    await scene.change(suspend=False)
    assert await scene.prompts() == ["Issue 1"]


async def test_too_many_items_are_told(scene: Scene, github: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGES_MAX", 1)
    github.items = [issue(number) for number in range(101)]
    await scene.poll()
    assert await scene.ready() == ("True", "Polling", TOO_MANY)
    assert scene.world.events.reasons("TaskSpawner/s") == ["TooManyItems"]


async def test_what_was_not_kept_is_read_again_when_there_is_room(
    scene: Scene, github: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "KEPT_CHARACTERS_MAX", 1500)
    github.items = [issue(number, body="x" * 1000) for number in (3, 2, 1)]
    await scene.poll()
    status = await scene.status()
    assert (status.discovered, status.created) == (3, 1)
    await minutes(scene, 2)
    assert (await scene.status()).created == 3


# Being a good client.


async def test_what_has_not_changed_is_not_read_again_until_it_is_time(scene: Scene, github: Tracker) -> None:
    github.items = [issue(number) for number in range(101, 0, -1)]
    await scene.poll(source={"pollSeconds": 600})
    await scene.world.pass_time(WHOLE_SECONDS, step=600)
    assert github.pages == [1, 2, 1, 1, 1, 1, 1, 1, 2]


async def test_an_idle_spawner_writes_once_a_minute_at_most(scene: Scene, github: Tracker) -> None:
    await scene.poll(source={"pollSeconds": 1})
    before = int(await scene.version())
    await scene.world.pass_time(300, step=1)
    assert len(github.asked) == 301
    assert int(await scene.version()) - before <= 5


async def test_an_error_is_told_and_tried_again_ever_later(scene: Scene, github: Tracker) -> None:
    github.script = [Reply(500, {}, b'{"message": "boom"}')] * 20
    await scene.poll()
    assert (await scene.ready())[:2] == ("False", "PollFailed")
    assert ((await scene.status()).last_error or "").endswith("answered 500: boom")
    assert scene.world.events.reasons("TaskSpawner/s") == ["PollFailed"]
    times = [0.0]
    while len(github.asked) < 12:
        seen = len(github.asked)
        await scene.world.pass_time(1)
        if len(github.asked) > seen:
            times.append(scene.world.clock.now())
    pauses = [later - earlier for earlier, later in pairwise(times)]
    expected = [min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2**number) for number in range(11)]
    for pause, most in zip(pauses, expected, strict=True):
        assert most / 2 - 1 <= pause <= most + 1, pauses
    assert len(scene.world.events.said) == 1


async def test_an_error_goes_when_a_poll_goes_well(scene: Scene, github: Tracker) -> None:
    github.script = [Reply(500)] * 2
    github.items = [issue(1)]
    await scene.poll()
    await minutes(scene, 2)
    assert (await scene.status()).last_error is None and await scene.ready() == ("True", "Polling", "")
    assert await scene.prompts() == ["Issue 1"]


async def test_what_is_known_is_made_though_the_api_fails(scene: Scene, github: Tracker) -> None:
    github.items = [issue(2), issue(1)]
    await scene.poll(maxConcurrency=1)
    github.script = [Reply(500)] * 100
    await minutes(scene, 2)
    await scene.finish("Issue 1")
    assert await scene.prompts() == ["Issue 1", "Issue 2"]


async def test_an_api_that_wants_peace_gets_it(scene: Scene, github: Tracker) -> None:
    github.script = [Reply(403, {"Retry-After": "600"})]
    await scene.poll()
    assert (await scene.ready())[:2] == ("False", "RateLimited")
    await scene.world.pass_time(599, step=10)
    assert len(github.asked) == 1
    await scene.world.pass_time(1 + BACKOFF_SECONDS_FIRST, step=1)
    assert len(github.asked) == 2


async def test_when_nothing_is_left_of_a_rate_it_is_waited_for(scene: Scene, github: Tracker) -> None:
    github.always = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(START) + 1800)}
    await scene.poll()
    await scene.world.pass_time(1799, step=10)
    assert len(github.asked) == 1
    await scene.world.pass_time(1)
    assert len(github.asked) == 2


# What may be dialled, and with what.


async def test_an_api_that_is_not_on_the_list_is_not_dialled(world: World, github: Tracker) -> None:
    scene = Scene(world)
    await scene.prepare()
    await scene.serve()
    await scene.poll(source={"apiURL": github.url})
    await minutes(scene, 5)
    status, reason, message = await scene.ready()
    assert (status, reason) == ("False", "ApiNotAllowed") and not github.asked
    assert f"`rota restart --allow-api {github.url}`" in message and "https://api.github.com" in message
    assert world.events.reasons("TaskSpawner/s") == ["ApiNotAllowed"]


async def test_a_token_comes_from_the_secret_and_a_new_one_is_tried_at_once(scene: Scene, github: Tracker) -> None:
    await scene.secret("token", token="old\n")
    github.script = [Reply(401)]
    await scene.poll(source={"secretRef": {"name": "token"}})
    assert (await scene.ready())[1] == "CredentialsRefused"
    await scene.world.patch("Secret", "token", {"stringData": {"token": "new"}})
    await scene.world.rest()
    assert [one.headers["authorization"] for one in github.asked] == ["Bearer old", "Bearer new"]
    assert await scene.ready() == ("True", "Polling", "")


async def test_a_secret_without_a_token_is_told_and_nothing_is_asked(scene: Scene, github: Tracker) -> None:
    await scene.secret("token", user="u", password="p")
    await scene.poll(source={"secretRef": {"name": "token"}})
    assert (await scene.ready())[1:] == ("CredentialsRefused", "Secret/token has no key token")
    assert not github.asked


async def test_without_its_secret_or_its_pool_nothing_is_asked(scene: Scene, github: Tracker) -> None:
    await scene.poll(source={"secretRef": {"name": "later"}})
    assert (await scene.ready())[:2] == ("False", "DependencyNotReady") and not github.asked
    await scene.world.pass_time(10, step=1)
    assert (await scene.ready())[:2] == ("False", "DependencyNotFound") and not github.asked
    await scene.secret("later", token="t")
    await scene.world.rest()
    assert await scene.ready() == ("True", "Polling", "") and len(github.asked) == 1
    assert await scene.world.condition("TaskSpawner", "s", "ResolvedRefs") == ("True", "Resolved", "")


# Items that cannot be made.


async def test_an_item_that_does_not_fit_does_not_hold_up_the_others(scene: Scene, github: Tracker) -> None:
    github.items = [issue(3), issue(2, body="x" * 65_536), issue(1)]
    await scene.poll(prompt="#{{ item.number }} {{ item.body }}")
    assert [text[:2] for text in await scene.prompts()] == ["#1", "#3"] and (await scene.status()).created == 2
    status, reason, message = await scene.ready()
    assert (status, reason) == ("False", "InvalidTask") and message.startswith("acme/app/issues/2: spec.prompt")
    github.items = [issue(3), issue(2), issue(1)]
    await minutes(scene)
    assert await scene.ready() == ("True", "Polling", "") and len(await scene.tasks()) == 3


async def test_an_item_that_was_refused_is_tried_again_when_the_spawner_has_changed(
    scene: Scene, github: Tracker
) -> None:
    github.items = [issue(2), issue(1, body="x" * 65_536)]
    await scene.poll(prompt="#{{ item.number }} {{ item.body }}")
    await scene.finish("#2 Body of 2")
    assert (await scene.ready())[1] == "InvalidTask" and (await scene.status()).discovered == 2
    await scene.change(taskTemplate={"prompt": "#{{ item.number }}"})
    assert await scene.prompts() == ["#1", "#2 Body of 2"] and await scene.ready() == ("True", "Polling", "")
    assert len(github.asked) == 1


async def test_a_field_that_no_item_has_is_told_before_anything_is_asked(scene: Scene, github: Tracker) -> None:
    with pytest.raises(ApiError, match="an item has no titel"):
        await scene.poll(prompt="{{ item.titel }}")
    await scene.took({"github": {"repo": "acme/app"}}, "{{ item.titel }}")
    assert (await scene.ready())[1] == "TemplateError" and not github.asked


async def test_what_an_item_says_asks_for_nothing(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1, title="{{ item.body }} {{ tasks.a.outputs.b }}")]
    await scene.poll()
    assert await scene.prompts() == ["{{ item.body }} { { tasks.a.outputs.b }}"]


async def test_a_task_of_that_name_that_somebody_else_made_is_left_alone(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1)]
    await scene.poll()
    (task,) = await scene.tasks()
    await scene.world.delete("TaskSpawner", "s")
    await scene.world.delete("Task", task.metadata.name)
    await scene.world.create("Task", task.metadata.name, {"prompt": "mine", "workerPoolRef": {"name": "pool"}})
    await scene.poll()
    assert await scene.prompts() == ["mine"]
    assert await scene.ready() == ("True", "Polling", "") and (await scene.status()).created == 0


async def test_when_a_spawner_is_gone_nothing_is_asked_any_more(scene: Scene, github: Tracker) -> None:
    await scene.poll()
    await scene.world.delete("TaskSpawner", "s")
    await minutes(scene, 5)
    assert len(github.asked) == 1


async def test_a_bad_answer_of_any_kind_leaves_what_was_made(scene: Scene, github: Tracker) -> None:
    github.items = [issue(1)]
    await scene.poll()
    bad: list[Any] = [Reply(200, {}, b"<html>"), Reply(302, {"Location": "https://evil.example"}), Reply(404)]
    for one in bad:
        github.script = [one]
        await minutes(scene)
        assert (await scene.ready())[0] == "False"
        await minutes(scene, 2)
        assert (await scene.ready())[0] == "True"
    assert await scene.prompts() == ["Issue 1"] and (await scene.status()).created == 1
