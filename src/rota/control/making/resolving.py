"""Resolve an Instance into what the runtime of this machine is ordered to run, with the values of all references."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from rota.api import Instance
from rota.api.egress import Policy
from rota.api.instance import Container
from rota.control.holds.options import as_held, has_runner
from rota.control.instances import Size, storage_name
from rota.control.instances.names import owner_of, place_variables, subject_of
from rota.control.instances.template import UNIT_NANOS, nanos
from rota.control.making.ports import environment
from rota.control.networks import network_of, targets_of
from rota.control.quotas.asking import bounded
from rota.control.sizes import share_of
from rota.control.values import config, secret, value
from rota.engine.objects import Objects
from rota.runtime.composing import NO_RUNNER
from rota.runtime.interface import Order, Refused


def unrunnable(obj: Instance) -> str | None:
    """Return the reason why an instance can never run on this machine, by its spec."""
    spec = obj.spec
    if spec.runtime == "pod":
        return "runtime pod is for a cluster; here it is process or container"
    if has_runner(obj):
        if len(spec.containers) > 1:
            return "an instance with a worker or a workspace has one container, and no more"
        return NO_RUNNER if spec.runtime == "container" else None
    for container in (as_held(obj, one) for one in spec.containers):
        if spec.runtime == "container" and not container.image:
            return f"container {container.name} has no image, and a container needs one"
        if spec.runtime != "container" and not container.command:
            return f"container {container.name} has no command, and a process needs one"
    return None


def resolve(
    objects: Objects,
    obj: Instance,
    container: Container,
    number: int = 0,
    ports: Mapping[str, int] | None = None,
    *,
    policy: Policy,
) -> Order:
    """Return the order for one run of one container. Raises `Refused` if a referenced object does not exist."""
    spec = obj.spec
    if (why := unrunnable(obj)) is not None:
        raise Refused("ConfigurationError", why)
    container = as_held(obj, container)
    limits = container.resources.limits if container.resources else None
    held = _held(objects, obj, container)
    return Order(
        subject=subject_of(obj),
        container=container.name,
        number=number,
        runtime="container" if spec.runtime == "container" else "process",
        has_runner=has_runner(obj),
        argv=(*container.command, *container.args),
        keeps_entrypoint=not container.command,
        env={
            **place_variables(obj),
            **environment(ports or {}),
            **{one.name: value(objects, obj, one) for one in container.env},
        },
        image=container.image or "",
        working_dir=container.working_dir or "",
        storage_name=storage_name(obj) if spec.storage else "",
        storage_path=spec.storage.path if spec.storage else "",
        storage_owner=owner_of(obj) if spec.storage else None,
        storage_bytes=nanos(spec.storage.size) // UNIT_NANOS if spec.storage else None,
        volumes=_volumes(objects, obj),
        isolation=spec.isolation,
        network=network_of(spec, policy),
        egress=tuple(map(str, targets_of(spec, policy))) if network_of(spec, policy) == "egress" else (),
        memory_bytes=held.memory_bytes,
        cpus=held.cpu_nanos / UNIT_NANOS if held.cpu_nanos is not None else None,
        pids=limits.pids if limits else None,
        code=(spec.handler.code or "").removeprefix("sha256:") if spec.handler is not None else "",
        packages=spec.handler.packages or "" if spec.handler is not None else "",
    )


def _held(objects: Objects, obj: Instance, container: Container) -> Size:
    """Return the limits of a container. If a quota bounds CPU or memory, the share of the container is its limit."""
    limits = container.resources.limits if container.resources else None
    counts = bounded(objects, obj)
    has_cpu, has_memory = (
        name in counts or (limits is not None and getattr(limits, name) is not None) for name in ("cpu", "memory")
    )
    if not (has_cpu or has_memory):
        return Size()
    counted = share_of(objects, obj.spec, container.name)
    return Size(counted.cpu_nanos if has_cpu else None, counted.memory_bytes if has_memory else None)


def _volumes(objects: Objects, obj: Instance) -> dict[str, dict[str, bytes]]:
    """Return the files of volumes, by mount path."""
    found: dict[str, dict[str, bytes]] = {}
    namespace = obj.metadata.namespace
    for volume in obj.spec.volumes:
        values: Mapping[str, bytes]
        if volume.secret is not None:
            values = secret(objects, namespace, volume.secret.name)
        else:
            assert volume.config_map is not None
            values = config(objects, namespace, volume.config_map.name)
        # One path can be written in several ways.
        found.setdefault(str(PurePosixPath(volume.mount_path)), {}).update(values)
    return found
