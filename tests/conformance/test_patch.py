from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Client
from rota.api import Schedule
from tests.conformance.expecting import causes, refused
from tests.conformance.objects import CONFIG_MAPS, POOLS, WORKLOADS, config_map, placement, pool, version_of, workload

# Merge patch.


async def test_a_merge_patch_changes_what_it_names(client: Client) -> None:
    await client.create(pool("a", {"replicas": 1, "reset": "Keep"}, labels={"x": "1", "y": "2"}))
    changed = await client.patch(POOLS, "a", {"metadata": {"labels": {"x": "9"}}, "spec": {"replicas": 2}})
    assert changed["metadata"]["labels"] == {"x": "9", "y": "2"}
    assert (changed["spec"]["replicas"], changed["spec"]["reset"]) == (2, "Keep")


async def test_null_in_a_merge_patch_removes(client: Client) -> None:
    await client.create(pool("a", {"replicas": 1}, labels={"x": "1", "y": "2"}))
    changed = await client.patch(POOLS, "a", {"metadata": {"labels": {"x": None}}, "spec": {"replicas": None}})
    assert changed["metadata"]["labels"] == {"y": "2"}
    assert "replicas" not in changed["spec"]


async def test_null_for_a_field_with_a_default_brings_the_default_back(client: Client) -> None:
    await client.create(pool("a", {"reset": "Keep"}))
    changed = await client.patch(POOLS, "a", {"spec": {"reset": None}})
    assert changed["spec"]["reset"] == "Clean"


async def test_a_merge_patch_replaces_lists_whole(client: Client) -> None:
    await client.create(workload("a", {"placements": [placement("east"), placement("west")]}))
    changed = await client.patch(WORKLOADS, "a", {"spec": {"placements": [placement("north")]}})
    assert [p["name"] for p in changed["spec"]["placements"]] == ["north"]


async def test_a_patch_without_a_change_keeps_the_version(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 1}))
    assert await client.patch(POOLS, "a", {"spec": {"replicas": 1}}) == made


async def test_a_patch_of_the_spec_gives_a_new_generation_and_one_of_metadata_does_not(client: Client) -> None:
    await client.create(pool("a"))
    changed = await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    assert changed["metadata"]["generation"] == 2
    changed = await client.patch(POOLS, "a", {"metadata": {"annotations": {"x": "1"}}})
    assert changed["metadata"]["generation"] == 2


async def test_a_patch_with_an_old_version_is_a_conflict(client: Client) -> None:
    made = await client.create(pool("a"))
    await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    patch = {"metadata": {"resourceVersion": version_of(made)}, "spec": {"replicas": 2}}
    with refused(409, "Conflict") as refusal:
        await client.patch(POOLS, "a", patch)
    assert "the object has been modified" in refusal.value.message


async def test_a_patch_with_the_current_version_is_done(client: Client) -> None:
    made = await client.create(pool("a"))
    patch = {"metadata": {"resourceVersion": version_of(made)}, "spec": {"replicas": 2}}
    assert (await client.patch(POOLS, "a", patch))["spec"]["replicas"] == 2


async def test_a_patch_with_another_uid_is_refused(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", {"metadata": {"uid": "another"}, "spec": {"replicas": 2}})
    assert set(causes(refusal)) == {("metadata.uid", "FieldValueInvalid")}
    assert await client.get(POOLS, "a") == made


async def test_a_patch_of_an_absent_object_is_not_found(client: Client) -> None:
    with refused(404, "NotFound"):
        await client.patch(POOLS, "absent", {"spec": {}})


async def test_a_patch_must_leave_a_valid_object(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", {"spec": {"replicas": 5000}})
    assert causes(refusal) == [("spec.replicas", "FieldValueInvalid")]
    assert await client.get(POOLS, "a") == made


async def test_a_patch_of_the_object_leaves_its_status(client: Client) -> None:
    made = await client.create(pool("a"))
    assert await client.patch(POOLS, "a", {"status": {"replicas": 3}}) == made


async def test_a_patch_does_not_rename(client: Client) -> None:
    await client.create(pool("a"))
    with refused(400, "BadRequest"):
        await client.patch(POOLS, "a", {"metadata": {"name": "b"}})


async def test_patches_without_a_version_never_conflict(client: Client) -> None:
    await client.create(pool("a"))
    patches = [client.patch(POOLS, "a", {"metadata": {"labels": {f"l{i}": "x"}}}) for i in range(20)]
    await asyncio.gather(*patches)
    assert len((await client.get(POOLS, "a"))["metadata"]["labels"]) == 20


# JSON patch.


async def test_a_json_patch_is_done_in_order(client: Client) -> None:
    await client.create(pool("a", {"replicas": 1}, labels={"x": "1"}))
    changed = await client.patch(
        POOLS,
        "a",
        [
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 2},
            {"op": "add", "path": "/metadata/labels/y", "value": "2"},
            {"op": "copy", "from": "/metadata/labels/y", "path": "/metadata/labels/z"},
            {"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/w"},
            {"op": "remove", "path": "/metadata/labels/y"},
        ],
        type="json",
    )
    assert changed["spec"]["replicas"] == 2
    assert changed["metadata"]["labels"] == {"z": "2", "w": "1"}


async def test_a_json_patch_reaches_into_lists(client: Client) -> None:
    await client.create(workload("a", {"placements": [placement("east"), placement("west")]}))
    changed = await client.patch(
        WORKLOADS,
        "a",
        [
            {"op": "add", "path": "/spec/placements/-", "value": placement("last")},
            {"op": "add", "path": "/spec/placements/0", "value": placement("first")},
            {"op": "remove", "path": "/spec/placements/1"},
        ],
        type="json",
    )
    assert [p["name"] for p in changed["spec"]["placements"]] == ["first", "west", "last"]


async def test_a_slash_in_a_key_is_escaped_in_a_json_patch(client: Client) -> None:
    await client.create(pool("a", labels={"example.com/x": "1"}))
    patch = [{"op": "replace", "path": "/metadata/labels/example.com~1x", "value": "2"}]
    assert (await client.patch(POOLS, "a", patch, type="json"))["metadata"]["labels"] == {"example.com/x": "2"}


async def test_a_failed_test_refuses_the_whole_json_patch(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 1}))
    patch = [
        {"op": "replace", "path": "/spec/replicas", "value": 5},
        {"op": "test", "path": "/spec/replicas", "value": 1},
    ]
    with refused(422, "Invalid"):
        await client.patch(POOLS, "a", patch, type="json")
    assert await client.get(POOLS, "a") == made


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "frobnicate", "path": "/spec/replicas", "value": 1},
        {"op": "remove", "path": "/spec/absent"},
        {"op": "add", "path": "/spec/absent/deep", "value": 1},
        {"op": "replace", "path": "/spec/absent/deep", "value": 1},
        {"op": "move", "from": "/spec/absent/deep", "path": "/spec/replicas"},
        {"op": "test", "path": "/spec/absent/deep", "value": 1},
    ],
)
async def test_an_operation_that_cannot_be_done_refuses_a_json_patch(client: Client, operation: dict[str, Any]) -> None:
    made = await client.create(pool("a"))
    with refused(422, "Invalid"):
        await client.patch(POOLS, "a", [operation], type="json")
    assert await client.get(POOLS, "a") == made


