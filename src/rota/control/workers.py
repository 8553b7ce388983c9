"""Workers: the instance that a worker is, what its runner is told to prepare, and what comes of what it says."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from rota.api import AgentConfig, Condition, Instance, WorkerPool, Workspace
from rota.api.egress import Policy
from rota.api.instance import AssignmentStatus, Container, Handler, InstanceTemplate, Storage
from rota.api.pool import PoolStorage
from rota.api.worker import WorkerConfig, WorkerRole
from rota.control.agents import agent_files, agent_program
from rota.control.gate import status_of
from rota.control.instances.names import controller_of
from rota.control.orders import secret
from rota.control.seen import AVAILABLE, unavailable
from rota.engine.objects import Objects, get
from rota.runtime.interface import Box, Order, Runtime
from rota.runtime.runner.messages import Configure, Hold, Place, Release, Report, ResetPolicy, Source
from rota.runtime.runner.messages import Handler as Hosted
from rota.runtime.workspace import mirrors

NO_POLICY = Policy()
CONTAINER = "worker"
"""The one container of a worker."""
MEANING = {
    "Waiting": "its runner is being started",
    "Preparing": "what it works on is being prepared",
    "Resetting": "what the last holder left is being removed",
}


def template_of(pool: WorkerPool) -> InstanceTemplate:
    """What the instances of a pool are made from."""
    template = pool.spec.template
    if template is None:
        assert pool.spec.worker is not None
        template = worker_template(pool.spec.worker)
    return with_storage(template, pool.spec.storage)


def with_storage(template: InstanceTemplate, storage: PoolStorage | None) -> InstanceTemplate:
    if storage is None or template.storage is not None:
        return template
    return msgspec.structs.replace(template, storage=Storage(size=storage.size))


def worker_template(config: WorkerConfig) -> InstanceTemplate:
    """A worker as an instance."""
    return InstanceTemplate(
        containers=[Container(name=CONTAINER, image=config.image, env=config.env, resources=config.resources)],
        worker=WorkerRole(**{field: getattr(config, field) for field in WorkerRole.__struct_fields__}),
        workspace_ref=config.workspace_ref,
        isolation=config.isolation,
        network=config.network,
        egress=config.egress,
    )


def reset_policy(objects: Objects, obj: Instance) -> ResetPolicy:
    """What happens between two holders of an instance: what its pool says now."""
    if obj.spec.handler is not None:
        return "Keep"  # It has one for all its life.
    owner = controller_of(obj)
    pool = get(objects, WorkerPool, owner.name, obj.metadata.namespace) if owner is not None else None
    return pool.spec.reset if pool is not None and owner is not None and pool.metadata.uid == owner.uid else "Clean"


class Preparation(msgspec.Struct, frozen=True):
    """What a runner is told, but for its box. It holds secrets."""

    order: Order
    reset: ResetPolicy
    workspace: Source | None
    home_files: dict[str, str]
    handler: Handler | None = None
    program: str = ""

    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


def preparation(objects: Objects, obj: Instance, order: Order, policy: Policy = NO_POLICY) -> Preparation:
    """What the runner of an instance is to prepare, as things are now."""
    return Preparation(
        order=msgspec.structs.replace(order, number=0),
        reset=reset_policy(objects, obj),
        workspace=_source(objects, obj, policy),
        home_files=_home_files(objects, obj),
        handler=obj.spec.handler,
        program=agent_program(obj.spec.worker) if obj.spec.worker is not None else "",
    )


async def configuration(runtime: Runtime, prepared: Preparation, digest: str) -> Configure:
    box = await runtime.box(prepared.order, digest)
    place = Place(box.argv, box.env, box.folder, box.inside, box.record, box.uid)
    order = prepared.order
    return Configure(
        digest,
        place,
        prepared.reset,
        prepared.workspace,
        prepared.home_files,
        main=order.argv,
        cwd=order.working_dir,
        handler=_hosted(prepared.handler, box) if prepared.handler is not None else None,
        program=prepared.program,
    )


def _hosted(handler: Handler, box: Box) -> Hosted:
    return Hosted(
        handler.function,
        handler.runtime,
        handler.concurrency,
        handler.entrypoint or "",
        tuple(handler.command),
        box.code,
        box.packages,
    )


def _source(objects: Objects, obj: Instance, policy: Policy) -> Source | None:
    ref = obj.spec.workspace_ref
    namespace = obj.metadata.namespace
    workspace = get(objects, Workspace, ref.name, namespace) if ref is not None else None
    if workspace is None:
        return None
    signed = workspace.spec.secret_ref
    scope = mirrors.scope(namespace, signed.name if signed is not None else "")
    values = secret(objects, namespace, signed.name) if signed is not None else None
    texts = {key: each.decode(errors="replace") for key, each in values.items()} if values is not None else None
    return Source(workspace.spec, scope, texts, policy.network, tuple(map(str, policy.targets)))


def _home_files(objects: Objects, obj: Instance) -> dict[str, str]:
    if obj.spec.worker is None:
        return {}
    namespace = obj.metadata.namespace
    found = [get(objects, AgentConfig, ref.name, namespace) for ref in obj.spec.worker.agent_config_refs]
    specs = [one.spec for one in found if one is not None]
    named = {server.secret_ref.name for spec in specs for server in spec.mcp_servers if server.secret_ref is not None}
    secrets = {
        name: {key: each.decode(errors="replace") for key, each in secret(objects, namespace, name).items()}
        for name in named
    }
    return agent_files(obj.spec.worker.type, specs, secrets)


def available(report: Report | None, obj: Instance) -> Condition:
    """Return the condition Available that a runner's report comes to."""
    if report is None:
        return unavailable("Starting", MEANING["Waiting"])
    if _is_let_go(report, obj):
        return unavailable("Starting", MEANING["Resetting"])
    if report.phase in ("Idle", "Held"):
        return Condition(type=AVAILABLE, status="True", reason=AVAILABLE)
    if report.phase in ("Failed", "Broken"):
        return unavailable("ConfigurationError", f"{report.reason}: {report.message}")
    return unavailable("Starting", MEANING[report.phase])


