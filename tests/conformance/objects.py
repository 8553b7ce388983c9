"""Small objects of each kind, as JSON. What a test is about it passes in."""

from __future__ import annotations

from typing import Any

from rota.api import (
    Claim,
    ConfigMap,
    Event,
    Function,
    Instance,
    Kind,
    Lease,
    Location,
    Namespace,
    Schedule,
    Secret,
    Task,
    WorkerPool,
    Workload,
    Workspace,
)

Object = dict[str, Any]

CLAIMS = Claim.api
CONFIG_MAPS = ConfigMap.api
EVENTS = Event.api
FUNCTIONS = Function.api
INSTANCES = Instance.api
LEASES = Lease.api
LOCATIONS = Location.api
NAMESPACES = Namespace.api
POOLS = WorkerPool.api
SCHEDULES = Schedule.api
SECRETS = Secret.api
TASKS = Task.api
WORKLOADS = Workload.api
WORKSPACES = Workspace.api


def _object(kind: Kind, name: str, metadata: Object, **parts: Any) -> Object:
    meta = {"name": name, **metadata} if name else metadata
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **parts}


def namespace(name: str, **metadata: Any) -> Object:
    return _object(NAMESPACES, name, metadata)


def config_map(name: str = "config", data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return _object(CONFIG_MAPS, name, metadata, data={"key": "value"} if data is None else data)


def secret(name: str = "secret", **parts: Any) -> Object:
    return _object(SECRETS, name, {}, **parts)


def lease(name: str = "lease", **spec: Any) -> Object:
    return _object(LEASES, name, {}, spec=spec)


def pool(name: str = "pool", spec: Object | None = None, **metadata: Any) -> Object:
    """A WorkerPool: it has a scale, nested defaults and a status."""
    return _object(POOLS, name, metadata, spec={"worker": {"type": "shell"}, **(spec or {})})


def task(name: str = "task", spec: Object | None = None, **metadata: Any) -> Object:
    """A Task: its spec is immutable, and some of its fields can be selected by."""
    base = {"command": ["true"], "workerPoolRef": {"name": "pool"}}
    return _object(TASKS, name, metadata, spec={**base, **(spec or {})})


def claim(name: str = "claim", spec: Object | None = None, **metadata: Any) -> Object:
    """A Claim: it has immutable and one-way fields."""
    return _object(CLAIMS, name, metadata, spec={"poolRef": {"name": "pool"}, **(spec or {})})


def schedule(name: str = "schedule", spec: Object | None = None, **metadata: Any) -> Object:
    """A Schedule: its payload is an atomic map, its regions a set."""
    base = {"cron": "0 * * * *", "target": {"functionRef": {"name": "function"}}}
    return _object(SCHEDULES, name, metadata, spec={**base, **(spec or {})})


def workload(name: str = "workload", spec: Object | None = None, **metadata: Any) -> Object:
    """A Workload: lists with keys, within each other."""
    base = {"template": {"spec": {"containers": [{"name": "main"}]}}, "placements": [placement("east")]}
    return _object(WORKLOADS, name, metadata, spec={**base, **(spec or {})})


def placement(name: str, **parts: Any) -> Object:
    return {"name": name, "cityCodes": ["ams"], **parts}


def instance(name: str = "instance", spec: Object | None = None, **metadata: Any) -> Object:
    base = {"containers": [{"name": "main"}], "templateHash": "abc", "ordinal": 0}
    return _object(INSTANCES, name, metadata, spec={**base, **(spec or {})})


def workspace(name: str = "workspace", spec: Object | None = None, **metadata: Any) -> Object:
    return _object(WORKSPACES, name, metadata, spec={"repo": "https://example.com/repo", **(spec or {})})


def location(name: str, spec: Object | None = None, **metadata: Any) -> Object:
    """A Location: a kind of the cluster."""
    return _object(LOCATIONS, name, metadata, spec={"cityCode": "ams", **(spec or {})})


def owned_by(owner: Object, **more: Any) -> Object:
    """A reference to an owner."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **more,
    }


def name_of(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def version_of(obj: Object) -> str:
    version: str = obj["metadata"]["resourceVersion"]
    return version