@pytest.mark.parametrize("patch", [{"op": "remove", "path": "/spec/replicas"}, ["remove"]])
async def test_a_json_patch_is_a_list_of_operations(client: Client, patch: Any) -> None:
    await client.create(pool("a"))
    with refused(400, "BadRequest"):
        await client.patch(POOLS, "a", patch, type="json")


async def test_a_merge_patch_is_an_object(client: Client) -> None:
    await client.create(pool("a"))
    with refused(400, "BadRequest"):
        await client.patch(POOLS, "a", ["spec"])


async def test_a_patch_that_makes_metadata_of_the_wrong_type_is_refused(client: Client) -> None:
    await client.create(pool("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", {"metadata": {"labels": {"x": 1}}})
    assert causes(refusal) == [("patch", "FieldValueInvalid")]


async def test_a_json_patch_can_test_the_version(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 1}))
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version_of(made)},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
    ]
    await client.patch(POOLS, "a", patch, type="json")
    with refused(422, "Invalid"):
        await client.patch(POOLS, "a", patch, type="json")


async def test_a_json_patch_can_bind_what_is_free_exactly_once(client: Client) -> None:
    await client.create(pool("a"))

    def bind(holder: str) -> list[dict[str, Any]]:
        return [
            {"op": "test", "path": "/metadata/annotations", "value": None},
            {"op": "add", "path": "/metadata/annotations", "value": {"holder": holder}},
        ]

    tries = [client.patch(POOLS, "a", bind(str(i)), type="json") for i in range(8)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert len([r for r in results if isinstance(r, dict)]) == 1


# Strategic merge patch.


async def test_a_strategic_merge_patch_merges_maps_of_the_core_kinds(client: Client) -> None:
    await client.create(config_map("a", {"x": "1", "y": "2"}))
    changed = await client.patch(CONFIG_MAPS, "a", {"data": {"x": None, "z": "3"}}, type="strategic")
    assert changed["data"] == {"y": "2", "z": "3"}


async def test_a_strategic_merge_patch_adds_to_lists_with_keys(client: Client) -> None:
    finalizers = ["example.com/a"]
    await client.create(config_map("a", finalizers=finalizers))
    patch = {"metadata": {"finalizers": ["example.com/b"]}}
    changed = await client.patch(CONFIG_MAPS, "a", patch, type="strategic")
    await client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    assert set(changed["metadata"]["finalizers"]) == {"example.com/a", "example.com/b"}


async def test_custom_kinds_take_no_strategic_merge_patch(client: Client) -> None:
    await client.create(pool("a"))
    with refused(415, "UnsupportedMediaType"):
        await client.patch(POOLS, "a", {"spec": {"replicas": 1}}, type="strategic")


async def test_one_is_not_true(client: Client) -> None:
    payload = {"a": 1, "b": [0, {"c": 2}]}
    spec = {"cron": "@daily", "target": {"functionRef": {"name": "f"}}, "payload": payload}
    obj: dict[str, Any] = {"apiVersion": "rota.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "s"}}
    made = await client.create({**obj, "spec": spec})
    changed = await client.patch(Schedule.api, "s", {"spec": {"payload": {"a": True, "b": [False, {"c": 2}]}}})
    assert changed["spec"]["payload"]["a"] is True and changed["spec"]["payload"]["b"][0] is False
    assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1
