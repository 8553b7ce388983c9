"""Instances as Pods: on a cluster in memory, and on a real API server where there is one."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import Claim, Instance, WorkerPool
from rota.api.cluster import NetworkPolicy, PersistentVolumeClaim, Pod
from rota.registry import ApiError
from tests.conformance.cluster import cluster
from tests.pods.plane import SLEEP, ClusterPlane, in_memory, on_cluster

NAME = "boxes-0"
A_SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        yield None
        return
    with cluster(Path(assets), tmp_path_factory.mktemp("cluster")) as made:
        yield made.kubeconfig


@pytest.fixture(params=["memory", "kube-apiserver"])
async def plane(request: pytest.FixtureRequest, kubeconfig: Path | None) -> AsyncIterator[ClusterPlane]:
    if request.param == "memory":
        async with in_memory() as made:
            await made.lead()
            yield made
        return
    if kubeconfig is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    async with on_cluster(kubeconfig) as made:
        await made.lead()
        yield made


async def uid_of(plane: ClusterPlane, name: str = NAME) -> str:
    pod = await plane.pod(name)
    assert pod is not None
    return pod.metadata.uid


async def another(plane: ClusterPlane, uid: str, name: str = NAME) -> Pod:
    """Return the Pod that comes in the place of this one."""

    async def so() -> bool:
        found = await plane.pod(name)
        return found is not None and found.metadata.uid != uid and plane.kubelet.is_running(found.metadata.uid)

    await plane.until(so)
    found = await plane.pod(name)
    assert found is not None
    return found


async def test_a_pool_of_a_template_runs_as_pods_and_goes_with_them(plane: ClusterPlane) -> None:
    await plane.pool(replicas=2)
    await plane.ready()
    for name in ("boxes-0", "boxes-1"):
        pod, instance = await plane.pod(name), await plane.instance(name)
        assert pod is not None and instance is not None and instance.status is not None
        [owner] = pod.metadata.owner_references
        assert (owner.kind, owner.uid, owner.controller) == ("Instance", instance.metadata.uid, True)
        assert instance.status.runtime_id == pod.metadata.uid and plane.kubelet.is_running(pod.metadata.uid)
    await plane.pool(replicas=1)

    async def has_shrunk() -> bool:
        return await plane.pod("boxes-1") is None and await plane.instance("boxes-1") is None

    await plane.until(has_shrunk)
    assert await plane.pod("boxes-0") is not None
    uid = await uid_of(plane)
    await plane.client.delete(WorkerPool, "boxes", namespace="default", propagation="Foreground")
    for one in (await plane.client.list(Instance, namespace="default")).items:
        await plane.client.delete(Instance, one.metadata.name, namespace="default")  # Nobody collects garbage here.

    async def is_gone() -> bool:
        return await plane.pod("boxes-0") is None and await plane.instance("boxes-0") is None

    await plane.until(is_gone)
    assert not plane.kubelet.is_running(uid)


async def test_a_pod_has_no_token_no_privileges_and_no_value_of_a_secret(plane: ClusterPlane) -> None:
    await plane.client.apply({**A_SECRET, "stringData": {"token": "hush"}})
    await plane.pool(container={"env": [SECRET, {"name": "PLAIN", "value": "$(TOKEN)"}]})
    await plane.ready()
    pod = await plane.pod(NAME)
    assert pod is not None
    [main] = pod.spec["containers"]
    assert "hush" not in repr(pod.spec) and pod.spec["automountServiceAccountToken"] is False
    assert main["securityContext"]["allowPrivilegeEscalation"] is False
    environment = plane.kubelet.environments[pod.metadata.uid]
    assert (environment["TOKEN"], environment["PLAIN"]) == ("hush", "$(TOKEN)"), "nobody fills in variables"


async def test_a_missing_key_is_named_and_the_instance_runs_when_it_comes(plane: ClusterPlane) -> None:
    await plane.client.apply({**A_SECRET, "stringData": {"other": "x"}})
    await plane.pool(container={"env": [SECRET]})
    await plane.until_reason(NAME, "ConfigurationError", "Secret/s has no key token")
    assert await plane.pod(NAME) is None
    await plane.client.apply({**A_SECRET, "stringData": {"other": "x", "token": "hush"}})
    await plane.ready()


async def test_an_image_that_cannot_be_had_is_named_until_it_is_there(plane: ClusterPlane) -> None:
    plane.kubelet.missing_images.add("gone:1")
    await plane.pool(container={"image": "gone:1"})
    await plane.until_reason(NAME, "ImageUnavailable", 'pull of "gone:1" failed')
    plane.kubelet.missing_images.clear()
    plane.kubelet.look()
    await plane.ready()


async def test_a_good_image_takes_the_place_of_one_that_cannot_be_had(plane: ClusterPlane) -> None:
    plane.kubelet.missing_images.add("gone:1")
    await plane.pool(container={"image": "gone:1"})
    await plane.until_reason(NAME, "ImageUnavailable")
    await plane.pool(container={"image": "good:1"})
    await plane.ready()


async def test_without_room_it_says_what_the_scheduler_says(plane: ClusterPlane) -> None:
    plane.kubelet.has_room = False
    await plane.pool()
    await plane.until_reason(NAME, "Provisioning", "1 Insufficient memory")
    plane.kubelet.has_room = True
    plane.kubelet.look()
    await plane.ready()


async def test_what_crashes_says_so_and_its_kubelet_starts_it_again(plane: ClusterPlane) -> None:
    await plane.pool(container={"command": ["sh", "-c", "exit 3"]})
    await plane.until_reason(NAME, "InstanceCrashing", "exited with code 3")

    async def has_restarted() -> bool:
        found = await plane.instance(NAME)
        return found is not None and found.status is not None and found.status.restarts >= 2

    await plane.until(has_restarted)
    pod = await uid_of(plane)
    await plane.pool(container={"command": SLEEP})
    await another(plane, pod)
    await plane.ready()


async def test_a_killed_process_is_a_restart_of_the_same_pod(plane: ClusterPlane) -> None:
    await plane.pool()
    await plane.ready()
    uid = await uid_of(plane)
    plane.kubelet.kill(uid)

    async def has_restarted() -> bool:
        found = await plane.instance(NAME)
        return found is not None and found.status is not None and found.status.restarts == 1 and await plane.is_ready()

    await plane.until(has_restarted)
    assert await uid_of(plane) == uid


async def test_an_evicted_pod_is_made_anew_and_its_runs_go_on_counting(plane: ClusterPlane) -> None:
    await plane.pool()
    await plane.ready()
    uid = await uid_of(plane)
    plane.kubelet.evictions[NAME] = "The node was low on resource: memory."
    plane.kubelet.look()
    pod = await another(plane, uid)
    assert pod.metadata.annotations["rota.dev/run"] == "1"
    await plane.ready()


async def test_a_pod_that_a_person_deletes_is_made_anew(plane: ClusterPlane) -> None:
    await plane.pool()
    await plane.ready()
    uid = await uid_of(plane)
    await plane.client.delete(Pod, NAME, namespace="default", grace_seconds=1)
    await another(plane, uid)
    await plane.ready()


async def test_a_silent_node_is_said_and_its_pod_is_not_deleted(plane: ClusterPlane) -> None:
    await plane.pool()
    await plane.ready()
    pod = await plane.pod(NAME)
    assert pod is not None
    await plane.kubelet.lose_node(pod)
    await plane.until_reason(NAME, "NodeUnreachable", "Kubelet stopped posting")
    found = await plane.pod(NAME)
    assert found is not None and found.metadata.uid == pod.metadata.uid
    assert found.metadata.deletion_timestamp is None, "it may still run there"
    plane.kubelet.is_away = False


async def test_an_instance_on_a_silent_node_does_not_go_before_its_pod(plane: ClusterPlane) -> None:
    await plane.pool()
    await plane.ready()
    pod = await plane.pod(NAME)
    assert pod is not None
    await plane.kubelet.lose_node(pod)
    await plane.client.delete(Instance, NAME, namespace="default")

    async def is_asked() -> bool:
        found = await plane.pod(NAME)
        return found is not None and found.metadata.deletion_timestamp is not None

    await plane.until(is_asked)
    found = await plane.instance(NAME)
    assert found is not None and found.metadata.deletion_timestamp is not None and found.metadata.uid
    plane.kubelet.is_away = False
    plane.kubelet.look()
    await another(plane, pod.metadata.uid)


async def test_a_namesake_that_is_not_ours_is_left_alone_and_named(plane: ClusterPlane) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"containers": [{"name": "x", "image": "x:1", "command": SLEEP}]},
    }
    await plane.client.create(theirs)
    await plane.pool()
    await plane.until_reason(NAME, "NameTaken", f"Pod/{NAME} is there and is not Rota's")
    found = await plane.pod(NAME)
    assert found is not None and found.metadata.deletion_timestamp is None and not found.metadata.owner_references


async def test_a_pod_that_the_cluster_refuses_has_its_words_and_is_no_hot_loop(plane: ClusterPlane) -> None:
    if not hasattr(plane.backend, "refusals"):
        pytest.skip("the API server has no webhook that refuses")
    why = 'pods "boxes-0" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4'
    plane.backend.refusals += [ApiError(403, "Forbidden", why)] * 3
    await plane.pool()
    await plane.until_reason(NAME, "QuotaExceeded", "exceeded quota: q")
    assert len(plane.backend.refusals) >= 1, "it is tried again after a while, not at once"


async def test_storage_goes_to_the_next_of_an_ordinal_and_ends_with_the_pool(plane: ClusterPlane) -> None:
    await plane.pool(template={"storage": {"size": "1Gi"}})
    await plane.ready()
    [claim] = (await plane.client.list(PersistentVolumeClaim, namespace="default")).items
    uid = await uid_of(plane)
    await plane.pool(container={"image": "image:2"}, template={"storage": {"size": "1Gi"}})
    await another(plane, uid)
    [same] = (await plane.client.list(PersistentVolumeClaim, namespace="default")).items
    assert same.metadata.uid == claim.metadata.uid
    await plane.client.delete(WorkerPool, "boxes", namespace="default")
    for one in (await plane.client.list(Instance, namespace="default")).items:
        await plane.client.delete(Instance, one.metadata.name, namespace="default")

    async def is_gone() -> bool:
        left = (await plane.client.list(PersistentVolumeClaim, namespace="default")).items
        return not [one for one in left if one.metadata.deletion_timestamp is None]

    await plane.until(is_gone)


async def test_storage_of_somebody_else_is_not_used(plane: ClusterPlane) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await plane.client.create(theirs)
    await plane.pool(template={"storage": {"size": "1Gi"}})
    await plane.until_reason(NAME, "NameTaken", f"PersistentVolumeClaim/{NAME} is there and is not Rota's")
    assert await plane.pod(NAME) is None


async def test_no_network_is_a_policy_that_selects_the_pod(plane: ClusterPlane) -> None:
    await plane.pool(template={"network": "none"})
    await plane.ready()
    pod = await plane.pod(NAME)
    policy = await plane.client.get(NetworkPolicy, "rota-network-none", namespace="default")
    assert pod is not None
    wanted = policy.spec["podSelector"]["matchLabels"]
    assert wanted.items() <= pod.metadata.labels.items() and policy.spec["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(
    ("template", "reason", "message"),
    [
        ({"runtime": "process"}, "ConfigurationError", "runtime process is for one machine"),
        ({"isolation": "sandbox"}, "NotIsolated", "needs a RuntimeClass"),
        ({"network": "egress", "egress": [{"host": "example.org"}]}, "ConfigurationError", "has no proxy"),
        ({"worker": {"type": "shell"}}, "ConfigurationError", "do not run in Pods yet"),
    ],
)
async def test_what_a_pod_cannot_give_is_refused_with_the_reason(
    plane: ClusterPlane, template: dict[str, Any], reason: str, message: str
) -> None:
    await plane.pool(template=template)
    await plane.until_reason(NAME, reason, message)
    assert await plane.pod(NAME) is None


async def test_another_leader_adopts_what_runs(plane: ClusterPlane) -> None:
    await plane.pool(replicas=2)
    await plane.ready()
    before = {await uid_of(plane, name) for name in ("boxes-0", "boxes-1")}
    await plane.stop()
    plane.kubelet.kill(await uid_of(plane, "boxes-1"), number=signal.SIGKILL)
    await plane.lead()

    async def has_heard() -> bool:
        found = await plane.instance("boxes-1")
        return found is not None and found.status is not None and found.status.restarts == 1

    await plane.until(has_heard)
    await plane.ready()
    assert {await uid_of(plane, name) for name in ("boxes-0", "boxes-1")} == before


async def test_a_claim_holds_a_pod_which_is_made_anew_for_its_variables(plane: ClusterPlane) -> None:
    await plane.pool()
    await plane.ready()
    uid = await uid_of(plane)
    claim = await plane.claim("mine", env=[{"name": "WISH", "value": "granted"}])
    assert claim.status is not None and claim.status.instance_name == NAME
    pod = await another(plane, uid)
    assert plane.kubelet.environments[pod.metadata.uid]["WISH"] == "granted"
    await plane.client.patch(Claim, "mine", {"spec": {"release": True}}, namespace="default")
    after = await another(plane, pod.metadata.uid)
    assert "WISH" not in plane.kubelet.environments[after.metadata.uid]
    await plane.ready()


async def test_a_release_ends_everything_that_the_holder_left_running(plane: ClusterPlane) -> None:
    await plane.pool(reset="Keep")
    await plane.ready()
    uid = await uid_of(plane)
    await plane.claim("mine")
    await plane.client.patch(Claim, "mine", {"spec": {"release": True}}, namespace="default")
    await another(plane, uid)
    assert not plane.kubelet.is_running(uid)
