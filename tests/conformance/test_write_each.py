from __future__ import annotations

import msgspec

from rota import Client
from rota.client import Operation
from rota.registry import Answer, ApiError
from tests.conformance.objects import CONFIG_MAPS, POOLS, config_map, name_of, pool


def outcome(answer: Answer | ApiError) -> str:
    return answer.reason if isinstance(answer, ApiError) else "gone" if answer.gone else "written"


async def test_every_verb_is_written_by_itself(client: Client) -> None:
    where = client.namespace
    old = await client.create(pool("updated"))
    for name in ("patched", "deleted"):
        await client.create(pool(name))
    answers = await client.write_each(
        [
            Operation("create", POOLS, where, body=pool("created")),
            Operation("create", POOLS, where, body=pool("updated")),
            Operation("update", POOLS, where, "updated", {**old, "spec": {**old["spec"], "replicas": 2}}),
            Operation("update", POOLS, where, "updated", {**old, "spec": {**old["spec"], "replicas": 3}}),
            Operation("patch", POOLS, where, "patched", {"status": {"replicas": 3}}, subresource="status"),
            Operation("patch", POOLS, where, "none", {"status": {"replicas": 3}}, subresource="status"),
            Operation("apply", CONFIG_MAPS, where, "applied", config_map("applied")),
            Operation("delete", POOLS, where, "deleted"),
            Operation("delete", POOLS, where, "deleted"),
        ]
    )
    refusals = ["AlreadyExists", "Conflict", "NotFound", "NotFound"]
    exists, conflict, unknown, deleted = refusals
    written = "written"
    expected = [written, exists, written, conflict, written, unknown, written, "gone", deleted]
    assert [outcome(answer) for answer in answers] == expected
    assert [name_of(obj) for obj in (await client.list(POOLS)).items] == ["created", "patched", "updated"]
    assert (await client.get(POOLS, "updated"))["spec"]["replicas"] == 2
    assert (await client.get(POOLS, "patched"))["status"]["replicas"] == 3


async def test_the_answer_is_the_object_at_its_version(client: Client) -> None:
    (answer,) = await client.write_each([Operation("create", POOLS, client.namespace, body=pool("a"))])
    assert isinstance(answer, Answer)
    assert msgspec.json.decode(answer.value) == await client.get(POOLS, "a")
    assert str(answer.revision) == (await client.get(POOLS, "a"))["metadata"]["resourceVersion"]


async def test_an_apply_says_whether_it_made_the_object(client: Client) -> None:
    applied = Operation("apply", CONFIG_MAPS, client.namespace, "a", config_map("a"))
    answers = await client.write_each([applied, applied])
    assert [isinstance(answer, Answer) and answer.created for answer in answers] == [True, False]


async def test_of_nothing_nothing_comes(client: Client) -> None:
    assert await client.write_each([]) == []
