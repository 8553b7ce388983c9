"""lightkube against `rota up`: its generic resources for our kinds, its own models for the core ones."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from lightkube import ALL_NS, ApiError, Client, KubeConfig
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Event, Namespace, Secret
from lightkube.types import CascadeType, PatchType, on_error_stop

from tests.server.live import Live, live

WorkerPool = create_namespaced_resource("rota.dev", "v1alpha1", "WorkerPool", "workerpools")
Lightkube = Any
"""A `Client`. Its types call every field of an answer optional, which would be an assertion before every assertion."""


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("lightkube"), "--no-controllers") as server:
        yield server


@pytest.fixture
def client(rota: Live, request: pytest.FixtureRequest) -> Iterator[Lightkube]:
    """A client whose namespace is the test's own."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:50].strip("-")
    config = KubeConfig.from_file(str(rota.kubeconfig))
    with Client(config=config, namespace=name, field_manager="lightkube") as made:
        made.create(Namespace(metadata=ObjectMeta(name=name)))
        yield made


def pool(name: str, labels: dict[str, str] | None = None, **spec: Any) -> GenericNamespacedResource:
    return WorkerPool(metadata=ObjectMeta(name=name, labels=labels), spec={"worker": {"type": "shell"}, **spec})


def settings(name: str, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels), data=data)


def names(objects: Any) -> list[str]:
    return [obj.metadata.name for obj in objects]


def refused(error: pytest.ExceptionInfo[ApiError]) -> tuple[int, str]:
    """The code and the reason of a refusal, which is a Status in every respect."""
    status: Any = error.value.status
    assert (status.kind, status.apiVersion, status.status) == ("Status", "v1", "Failure")
    assert status.message and status.code == error.value.response.status_code
    return status.code, status.reason


def causes(error: pytest.ExceptionInfo[ApiError]) -> list[Any]:
    details: Any = error.value.status.details
    return list(details.causes)


# A kind of ours.


def test_what_is_created_is_read_back(client: Lightkube) -> None:
    made = client.create(pool("a", replicas=2))
    assert made.metadata.uid and made.metadata.creationTimestamp
    found = client.get(WorkerPool, "a")
    assert found == made
    assert found["spec"]["replicas"] == 2


def test_a_name_is_generated(client: Lightkube) -> None:
    made = client.create(WorkerPool(metadata=ObjectMeta(generateName="pool-"), spec={"worker": {"type": "shell"}}))
    assert re.fullmatch(r"pool-[a-z0-9]{5}", made.metadata.name)


def test_a_second_of_the_same_name_is_refused(client: Lightkube) -> None:
    client.create(pool("a"))
    with pytest.raises(ApiError) as error:
        client.create(pool("a"))
    assert refused(error) == (409, "AlreadyExists")


def test_what_is_not_there_is_not_found(client: Lightkube) -> None:
    with pytest.raises(ApiError) as error:
        client.get(WorkerPool, "nobody")
    assert refused(error) == (404, "NotFound")
    details: Any = error.value.status.details
    assert (details.name, details.group, details.kind) == ("nobody", "rota.dev", "workerpools")


def test_an_invalid_object_is_refused_with_its_causes(client: Lightkube) -> None:
    with pytest.raises(ApiError) as error:
        client.create(pool("a", replicas=5000))
    assert refused(error) == (422, "Invalid")
    assert [cause.field for cause in causes(error)] == ["spec.replicas"]


def test_lists_are_by_labels_and_of_all_namespaces(client: Lightkube) -> None:
    labels = {"suite": "lightkube-lists"}
    client.create(pool("a", {**labels, "tier": "gold"}))
    client.create(pool("b", {**labels, "tier": "lead"}))
    client.create(pool("c", labels))
    elsewhere = client.create(Namespace(metadata=ObjectMeta(name="lightkube-elsewhere"))).metadata.name
    client.create(pool("d", labels), namespace=elsewhere)
    assert names(client.list(WorkerPool)) == ["a", "b", "c"]
    assert names(client.list(WorkerPool, labels={"tier": "gold"})) == ["a"]
    assert names(client.list(WorkerPool, labels={"tier": ["gold", "lead"]})) == ["a", "b"]
    assert names(client.list(WorkerPool, labels={"tier": None})) == ["a", "b"]
    assert names(client.list(WorkerPool, fields={"metadata.name": "b"})) == ["b"]
    everywhere = list(client.list(WorkerPool, namespace=ALL_NS, labels=labels))
    assert {(p.metadata.namespace, p.metadata.name) for p in everywhere} == {
        *((client.namespace, name) for name in "abc"),
        (elsewhere, "d"),
    }


