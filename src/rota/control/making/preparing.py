"""The configuration of a runner on this machine: reset, workspace, files of agents, handler. It has secrets."""

from __future__ import annotations

import hashlib

import msgspec

from rota.api import AgentConfig, Instance, Workspace
from rota.api.egress import Policy
from rota.api.instance import Handler
from rota.control.agents import agent_files, agent_program
from rota.control.values import secret
from rota.control.workers import reset_policy
from rota.engine.objects import Objects, get
from rota.runtime.interface import BoxSpec, Order, Runtime
from rota.runtime.runner.messages import BoxPlace, Configure, ResetPolicy, WorkspaceSource
from rota.runtime.runner.messages import Handler as Hosted
from rota.runtime.workspace import mirrors


class Preparation(msgspec.Struct, frozen=True):
    """The configuration of a runner, without its box. It has secrets."""

    order: Order
    reset: ResetPolicy
    workspace: WorkspaceSource | None
    home_files: dict[str, str]
    handler: Handler | None = None
    program: str = ""

    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


def preparation(objects: Objects, obj: Instance, order: Order, policy: Policy) -> Preparation:
    """Build the configuration of an instance's runner from the present objects."""
    return Preparation(
        order=msgspec.structs.replace(order, number=0, lease_seconds=None),
        reset=reset_policy(objects, obj),
        workspace=_source(objects, obj, policy),
        home_files=_home_files(objects, obj),
        handler=obj.spec.handler,
        program=agent_program(obj.spec.worker) if obj.spec.worker is not None else "",
    )


async def configuration(runtime: Runtime, prepared: Preparation, digest: str) -> Configure:
    box = await runtime.box(prepared.order, digest)
    place = BoxPlace(box.argv, box.env, box.folder, box.inside, box.record, box.uid)
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


def _hosted(handler: Handler, box: BoxSpec) -> Hosted:
    return Hosted(
        handler.function,
        handler.runtime,
        handler.concurrency,
        handler.entrypoint or "",
        tuple(handler.command),
        box.code,
        box.packages,
    )


def _source(objects: Objects, obj: Instance, policy: Policy) -> WorkspaceSource | None:
    ref = obj.spec.workspace_ref
    namespace = obj.metadata.namespace
    workspace = get(objects, Workspace, ref.name, namespace) if ref is not None else None
    if workspace is None:
        return None
    signed = workspace.spec.secret_ref
    scope = mirrors.scope(namespace, signed.name if signed is not None else "")
    values = secret(objects, namespace, signed.name) if signed is not None else None
    texts = {key: each.decode(errors="replace") for key, each in values.items()} if values is not None else None
    return WorkspaceSource(workspace.spec, scope, texts, policy.network, tuple(map(str, policy.targets)))


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