def _is_let_go(report: Report, obj: Instance) -> bool:
    """Report whether a hold has ended, and the runner has not begun yet to clear away what the holder left."""
    held = obj.spec.assignment
    return report.phase == "Held" and not report.has_task and (held is None or held.id != report.holder)


def next_step(
    report: Report, obj: Instance, reset: ResetPolicy, digest: str
) -> Hold | Release | Literal["Replace"] | None:
    """What its runner is told of who has the instance; or that the instance is to be replaced.

    Nobody is given it before it is prepared as it should be by now.
    """
    held = obj.spec.assignment
    if report.phase == "Broken":
        return "Replace"
    if report.has_task or (held is not None and held.kind == "Task"):
        # A task's end is told by its runner, and what comes then is told it with the acknowledgement.
        done = report.phase == "Held" and held is None and reset == "Recreate"
        return "Replace" if done else None
    if _is_let_go(report, obj):
        return "Replace" if reset == "Recreate" else Release()
    is_as_told = report.phase == "Idle" and report.configured == digest
    if is_as_told and held is not None and _accepted(obj) != held.id:
        return Hold(held.id)
    return None


def assignment(report: Report, obj: Instance) -> AssignmentStatus | None:
    """How far the runner is with whoever has the instance. What it had and has no more is done."""
    held = obj.spec.assignment
    if held is None:
        return None
    if report.holder == held.id:
        return AssignmentStatus(id=held.id, phase="Accepted")
    if _accepted(obj) != held.id:
        return None
    return AssignmentStatus(id=held.id, phase="Done") if report.phase == "Idle" else status_of(obj).assignment


def _accepted(obj: Instance) -> str:
    """The hold that the runner of an instance has taken on, by what was last written down."""
    known = status_of(obj).assignment
    return known.id if known is not None else ""