def test_a_list_in_chunks_is_the_whole_list(client: Lightkube) -> None:
    for i in range(7):
        client.create(pool(f"p{i}"))
    listed = client.list(WorkerPool, chunk_size=3)
    assert names(listed) == [f"p{i}" for i in range(7)]
    assert int(listed.resourceVersion) > 0


def test_a_watch_continues_a_list(client: Lightkube) -> None:
    client.create(pool("before"))
    listed = client.list(WorkerPool)
    assert names(listed) == ["before"]
    client.create(pool("a"))
    client.patch(WorkerPool, "a", {"spec": {"replicas": 3}}, patch_type=PatchType.MERGE)
    client.delete(WorkerPool, "a")
    watching = client.watch(WorkerPool, resource_version=listed.resourceVersion)
    seen = [next(watching) for _ in range(3)]
    watching.close()
    assert [(type_, obj.metadata.name) for type_, obj in seen] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen[1][1]["spec"]["replicas"] == 3


def test_a_watch_of_a_label_sees_what_has_it(client: Lightkube) -> None:
    start = client.create(pool("other")).metadata.resourceVersion
    client.create(pool("a", {"tier": "gold"}))
    client.patch(WorkerPool, "a", {"metadata": {"labels": {"tier": None}}}, patch_type=PatchType.MERGE)
    watching = client.watch(WorkerPool, labels={"tier": "gold"}, resource_version=start)
    seen = [next(watching) for _ in range(2)]
    watching.close()
    assert [(type_, obj.metadata.name) for type_, obj in seen] == [("ADDED", "a"), ("DELETED", "a")]


def test_a_watch_with_a_time_ends_and_is_taken_up_again(client: Lightkube) -> None:
    start = client.create(pool("a")).metadata.resourceVersion
    watching = client.watch(WorkerPool, server_timeout=1, resource_version=start, on_error=on_error_stop)
    client.create(pool("b"))
    assert next(watching)[1].metadata.name == "b"
    client.create(pool("c"))
    # The first stream has ended by now, or ends while this one waits: the client goes on from where it was.
    assert next(watching)[1].metadata.name == "c"
    watching.close()


def test_a_merge_patch_sets_and_removes(client: Lightkube) -> None:
    client.create(pool("a", {"one": "1", "two": "2"}, replicas=1))
    patch = {"metadata": {"labels": {"one": None}}, "spec": {"replicas": 4}}
    patched = client.patch(WorkerPool, "a", patch, patch_type=PatchType.MERGE)
    assert (patched.metadata.labels, patched["spec"]["replicas"]) == ({"two": "2"}, 4)


def test_a_json_patch_is_done_whole_or_not_at_all(client: Lightkube) -> None:
    client.create(pool("a", replicas=1))
    good = [
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
    ]
    assert client.patch(WorkerPool, "a", good, patch_type=PatchType.JSON)["spec"]["replicas"] == 2
    with pytest.raises(ApiError) as error:
        client.patch(WorkerPool, "a", good, patch_type=PatchType.JSON)
    assert refused(error) == (422, "Invalid")
    assert client.get(WorkerPool, "a")["spec"]["replicas"] == 2


def test_a_strategic_patch_is_not_for_our_kinds(client: Lightkube) -> None:
    client.create(pool("a"))
    with pytest.raises(ApiError) as error:
        client.patch(WorkerPool, "a", {"spec": {"replicas": 2}}, patch_type=PatchType.STRATEGIC)
    assert refused(error) == (415, "UnsupportedMediaType")


