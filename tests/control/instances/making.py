"""Instances in any state, and what is wanted of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from rota.api import Condition, Instance, ObjectMeta, OwnerReference
from rota.api.instance import Assignment, Container, InstanceSpec, InstanceStatus, InstanceTemplate, SchedulingGate
from rota.control.instances import DRAINING, Desired, Drain, Plan
from rota.control.instances.actions import Create, Delete, Undrain
from rota.control.instances.names import instance_name
from rota.control.instances.states import draining_mark

NOW = 1_700_000_000.25
POOL = OwnerReference(api_version="rota.dev/v1alpha1", kind="WorkerPool", name="agents", uid="pool-uid")
TEMPLATE = InstanceTemplate(containers=[Container(name="main", command=["sleep", "inf"])])
OLD, NEW = "old", "new"


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def wanting(replicas: int, hash_: str = NEW, **more: Any) -> Desired:
    return Desired(owner=POOL, namespace="default", replicas=replicas, template=TEMPLATE, template_hash=hash_, **more)


def said(type_: str, status: str = "True", reason: str = "", message: str = "") -> Condition:
    return Condition(type=type_, status=status, reason=reason or type_, message=message)  # type: ignore[arg-type]


READY = (said("QuotaGranted"), said("Programmed"), said("Available"))
CRASHING = (said("Programmed"), said("Available", "False", "InstanceCrashing", "exited with code 3"))
STARTING = (said("Programmed"), said("Available", "False", "Starting"))


def hold(id_: str = "a-1") -> Assignment:
    return Assignment(id=id_, kind="Task", name="build", uid="task-uid", since=at(NOW))


def an_instance(
    ordinal: int,
    hash_: str = NEW,
    conditions: tuple[Condition, ...] = READY,
    *,
    held: bool = False,
    drained_for: float | None = None,
    leaving: bool = False,
    owner: OwnerReference = POOL,
    name: str = "",
    phase: Any = None,
    gates: tuple[str, ...] = (),
    **spec: Any,
) -> Instance:
    name = name or instance_name(owner.kind, owner.name, ordinal)
    return Instance(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            resource_version="7",
            owner_references=[replace(owner, controller=True)],
            annotations={} if drained_for is None else {DRAINING: draining_mark(NOW - drained_for)},
            deletion_timestamp=at(NOW) if leaving else None,
        ),
        spec=InstanceSpec(
            containers=TEMPLATE.containers,
            template_hash=hash_,
            ordinal=ordinal,
            assignment=hold() if held else None,
            scheduling_gates=[SchedulingGate(name=gate) for gate in gates],
            **spec,
        ),
        status=InstanceStatus(conditions=list(conditions), observed_template_hash=hash_, phase=phase),
    )


def several(count: int, hash_: str = NEW, **more: Any) -> list[Instance]:
    return [an_instance(ordinal, hash_, **more) for ordinal in range(count)]


def in_short(plan: Plan) -> list[str]:
    """The actions of a plan, each as a verb and an ordinal."""
    short = []
    for action in plan.actions:
        match action:
            case Create(instance):
                short.append(f"create {instance.spec.ordinal}")
            case Delete(name=name):
                short.append(f"delete {name.rpartition('-')[2]}")
            case Drain(name=name):
                short.append(f"drain {name.rpartition('-')[2]}")
            case Undrain(name=name):
                short.append(f"undrain {name.rpartition('-')[2]}")
    return short
