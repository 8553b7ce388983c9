"""Values that CEL cannot reject are refused all the same, by every way in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.api import Schedule
from rota.client import Client
from rota.registry import ApiError, Registry
from rota.store import MemoryStore

GOOD, BAD = "* * * * *", "61 * * * *"
SAID = 'Invalid value: "61 * * * *": minute 61 is too high: it must be 0 to 59'


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    registry = Registry(MemoryStore())
    await registry.start()
    yield Client.local(registry, manager="somebody")
    await registry.stop()


def schedule(cron: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"cron": cron, "target": {"functionRef": {"name": "f"}}, **spec},
    }


async def _created(client: Client, *, dry_run: bool = False) -> None:
    await client.create(schedule(BAD), dry_run=dry_run)


async def _applied(client: Client, *, dry_run: bool = False) -> None:
    await client.apply(schedule(BAD), dry_run=dry_run)


async def _applied_over(client: Client, *, dry_run: bool = False) -> None:
    await client.apply(schedule(GOOD))
    await client.apply(schedule(BAD), dry_run=dry_run)


async def _updated(client: Client, *, dry_run: bool = False) -> None:
    made = await client.create(schedule(GOOD))
    made["spec"]["cron"] = BAD
    await client.update(made, dry_run=dry_run)


async def _merged(client: Client, *, dry_run: bool = False) -> None:
    await client.create(schedule(GOOD))
    await client.patch(Schedule.api, "s", {"spec": {"cron": BAD}}, dry_run=dry_run)


async def _patched(client: Client, *, dry_run: bool = False) -> None:
    await client.create(schedule(GOOD))
    patch: list[dict[str, Any]] = [{"op": "replace", "path": "/spec/cron", "value": BAD}]
    await client.patch(Schedule.api, "s", patch, type="json", dry_run=dry_run)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("write", [_created, _applied, _applied_over, _updated, _merged, _patched])
async def test_every_verb_refuses_it_and_names_the_field(client: Client, write: Any, dry_run: bool) -> None:
    with pytest.raises(ApiError) as refused:
        await write(client, dry_run=dry_run)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert refused.value.causes == [{"reason": "FieldValueInvalid", "message": SAID, "field": "spec.cron"}]
    assert refused.value.message == f'Schedule.rota.dev "s" is invalid: spec.cron: {SAID}'
    left = (await client.list(Schedule.api)).items
    assert all(one["spec"]["cron"] == GOOD for one in left)


async def test_a_status_can_be_written_whatever_is_checked(client: Client) -> None:
    made = await client.create(schedule(GOOD))
    made["status"] = {"runCount": 3}
    assert (await client.update_status(made))["status"]["runCount"] == 3
