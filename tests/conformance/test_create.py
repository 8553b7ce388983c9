from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from rota import ApiError, Client
from rota.api import ObjectMeta, WorkerPool
from rota.api.pool import WorkerPoolSpec
from rota.api.worker import WorkerConfig
from tests.conformance.conftest import As
from tests.conformance.expecting import causes, refused
from tests.conformance.objects import CONFIG_MAPS, LOCATIONS, POOLS, config_map, location, name_of, namespace, pool


async def test_the_server_gives_a_new_object_its_identity_and_version(client: Client) -> None:
    made = await client.create(pool("a"))
    meta = made["metadata"]
    assert UUID(meta["uid"])
    assert meta["generation"] == 1
    assert meta["resourceVersion"] not in ("", "0")
    assert meta["namespace"] == client.namespace
    age = datetime.now(UTC) - datetime.fromisoformat(meta["creationTimestamp"])
    assert timedelta(seconds=-5) < age < timedelta(seconds=60)


async def test_a_created_object_has_its_kind_and_version(client: Client) -> None:
    made = await client.create(pool())
    assert (made["apiVersion"], made["kind"]) == ("rota.dev/v1alpha1", "WorkerPool")


async def test_typed_objects_go_in_and_come_out(client: Client) -> None:
    spec = WorkerPoolSpec(worker=WorkerConfig(), replicas=3)
    made = await client.create(WorkerPool(metadata=ObjectMeta(name="typed"), spec=spec))
    assert isinstance(made, WorkerPool)
    assert made.metadata.uid
    assert made.spec == spec


async def test_what_is_created_is_not_changed_by_the_client(client: Client) -> None:
    sent = pool("a")
    await client.create(sent)
    assert sent == pool("a")


async def test_a_name_is_generated_from_a_prefix(client: Client) -> None:
    first, second = [await client.create(pool("", generateName="worker-")) for _ in range(2)]
    assert name_of(first).startswith("worker-") and len(name_of(first)) == len("worker-") + 5
    assert name_of(first) != name_of(second)
    assert first["metadata"]["generateName"] == "worker-"


async def test_a_long_prefix_is_cut_so_that_the_name_fits_a_label(client: Client) -> None:
    made = await client.create(pool("", generateName="a" * 100))
    assert len(name_of(made)) == 63


async def test_a_name_wins_over_a_prefix(client: Client) -> None:
    made = await client.create(pool("named", generateName="prefix-"))
    assert name_of(made) == "named"


async def test_a_status_in_a_new_object_is_ignored(client: Client) -> None:
    made = await client.create({**pool("a"), "status": {"replicas": 7}})
    assert "status" not in made
    assert "status" not in await client.get(POOLS, "a")


async def test_fields_of_the_server_in_a_new_object_are_ignored(client: Client) -> None:
    ours: dict[str, Any] = {
        "uid": "00000000-0000-4000-8000-000000000000",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "generation": 42,
    }
    meta = (await client.create(pool("a", **ours)))["metadata"]
    assert meta["uid"] != ours["uid"]
    assert not meta["creationTimestamp"].startswith("2001")
    assert meta["generation"] == 1
    assert "deletionTimestamp" not in meta and "deletionGracePeriodSeconds" not in meta


async def test_a_second_object_of_the_same_name_is_refused(client: Client) -> None:
    await client.create(pool("a"))
    with refused(409, "AlreadyExists") as refusal:
        await client.create(pool("a"))
    assert refusal.value.message == 'workerpools.rota.dev "a" already exists'
    assert refusal.value.details == {"name": "a", "group": "rota.dev", "kind": "workerpools"}


async def test_the_same_name_may_be_used_by_another_kind(client: Client) -> None:
    await client.create(pool("a"))
    assert name_of(await client.create(config_map("a"))) == "a"


async def test_the_same_name_may_be_used_in_another_namespace(client: Client) -> None:
    other = f"{client.namespace}-other"
    await client.create(namespace(other))
    first = await client.create(pool("a"))
    second = await client.create(pool("a"), namespace=other)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    await client.delete(POOLS, "a", namespace=other)
    await client.get(POOLS, "a")