def test_apply_creates_then_changes_and_meets_conflicts(client: Lightkube) -> None:
    made = client.apply(pool("a", replicas=2), field_manager="alice")
    assert [entry.manager for entry in made.metadata.managedFields] == ["alice"]
    assert client.apply(pool("a", replicas=3), field_manager="alice")["spec"]["replicas"] == 3
    with pytest.raises(ApiError) as error:
        client.apply(pool("a", replicas=4), field_manager="bob")
    assert refused(error) == (409, "Conflict")
    assert [cause.field for cause in causes(error)] == [".spec.replicas"]
    assert client.apply(pool("a", replicas=4), field_manager="bob", force=True)["spec"]["replicas"] == 4


def test_a_dry_run_changes_nothing(client: Lightkube) -> None:
    assert client.create(pool("a"), dry_run=True).metadata.name == "a"
    assert names(client.list(WorkerPool)) == []
    client.create(pool("a", replicas=1))
    patch = {"spec": {"replicas": 2}}
    assert client.patch(WorkerPool, "a", patch, patch_type=PatchType.MERGE, dry_run=True)["spec"]["replicas"] == 2
    client.delete(WorkerPool, "a", dry_run=True)
    assert client.get(WorkerPool, "a")["spec"]["replicas"] == 1


def test_a_stale_object_does_not_replace_a_newer_one(client: Lightkube) -> None:
    stale = client.create(pool("a", replicas=1))
    fresh = client.get(WorkerPool, "a")
    fresh["spec"]["replicas"] = 2
    fresh = client.replace(fresh)
    assert fresh["spec"]["replicas"] == 2
    stale["spec"]["replicas"] = 3
    with pytest.raises(ApiError) as error:
        client.replace(stale)
    assert refused(error) == (409, "Conflict")
    assert client.get(WorkerPool, "a") == fresh


def test_status_and_spec_are_written_apart(client: Lightkube) -> None:
    client.create(pool("a", replicas=1))
    part = client.get(WorkerPool.Status, "a")
    part["status"] = {"phase": "Ready"}
    part["spec"]["replicas"] = 9
    written = client.replace(part)
    assert (written["status"]["phase"], written["spec"]["replicas"]) == ("Ready", 1)
    patch = {"status": {"phase": "Degraded"}}
    assert client.patch(WorkerPool.Status, "a", patch, patch_type=PatchType.MERGE)["status"]["phase"] == "Degraded"
    whole = client.patch(WorkerPool, "a", {"status": {"phase": "Ready"}}, patch_type=PatchType.MERGE)
    assert whole["status"]["phase"] == "Degraded"


def test_the_scale_subresource_reads_and_sets_replicas(client: Lightkube) -> None:
    client.create(pool("a", replicas=1))
    scale = client.get(WorkerPool.Scale, "a")
    assert (scale.kind, scale.apiVersion, scale.spec.replicas) == ("Scale", "autoscaling/v1", 1)
    scale.spec = ScaleSpec(replicas=5)
    assert client.replace(scale).spec.replicas == 5
    patch = {"spec": {"replicas": 6}}
    assert client.patch(WorkerPool.Scale, "a", patch, patch_type=PatchType.MERGE).spec.replicas == 6
    assert client.get(WorkerPool, "a")["spec"]["replicas"] == 6
    stale = scale
    with pytest.raises(ApiError) as error:
        client.replace(stale)
    assert refused(error) == (409, "Conflict")


def test_delete_of_one_and_of_all(client: Lightkube) -> None:
    for name in "abc":
        client.create(pool(name))
    client.delete(WorkerPool, "a")
    with pytest.raises(ApiError) as error:
        client.delete(WorkerPool, "a")
    assert refused(error) == (404, "NotFound")
    assert names(client.list(WorkerPool)) == ["b", "c"]
    client.deletecollection(WorkerPool)
    assert names(client.list(WorkerPool)) == []


# The core kinds.


def test_config_maps_take_every_patch(client: Lightkube) -> None:
    made = client.create(settings("a", one="1", two="2"))
    assert made.data == {"one": "1", "two": "2"}
    assert client.patch(ConfigMap, "a", settings("a", three="3")).data == {"one": "1", "two": "2", "three": "3"}
    patch = [{"op": "remove", "path": "/data/one"}]
    assert client.patch(ConfigMap, "a", patch, patch_type=PatchType.JSON).data == {"two": "2", "three": "3"}
    merge = {"data": {"two": None}}
    assert client.patch(ConfigMap, "a", merge, patch_type=PatchType.MERGE).data == {"three": "3"}
    assert client.apply(settings("a", four="4")).data == {"three": "3", "four": "4"}
    assert client.apply(settings("a")).data == {"three": "3"}


