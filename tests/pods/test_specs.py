"""From an Instance to its Pod, and from a Pod to what is reported: pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from rota.api import Instance
from rota.api.cluster import Pod
from rota.control.instances import Size
from rota.control.making.pods import specs, statuses

UID = "6f1c1c9e-0000-4000-8000-000000000001"


def an_instance(*, container: dict[str, Any] | None = None, **spec: Any) -> Instance:
    main = {"name": "main", "image": "web:1", **(container or {})}
    labels = {"rota.dev/owner": "web", "rota.dev/ordinal": "3"}
    meta = {"name": "web-3", "namespace": "shop", "uid": UID, "labels": labels}
    body = {"containers": [main], "templateHash": "h", "ordinal": 3, **spec}
    return msgspec.convert({"metadata": meta, "spec": body}, Instance)


def a_pod(**status: Any) -> Pod:
    meta = {"name": "web-3", "namespace": "shop", "uid": "pod", "annotations": {"rota.dev/run": "4"}}
    return msgspec.convert({"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": status}, Pod)


def the_container(obj: Instance, **sizes: Size) -> dict[str, Any]:
    [found] = specs.pod(obj, sizes, run=0).spec["containers"]
    assert isinstance(found, dict)
    return found


def filled_in(text: str, values: dict[str, str]) -> str:
    """Expand a text as a kubelet does: `$(NAME)` is a variable, `$$` is `$`, and any other `$` is itself."""
    return re.sub(
        r"\$(\$|\(([^)]*)\))",
        lambda found: "$" if found[1] == "$" else values.get(found[2], found[0]),
        text,
        flags=re.DOTALL,
    )


@pytest.mark.parametrize(
    "text", ["$(HOME)", "$$(HOME)", "$$$(HOME)", "$HOME", "kill $$", "$", "$$", "$(", "a$(b$(HOME)"]
)
def test_nothing_in_a_command_or_a_value_is_filled_in_by_the_cluster(text: str) -> None:
    probe = {"exec": {"command": [text]}}
    said = {"command": [text], "args": [text], "env": [{"name": "A", "value": text}], "readinessProbe": probe}
    made = the_container(an_instance(container=said))
    commands = [*made["command"], *made["args"], made["env"][0]["value"], *made["readinessProbe"]["exec"]["command"]]
    assert [filled_in(one, {"HOME": "/root"}) for one in commands] == [text] * 4


def test_what_a_container_may_use_is_its_own_word_and_else_its_share_is_requested() -> None:
    said = {"resources": {"limits": {"cpu": "500m", "memory": "1Gi", "pids": 20}}}
    assert the_container(an_instance(container=said))["resources"] == {"limits": {"cpu": "500m", "memory": "1Gi"}}
    share = Size(1_500_000_000, 1 << 30)
    assert the_container(an_instance(), main=share)["resources"] == {
        "requests": {"cpu": "1500m", "memory": str(1 << 30)}
    }
    assert "resources" not in the_container(an_instance())


def test_volumes_at_one_place_are_one_folder() -> None:
    volumes = [
        {"name": "a", "secret": {"name": "s"}, "mountPath": "/etc/app/"},
        {"name": "b", "configMap": {"name": "c"}, "mountPath": "/etc/app"},
    ]
    made = specs.pod(an_instance(volumes=volumes), {}, run=0).spec
    [volume], [mount] = made["volumes"], made["containers"][0]["volumeMounts"]
    assert [next(iter(one)) for one in volume["projected"]["sources"]] == ["secret", "configMap"]
    assert mount == {"name": "volume-0", "mountPath": "/etc/app", "readOnly": True}


def test_a_port_without_a_number_gets_one_that_what_runs_is_told() -> None:
    obj = an_instance(container={"ports": [{"name": "http"}, {"name": "admin", "port": 20000}]})
    made = the_container(obj)
    numbers = {one["name"]: one["containerPort"] for one in made["ports"]}
    told = {one["name"]: one["value"] for one in made["env"]}
    assert numbers["admin"] == 20000 and numbers["http"] != 20000
    assert str(numbers["http"]) in told.values() and str(numbers["admin"]) in told.values()
    pod = a_pod(podIP="10.0.0.7")
    assert {(one.name, one.host, one.port) for one in statuses.addresses(obj, pod)} == {
        ("http", "10.0.0.7", numbers["http"]),
        ("admin", "10.0.0.7", 20000),
    }


def test_the_gate_of_a_quota_is_none_of_a_pod() -> None:
    obj = an_instance(schedulingGates=[{"name": "Quota"}, {"name": "example.org/warm"}])
    assert specs.gates(obj) == [{"name": "example.org/warm"}]


def test_a_sandbox_has_the_class_and_nothing_else_has() -> None:
    assert specs.pod(an_instance(isolation="sandbox"), {}, run=0, runtime_class="gv").spec["runtimeClassName"] == "gv"
    assert "runtimeClassName" not in specs.pod(an_instance(), {}, run=0, runtime_class="gv").spec


def test_storage_says_whose_it_is() -> None:
    claim = specs.storage_claim(an_instance(storage={"size": "2Gi"}))
    assert claim.spec["resources"] == {"requests": {"storage": "2Gi"}}
    assert claim.metadata.annotations[specs.STORAGE_OWNER] == f"web-3/{UID}", "without an owner it is its own"


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        ({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}, "ImageUnavailable", "not found"),
        ({"waiting": {"reason": "InvalidImageName"}}, "ImageUnavailable", "InvalidImageName"),
        ({"waiting": {"reason": "CreateContainerConfigError", "message": "no s"}}, "ConfigurationError", "no s"),
        ({"waiting": {"reason": "ContainerCreating"}}, "Provisioning", "prepares"),
        ({"terminated": {"exitCode": 1, "reason": "Error"}}, "Starting", "exited with code 1"),
    ],
)
def test_what_a_kubelet_says_is_the_reason(state: dict[str, Any], reason: str, message: str) -> None:
    found = statuses.observed(an_instance(), a_pod(containerStatuses=[{"name": "main", "state": state}])).obstacle
    assert found is not None and found.reason == reason and message in found.message


def test_one_that_ran_out_of_memory_says_so_and_counts_on() -> None:
    end = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}
    each = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": end},
        "restartCount": 2,
    }
    found = statuses.observed(an_instance(), a_pod(containerStatuses=[each]))
    assert found.obstacle is not None and found.obstacle.reason == "InstanceCrashing" and found.obstacle.is_made
    assert "OutOfMemory" in found.obstacle.message
    run = found.runs["main"]
    assert (run.number, run.exit and run.exit.reason) == (6, "OutOfMemory"), "4 runs were in an earlier Pod"


def test_whatever_a_cluster_says_of_a_pod_is_read() -> None:
    said = {"type": "t" * 400, "status": "Odd", "reason": "r" * 2_000, "message": "m" * 50_000}
    found = statuses.observed(an_instance(), a_pod(conditions=[said]))
    assert found.runs == {} and found.obstacle is not None


def test_a_number_of_runs_that_nobody_counts_to_is_none() -> None:
    pod = a_pod()
    pod.metadata.annotations["rota.dev/run"] = "9" * 5_000
    assert statuses.first_run(pod) == 0


def test_a_pod_that_was_evicted_before_it_ran_has_ended() -> None:
    found = statuses.observed(an_instance(), a_pod(phase="Failed", reason="Evicted", message="low on memory"))
    end = found.runs["main"].exit
    assert end is not None and (end.reason, end.lines, end.failed) == ("Evicted", "low on memory", True)
    assert found.obstacle is None


def test_the_worst_of_several_containers_is_said() -> None:
    each = [
        {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}},
        {"name": "beside", "state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}},
    ]
    found = statuses.observed(an_instance(), a_pod(containerStatuses=each)).obstacle
    assert found is not None and found.reason == "ImageUnavailable"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"runtime": "container"}, "ConfigurationError"),
        ({"workspaceRef": {"name": "w"}}, "ConfigurationError"),
        ({"isolation": "gvisor", "runtime": "pod"}, "NotIsolated"),
        ({"container": {"image": None}}, "ConfigurationError"),
    ],
)
def test_what_can_be_no_pod_is_refused(spec: dict[str, Any], reason: str) -> None:
    found = specs.unmakeable(an_instance(**spec), "host", "")
    assert found is not None and found[0] == reason
