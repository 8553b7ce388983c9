"""Build the Pod and the PersistentVolumeClaim of an Instance. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rota.api import Instance, ObjectMeta, OwnerReference
from rota.api.cluster import NetworkPolicy, PersistentVolumeClaim, Pod
from rota.api.egress import Network
from rota.api.instance import Container, Probe
from rota.api.parts import EnvVar, Resources
from rota.control.holds.options import as_held, has_runner
from rota.control.instances import Size, storage_name
from rota.control.instances.names import ORDINAL_LABEL, OWNER_LABEL, controller_of, owner_of, place_variables
from rota.control.instances.reasons import HUB_QUOTA_GATE, QUOTA_GATE
from rota.control.instances.template import UNIT_NANOS
from rota.control.making import ports

MANAGED_LABEL = "rota.dev/managed"
"""Label of every object that a maker creates on a cluster. The maker ignores objects without it."""
NETWORK_LABEL = "rota.dev/network"
"""Label with the network of a Pod, by which a NetworkPolicy selects it."""
RUN = "rota.dev/run"
"""Annotation of a Pod: the number of its first run, from which restarts count on."""
STORAGE_OWNER = "rota.dev/storage-owner"
"""Annotation of a PersistentVolumeClaim: the name and the uid of its owner."""
INSTANCE = "rota.dev/instance"
"""Annotation of a PersistentVolumeClaim: the instance that it was created for."""
ISOLATED_POLICY = "rota-network-none"
"""The name of the NetworkPolicy, in each namespace, of Pods without a network."""
STORAGE_VOLUME = "rota-storage"
CAPABILITIES_DROPPED = ("AUDIT_WRITE", "MKNOD", "NET_RAW", "SETFCAP", "SYS_CHROOT")
"""Capabilities that are dropped beyond those that a container engine drops: services seldom need them."""
QUOTA_GATES = frozenset((QUOTA_GATE, HUB_QUOTA_GATE))
OWN_NETWORK: Network = "none"
"""The network for which ports are allotted: a Pod has all port numbers for itself."""
PORT_NAME_MAX = 15
"""The longest name of a port that Kubernetes accepts."""


def unmakeable(obj: Instance, network: Network, runtime_class: str) -> tuple[str, str] | None:
    """Return the reason and message for which an instance can never be a Pod here, by its spec; None: it can."""
    spec = obj.spec
    if spec.runtime not in (None, "pod"):
        return "ConfigurationError", f"runtime {spec.runtime} is for one machine; on a cluster it is pod, or left out"
    if has_runner(obj) or spec.handler is not None:
        return "ConfigurationError", "workers, workspaces and functions do not run in Pods yet: only containers do"
    for container in (as_held(obj, one) for one in spec.containers):
        if not container.image:
            return "ConfigurationError", f"container {container.name} has no image, and a Pod needs one"
    if spec.isolation in ("sandbox", "gvisor") and not runtime_class:
        return (
            "NotIsolated",
            f"isolation {spec.isolation} needs a RuntimeClass: give --runtime-class",
        )
    if network == "egress":
        return "ConfigurationError", "network egress has no proxy in a Pod: use none, or host with policies of your own"
    return None


def pod(
    obj: Instance, sizes: Mapping[str, Size], *, run: int, network: Network = "host", runtime_class: str = ""
) -> Pod:
    """Return the Pod of an instance. `sizes`: the size of each container. `run`: the number of its first run."""
    spec, meta = obj.spec, obj.metadata
    numbers = ports.allot(obj, (), OWN_NETWORK)
    volumes, mounts = _volumes(obj)
    body: dict[str, Any] = {
        "containers": [_container(obj, one, sizes, numbers[one.name], mounts) for one in spec.containers],
        "volumes": volumes,
        "restartPolicy": spec.restart_policy,
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "schedulingGates": gates(obj),
        # Nothing of the cluster is the business of what runs in it.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    if runtime_class and spec.isolation in ("sandbox", "gvisor"):
        body["runtimeClassName"] = runtime_class
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels={**labels(obj), NETWORK_LABEL: network},
            annotations={RUN: str(run)},
            owner_references=[_owner(obj)],
        ),
        spec={name: value for name, value in body.items() if value not in ([], None)},
    )


def labels(obj: Instance) -> dict[str, str]:
    """Return the labels of an instance's Pod: those of the instance, and the label of managed objects."""
    return {**obj.metadata.labels, MANAGED_LABEL: "true"}


def gates(obj: Instance) -> list[dict[str, str]]:
    """Return the gates of a Pod: those of its instance except the quota's, since without a grant there is no Pod."""
    return [{"name": one.name} for one in obj.spec.scheduling_gates if one.name not in QUOTA_GATES]


def storage_claim(obj: Instance) -> PersistentVolumeClaim:
    """Return the PersistentVolumeClaim of an instance. A later instance of its ordinal takes it over."""
    assert obj.spec.storage is not None
    owner, marks, owned = owner_of(obj), obj.metadata.labels, controller_of(obj)
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=storage_name(obj),
            namespace=obj.metadata.namespace,
            labels={
                MANAGED_LABEL: "true",
                **{name: marks[name] for name in (OWNER_LABEL, ORDINAL_LABEL) if name in marks},
            },
            annotations={STORAGE_OWNER: f"{owner.name}/{owner.uid}", INSTANCE: obj.metadata.name},
            # It ends with its owner also where nobody is there to end it.
            owner_references=[_shared_by(owned)] if owned else [],
        ),
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": str(obj.spec.storage.size)}},
        },
    )


