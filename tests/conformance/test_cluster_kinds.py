"""Kinds that Rota uses on a cluster and does not serve."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Client
from rota.api import ConfigMap, ObjectMeta
from rota.api.cluster import (
    USED,
    AccessedResource,
    NetworkPolicy,
    Node,
    PersistentVolumeClaim,
    Pod,
    Service,
    ServiceAccount,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
)
from rota.client import Operation
from rota.registry import ApiError
from tests.conformance.expecting import refused, watching

on_a_cluster = pytest.mark.needs("pods")
SPEC: dict[str, Any] = {
    "containers": [{"name": "main", "image": "busybox"}],
    "schedulingGates": [{"name": "rota.dev/quota"}],
    "terminationGracePeriodSeconds": 7,
}


@pytest.fixture
async def gated(client: Client) -> Pod:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=client.namespace)))
    meta = ObjectMeta(name="a", namespace=client.namespace, labels={"app": "a"})
    return await client.create(Pod(metadata=meta, spec=SPEC))


@on_a_cluster
async def test_a_pod_with_gates_is_held_back(client: Client, gated: Pod) -> None:
    read = await client.get(Pod, "a")
    assert read.spec["schedulingGates"] == SPEC["schedulingGates"] and read.status is not None
    found = [(one.type, one.status, one.reason) for one in read.status.conditions]
    assert (read.status.phase, found) == ("Pending", [("PodScheduled", "False", "SchedulingGated")])


@on_a_cluster
async def test_a_watch_brings_a_pod_as_it_changes(client: Client, gated: Pod) -> None:
    since = gated.metadata.resource_version
    async with watching(client, Pod.api, resource_version=since) as watch:
        await client.patch(Pod, "a", [{"op": "remove", "path": "/spec/schedulingGates"}], type="json")
        change = await watch.next()
    assert change.type == "MODIFIED" and change.object is not None
    assert "schedulingGates" not in change.object["spec"]


@on_a_cluster
async def test_the_status_of_a_pod_is_patched_through_its_subresource(client: Client, gated: Pod) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"name": "main", "ready": False, "restartCount": 2, "image": "busybox", "imageID": "", "state": waiting}
    patch = {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [container]}}
    patched = await client.patch(Pod, "a", patch, subresource="status", type="strategic")
    assert patched.status is not None
    (main,) = patched.status.container_statuses
    assert (patched.status.pod_ip, main.restart_count) == ("10.0.0.1", 2)
    assert main.state is not None and main.state.waiting is not None
    assert main.state.waiting.reason == "ImagePullBackOff"


@on_a_cluster
async def test_a_patch_keeps_what_the_type_does_not_know(client: Client, gated: Pod) -> None:
    await client.patch(Pod, "a", {"metadata": {"labels": {"b": "c"}}})
    raw = await client.get(Pod.api, "a")
    assert raw["spec"]["terminationGracePeriodSeconds"] == 7 and raw["status"]["qosClass"] == "BestEffort"
    assert raw["metadata"]["labels"] == {"app": "a", "b": "c"}


@on_a_cluster
async def test_a_list_has_the_pods_that_are_selected(client: Client, gated: Pod) -> None:
    names = [pod.metadata.name for pod in (await client.list(Pod, labels="app=a")).items]
    assert names == ["a"] and (await client.list(Pod, labels="app=b")).items == []


@on_a_cluster
async def test_a_deleted_pod_is_gone(client: Client, gated: Pod) -> None:
    assert await client.delete(Pod, "a", uid=gated.metadata.uid) is None
    with refused(404, "NotFound"):
        await client.get(Pod, "a")


@on_a_cluster
async def test_pods_are_written_each_by_itself(client: Client, gated: Pod) -> None:
    patches = [
        Operation("patch", Pod.api, client.namespace, name, {"metadata": {"labels": {"b": "c"}}}) for name in "ab"
    ]
    changed, unknown = await client.write_each(patches)
    assert not isinstance(changed, ApiError) and isinstance(unknown, ApiError) and unknown.code == 404


@on_a_cluster
async def test_storage_services_and_policies_are_made_as_they_are_declared(client: Client) -> None:
    meta = ObjectMeta(name="a", namespace=client.namespace)
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claimed = await client.create(PersistentVolumeClaim(metadata=meta, spec=storage))
    assert claimed.status is not None and claimed.status.phase == "Pending"
    service = await client.create(Service(metadata=meta, spec={"clusterIP": "None", "selector": {"app": "a"}}))
    assert service.spec["clusterIP"] == "None"
    policy = await client.create(NetworkPolicy(metadata=meta, spec={"podSelector": {}, "policyTypes": ["Egress"]}))
    assert policy.spec["policyTypes"] == ["Egress"]


@on_a_cluster
async def test_nodes_are_read_with_what_they_have(client: Client) -> None:
    name = f"node-{client.namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": True}}
    await client.create(node)
    await client.patch(Node, name, {"status": {"allocatable": {"cpu": "4"}}}, subresource="status")
    read = await client.get(Node, name)
    assert read.spec is not None and read.spec.unschedulable
    assert read.status is not None and read.status.allocatable == {"cpu": "4"}
    await client.delete(Node, name)


@on_a_cluster
async def test_a_token_that_is_nobodys_is_not_authenticated(client: Client) -> None:
    review = await client.create(TokenReview(metadata=ObjectMeta(), spec=TokenReviewSpec(token="none")))
    assert review.status is not None and not review.status.authenticated


@on_a_cluster
async def test_who_may_do_something_is_told_so(client: Client) -> None:
    wanted = AccessedResource(namespace=client.namespace, verb="create", group="rota.dev", resource="claims")
    spec = SubjectAccessReviewSpec(resource_attributes=wanted, user="somebody")
    review = await client.create(SubjectAccessReview(metadata=ObjectMeta(), spec=spec))
    assert review.status is not None and review.status.allowed


@pytest.mark.parametrize("of_status", [False, True], ids=["object", "status"])
async def test_an_object_is_not_replaced_by_the_part_that_its_type_knows(client: Client, of_status: bool) -> None:
    pod = Pod(metadata=ObjectMeta(name="a", namespace=client.namespace), spec=SPEC)
    with refused(400, "BadRequest"):
        await (client.update_status(pod) if of_status else client.update(pod))


@pytest.mark.parametrize("kind", sorted(USED.values(), key=repr), ids=repr)
@pytest.mark.needs("unknown kinds")
async def test_a_server_of_rotas_has_none(client: Client, kind: Any) -> None:
    """A few are listed, without any, for tools that ask for them unasked; none can be made."""
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a"}, "spec": {"token": ""}}
    with pytest.raises(ApiError) as made:
        await client.create(body)
    assert made.value.code in (404, 405)
    with refused(404, "NotFound"):
        await client.get(kind, "a")


@pytest.mark.needs("unknown kinds")
async def test_one_of_several_that_is_of_an_unknown_kind_is_refused_alone(client: Client) -> None:
    where, body = client.namespace, {"metadata": {"name": "a"}}
    policy = {"apiVersion": NetworkPolicy.api.api_version, "kind": "NetworkPolicy", **body}
    unknown, made = await client.write_each(
        [
            Operation("create", NetworkPolicy.api, where, body=policy),
            Operation("create", ConfigMap.api, where, body={"apiVersion": "v1", "kind": "ConfigMap", **body}),
        ]
    )
    assert isinstance(unknown, ApiError) and unknown.code == 404
    assert not isinstance(made, ApiError)
