from __future__ import annotations

import pytest

from rota import Client
from rota.registry import Operation, WriteOptions
from tests.conformance.expecting import refused
from tests.conformance.objects import CONFIG_MAPS, POOLS, WORKLOADS, config_map, pool, workload

UNKNOWN = {"colour": "red", "worker": {"type": "shell", "shape": "round"}}


async def test_strict_refuses_unknown_fields_and_names_all_of_them(client: Client) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.create(pool("a", UNKNOWN), field_validation="Strict")
    assert "strict decoding error: " in refusal.value.message
    for field in ("spec.colour", "spec.worker.shape"):
        assert f'unknown field "{field}"' in refusal.value.message
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")


async def test_an_unknown_field_in_a_list_is_named_by_its_index(client: Client) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b", "colour": "red"}]}}}
    with refused(400, "BadRequest") as refusal:
        await client.create(workload("a", spec))
    assert 'unknown field "spec.template.spec.containers[1].colour"' in refusal.value.message


async def test_strict_refuses_unknown_metadata(client: Client) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.create(pool("a", colour="red"))
    assert 'unknown field "metadata.colour"' in refusal.value.message


async def test_strict_refuses_unknown_parts_of_an_object(client: Client) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.create({**pool("a"), "colour": "red"})
    assert 'unknown field "colour"' in refusal.value.message


async def test_ignore_drops_unknown_fields(client: Client) -> None:
    made = await client.create(pool("a", UNKNOWN), field_validation="Ignore")
    assert "colour" not in made["spec"] and made["spec"]["worker"] == {"type": "shell"}


async def test_warn_drops_unknown_fields_and_warns_of_each(client: Client) -> None:
    options = WriteOptions("tester", field_validation="Warn")
    operation = Operation("create", POOLS, client.namespace, body=pool("a", UNKNOWN), options=options)
    (answer,) = await client.backend.write([operation])
    assert set(answer.warnings) == {'unknown field "spec.colour"', 'unknown field "spec.worker.shape"'}
    made = await client.get(POOLS, "a")
    assert "colour" not in made["spec"] and made["spec"]["worker"] == {"type": "shell"}


async def test_ignore_warns_of_nothing(client: Client) -> None:
    options = WriteOptions("tester", field_validation="Ignore")
    operation = Operation("create", POOLS, client.namespace, body=pool("a", UNKNOWN), options=options)
    (answer,) = await client.backend.write([operation])
    assert answer.warnings == ()


async def test_an_update_is_validated_like_a_creation(client: Client) -> None:
    made = await client.create(pool("a"))
    sent = {**made, "spec": {**made["spec"], "colour": "red"}}
    with refused(400, "BadRequest") as refusal:
        await client.update(sent)
    assert 'unknown field "spec.colour"' in refusal.value.message
    assert await client.update(sent, field_validation="Ignore") == made


@pytest.mark.parametrize("type_", ["merge", "json"])
async def test_a_patch_is_validated_by_what_it_makes(client: Client, type_: str) -> None:
    made = await client.create(pool("a"))
    patch: object = {"spec": {"colour": "red"}}
    if type_ == "json":
        patch = [{"op": "add", "path": "/spec/colour", "value": "red"}]
    with refused(422, "Invalid") as refusal:
        await client.patch(POOLS, "a", patch, type=type_)  # type: ignore[arg-type]
    assert 'unknown field "spec.colour"' in refusal.value.message
    ignored = await client.patch(POOLS, "a", patch, type=type_, field_validation="Ignore")  # type: ignore[arg-type]
    assert ignored == made


async def test_a_status_is_validated_too(client: Client) -> None:
    made = await client.create(pool("a"))
    with refused(400, "BadRequest") as refusal:
        await client.update({**made, "status": {"colour": "red"}}, subresource="status")
    assert 'unknown field "status.colour"' in refusal.value.message


async def test_core_kinds_are_validated_too(client: Client) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.create({**config_map("a"), "colour": "red"})
    assert 'unknown field "colour"' in refusal.value.message
    assert "colour" not in await client.create({**config_map("a"), "colour": "red"}, field_validation="Ignore")
    assert len((await client.list(CONFIG_MAPS, fields="metadata.name=a")).items) == 1


async def test_free_form_parts_have_no_unknown_fields(client: Client) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "a"}]}, "metadata": {"labels": {"any": "thing"}}}}
    made = await client.create(workload("a", spec))
    assert made["spec"]["template"]["metadata"]["labels"] == {"any": "thing"}
    assert (await client.get(WORKLOADS, "a")) == made


async def test_a_finalizer_without_a_domain_draws_a_warning(client: Client) -> None:
    body, options = pool("a", finalizers=["mine"]), WriteOptions("tester")
    (answer,) = await client.backend.write([Operation("create", POOLS, client.namespace, body=body, options=options)])
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})
    assert answer.warnings == (
        'metadata.finalizers: "mine": prefer a domain-qualified finalizer name to avoid accidental conflicts with '
        "other finalizer writers",
    )