def isolated_policy(namespace: str) -> NetworkPolicy:
    """Return the NetworkPolicy of Pods without a network, which allows no traffic in or out."""
    return NetworkPolicy(
        metadata=ObjectMeta(name=ISOLATED_POLICY, namespace=namespace, labels={MANAGED_LABEL: "true"}),
        spec={
            "podSelector": {"matchLabels": {MANAGED_LABEL: "true", NETWORK_LABEL: "none"}},
            "policyTypes": ["Ingress", "Egress"],
        },
    )


def _shared_by(owner: OwnerReference) -> OwnerReference:
    """Return an owner as one of those that an object ends with, and not as its controller."""
    return msgspec.structs.replace(owner, controller=None, block_owner_deletion=None)


def _owner(obj: Instance) -> OwnerReference:
    meta = obj.metadata
    return OwnerReference(
        api_version=obj.api.api_version,
        kind=obj.api.name,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _container(
    obj: Instance,
    container: Container,
    sizes: Mapping[str, Size],
    numbers: Mapping[str, int],
    mounts: list[dict[str, Any]],
) -> dict[str, Any]:
    container = as_held(obj, container)
    said: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "command": [_literal(one) for one in container.command],
        "args": [_literal(one) for one in container.args],
        "workingDir": container.working_dir,
        "env": [*_variables(obj, numbers), *(_variable(one) for one in container.env)],
        "ports": [
            {"name": one.name, "containerPort": numbers[one.name], "protocol": one.protocol}
            for one in _named_ports(container)
        ],
        "resources": _resources(container.resources, sizes.get(container.name)),
        "readinessProbe": _probe(container.readiness_probe),
        "livenessProbe": _probe(container.liveness_probe),
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": [*CAPABILITIES_DROPPED]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {name: value for name, value in said.items() if value not in ([], {}, None)}


def _named_ports(container: Container) -> Iterator[Any]:
    """Return the ports of a container with names that Kubernetes accepts: at most 15 characters."""
    return (one for one in container.ports if len(one.name) <= PORT_NAME_MAX)


def _literal(text: str) -> str:
    """Escape `$`, so that Kubernetes does not expand variables, as a runtime of one machine does not either."""
    return text.replace("$", "$$")


def _variable(one: EnvVar) -> dict[str, Any]:
    if one.value_from is not None:
        return {"name": one.name, "valueFrom": _builtins(one.value_from)}
    return {"name": one.name, "value": _literal(one.value or "")}


def _variables(obj: Instance, numbers: Mapping[str, int]) -> list[dict[str, str]]:
    found = {**place_variables(obj), **ports.environment(numbers)}
    return [{"name": name, "value": value} for name, value in found.items()]


def _resources(said: Resources | None, counted: Size | None) -> dict[str, Any]:
    """Return the resources of a container: its own; without any, its share of the instance's, as a request."""
    if said is not None:
        amounts: dict[str, dict[str, Any]] = msgspec.to_builtins(said)
        # A Pod has no limit of processes: the node has one for all.
        kept = {name: {k: v for k, v in each.items() if k != "pids"} for name, each in amounts.items() if each}
        return {name: each for name, each in kept.items() if each}
    if counted is None:
        return {}
    requests = {}
    if counted.cpu_nanos:
        requests["cpu"] = f"{-(-counted.cpu_nanos * 1000 // UNIT_NANOS)}m"
    if counted.memory_bytes:
        requests["memory"] = str(counted.memory_bytes)
    return {"requests": requests} if requests else {}


def _volumes(obj: Instance) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes of a Pod, and the mounts of each container."""
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    by_place: dict[str, list[dict[str, Any]]] = {}
    for one in obj.spec.volumes:
        if one.secret is not None:
            source = {"secret": {"name": one.secret.name, "optional": True}}
        else:
            assert one.config_map is not None
            source = {"configMap": {"name": one.config_map.name, "optional": True}}
        by_place.setdefault(one.mount_path.rstrip("/") or "/", []).append(source)
    for number, (place, sources) in enumerate(by_place.items()):
        # Several at one place are one folder with the files of all.
        volumes.append({"name": f"volume-{number}", "projected": {"sources": sources}})
        mounts.append({"name": f"volume-{number}", "mountPath": place, "readOnly": True})
    if obj.spec.storage is not None:
        volumes.append({"name": STORAGE_VOLUME, "persistentVolumeClaim": {"claimName": storage_name(obj)}})
        mounts.append({"name": STORAGE_VOLUME, "mountPath": obj.spec.storage.path})
    return volumes, mounts


def _probe(probe: Probe | None) -> dict[str, Any] | None:
    said: dict[str, Any] | None = _builtins(probe)
    if said is not None and "exec" in said:
        said["exec"] = {"command": [_literal(one) for one in said["exec"]["command"]]}
    return said


def _builtins(value: Any) -> Any:
    return None if value is None else msgspec.to_builtins(value)