def test_an_immutable_config_map_stays_as_it_is(client: Lightkube) -> None:
    made = client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"a": "1"}, immutable=True))
    made.data = {"a": "2"}
    with pytest.raises(ApiError) as error:
        client.replace(made)
    assert refused(error) == (422, "Invalid")


def test_secrets_hold_text_as_base64(client: Lightkube) -> None:
    made = client.create(Secret(metadata=ObjectMeta(name="a"), stringData={"password": "hunter2"}))
    assert (made.type, made.stringData) == ("Opaque", None)
    assert base64.b64decode(made.data["password"]) == b"hunter2"
    with pytest.raises(ApiError) as error:
        client.create(Secret(metadata=ObjectMeta(name="b"), data={"password": "not base64!"}))
    assert refused(error) == (400, "BadRequest")


def test_leases_are_taken_renewed_and_not_stolen(client: Lightkube) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    spec = LeaseSpec(holderIdentity="one", leaseDurationSeconds=15, acquireTime=now, renewTime=now)
    mine = client.create(Lease(metadata=ObjectMeta(name="a"), spec=spec))
    assert mine.spec.renewTime == now, "to the microsecond"
    theirs = client.get(Lease, "a")
    mine.spec.leaseTransitions = 1
    client.replace(mine)
    theirs.spec.holderIdentity = "two"
    with pytest.raises(ApiError) as error:
        client.replace(theirs)
    assert refused(error) == (409, "Conflict")


def test_events_are_found_by_what_they_are_about(client: Lightkube) -> None:
    made = client.create(pool("a"))
    about = ObjectReference(
        apiVersion="rota.dev/v1alpha1",
        kind="WorkerPool",
        name="a",
        namespace=client.namespace,
        uid=made.metadata.uid,
    )
    event = Event(
        metadata=ObjectMeta(generateName="a-"),
        involvedObject=about,
        reason="Scaled",
        message="to 3",
        type="Normal",
        count=1,
        source=EventSource(component="lightkube"),
        firstTimestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    kept = client.create(event)
    assert kept.metadata.name.startswith("a-")
    fields = {"involvedObject.name": "a", "involvedObject.kind": "WorkerPool"}
    assert [e.message for e in client.list(Event, fields=fields)] == ["to 3"]
    assert names(client.list(Event, fields={"involvedObject.name": "b"})) == []


def test_a_namespace_takes_its_objects_with_it(client: Lightkube) -> None:
    client.create(Namespace(metadata=ObjectMeta(name="lightkube-doomed", labels={"doomed": "yes"})))
    assert names(client.list(Namespace, labels={"doomed": "yes"})) == ["lightkube-doomed"]
    client.create(settings("a"), namespace="lightkube-doomed")
    listed = client.list(ConfigMap, namespace="lightkube-doomed")
    assert names(listed) == ["a"]
    client.delete(Namespace, "lightkube-doomed")
    watching = client.watch(ConfigMap, namespace="lightkube-doomed", resource_version=listed.resourceVersion)
    assert next(watching)[0] == "DELETED"
    watching.close()


@pytest.mark.parametrize("cascade", list(CascadeType))
def test_what_is_owned_goes_as_asked(client: Lightkube, cascade: CascadeType) -> None:
    owner = client.create(settings("owner"))
    reference = OwnerReference(
        apiVersion="v1", kind="ConfigMap", name="owner", uid=owner.metadata.uid, blockOwnerDeletion=True
    )
    owned = client.create(ConfigMap(metadata=ObjectMeta(name="owned", ownerReferences=[reference])))
    watching = client.watch(
        ConfigMap, fields={"metadata.name": "owned"}, resource_version=owned.metadata.resourceVersion
    )
    client.delete(ConfigMap, "owner", cascade=cascade)
    type_, left = next(watching)
    watching.close()
    if cascade is CascadeType.ORPHAN:
        assert (type_, left.metadata.ownerReferences) == ("MODIFIED", None)
    else:
        assert type_ == "DELETED"