async def test_an_object_needs_a_namespace_that_exists(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.create(pool("a"), namespace="no-such-namespace")
    assert refusal.value.message == 'namespaces "no-such-namespace" not found'
    assert refusal.value.details == {"name": "no-such-namespace", "kind": "namespaces"}


async def test_an_object_goes_into_the_namespace_that_is_asked_for_only(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.create(pool("a", namespace="default"), namespace=client.namespace)


async def test_an_object_of_the_cluster_has_no_namespace(client: Client) -> None:
    name = client.namespace
    made = await client.create(location(name))
    await client.delete(LOCATIONS, name)
    assert "namespace" not in made["metadata"]


async def test_a_new_object_must_not_have_a_resource_version(client: Client) -> None:
    with pytest.raises(ApiError, match="resourceVersion should not be set on objects to be created"):
        await client.create(pool("a", resourceVersion="1"))


async def test_a_name_is_required(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool(""))
    assert ("metadata.name", "FieldValueRequired") in causes(refusal)
    assert "name or generateName is required" in refusal.value.message


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dash-", ".dot", "a..b", "a b", "a" * 254])
async def test_a_name_must_be_a_dns_subdomain(client: Client, name: str) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool(name))
    assert causes(refusal) == [("metadata.name", "FieldValueInvalid")]


@pytest.mark.parametrize("name", ["a", "0", "a-b.c-d", "a" * 253])
async def test_a_dns_subdomain_is_a_name(client: Client, name: str) -> None:
    assert name_of(await client.create(pool(name))) == name


@pytest.mark.parametrize("name", ["a.b", "Upper", "a" * 64])
async def test_a_namespace_s_name_must_be_a_dns_label(client: Client, name: str) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(namespace(name))
    assert ("metadata.name", "FieldValueInvalid") in causes(refusal)


@pytest.mark.parametrize(
    "labels", [{"-bad": "v"}, {"a/b/c": "v"}, {"k": "has space"}, {"k": "-v"}, {"k": "v" * 64}, {"K_/a": "v"}]
)
async def test_labels_have_a_syntax(client: Client, labels: dict[str, str]) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", labels=labels))
    assert causes(refusal) == [("metadata.labels", "FieldValueInvalid")]


async def test_labels_may_have_a_domain_upper_case_and_no_value(client: Client) -> None:
    labels = {"example.com/Part_of": "A.b_c-d", "empty": ""}
    assert (await client.create(pool("a", labels=labels)))["metadata"]["labels"] == labels


async def test_annotations_have_keys_like_labels_but_any_value(client: Client) -> None:
    annotations = {"example.com/Note": "any text: {} \n ü"}
    assert (await client.create(pool("a", annotations=annotations)))["metadata"]["annotations"] == annotations
    with refused(422, "Invalid") as refusal:
        await client.create(pool("b", annotations={"not a key": "v"}))
    assert causes(refusal) == [("metadata.annotations", "FieldValueInvalid")]


async def test_an_owner_is_named_in_full(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(
            pool("a", ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": ""}])
        )
    assert ("metadata.ownerReferences[0].uid", "FieldValueRequired") in causes(refusal)


async def test_an_owner_has_an_api_version(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        owner = {"apiVersion": "a/b/c", "kind": "ConfigMap", "name": "c", "uid": "u"}
        await client.create(pool("a", ownerReferences=[owner]))
    assert causes(refusal) == [("metadata.ownerReferences[0].apiVersion", "FieldValueInvalid")]


async def test_an_event_owns_nothing(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        owner = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}
        await client.create(pool("a", ownerReferences=[owner]))
    assert causes(refusal) == [("metadata.ownerReferences[0]", "FieldValueInvalid")]


async def test_a_prefix_has_the_form_of_a_name(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool("", generateName="Bad_"))
    expected = [("metadata.generateName", "FieldValueInvalid"), ("metadata.name", "FieldValueInvalid")]
    assert causes(refusal) == expected


async def test_labels_and_annotations_may_be_many(client: Client) -> None:
    many = {f"k{i}": "v" for i in range(300)}
    made = await client.create(pool("a", labels=many, annotations={**many, "long": "x" * 100_000}))
    assert made["metadata"]["labels"] == many and len(made["metadata"]["annotations"]["long"]) == 100_000
    assert (await client.get(WorkerPool, "a")).metadata.labels == many


async def test_annotations_have_a_bound_in_all(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", annotations={"x": "y" * 262_144}))
    assert ("metadata.annotations", "FieldValueTooLong") in causes(refusal)


async def test_an_object_has_one_controller_at_most(client: Client) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    owners = [{**owner, "name": "a", "uid": "1"}, {**owner, "name": "b", "uid": "2"}]
    with refused(422, "Invalid") as refusal:
        await client.create(pool("a", ownerReferences=owners))
    assert causes(refusal) == [("metadata.ownerReferences", "FieldValueInvalid")]


async def test_the_creator_owns_the_fields_it_set(as_manager: As) -> None:
    made = await as_manager("maker").create(pool("a", {"replicas": 2}))
    [entry] = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("maker", "Update", "rota.dev/v1alpha1")
    assert "f:replicas" in entry["fieldsV1"]["f:spec"]


async def test_null_is_as_good_as_absent(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": None}, labels=None))
    assert "replicas" not in made["spec"] and "labels" not in made["metadata"]


async def test_a_body_of_another_version_is_refused(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.create({**config_map(), "apiVersion": "v2"})
    assert not (await client.list(CONFIG_MAPS, fields="metadata.name=config")).items
