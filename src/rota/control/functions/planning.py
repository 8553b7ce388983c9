"""Plan the instances of a function: objects in, actions out.

A new version gets one instance beside the existing ones, and as many as calls need once it is loaded. Instances of the
version before are deleted one by one as new ones are ready. So there may be twice as many for a while, and a version
that cannot be loaded takes nothing away: the version before keeps as many instances as calls need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rota.api import Function, Instance, ObjectMeta, OwnerReference
from rota.api.instance import Container, FunctionTemplate, Handler, InstanceSpec
from rota.api.worker import WorkerRole
from rota.control.instances import Create, Delete, template_hash
from rota.control.instances.names import ORDINAL_LABEL, OWNER_LABEL, TEMPLATE_LABEL, controller_of, stem
from rota.control.instances.template import restart_stamps

CONTAINER = "worker"
GRACE_SECONDS = 5
"""Grace beyond the timeout of a call, so that a deleted worker can end its calls first."""


class Version(NamedTuple):
    """The template of a function's instances, and its hash."""

    template: FunctionTemplate
    hash: str


def version_of(function: Function, code: str | None, packages: str) -> Version:
    """Return the version of a function. `code`: its digest; None: it is in a workspace. `packages`: their folder."""
    spec = function.spec
    handler = Handler(
        function=function.metadata.name,
        runtime=spec.runtime,
        entrypoint=spec.entrypoint,
        command=spec.command,
        code=code,
        packages=packages or None,
        concurrency=spec.concurrency,
    )
    template = FunctionTemplate(
        containers=[Container(name=CONTAINER, env=spec.env, resources=spec.resources)],
        worker=WorkerRole(),
        workspace_ref=spec.source.workspace_ref,
        handler=handler,
        isolation=spec.isolation,
        network=spec.network,
        egress=spec.egress,
        termination_grace_period_seconds=spec.timeout_seconds + GRACE_SECONDS,
    )
    return Version(template, template_hash(template, annotations=restart_stamps(function.metadata.annotations)))


def own(function: Function, instances: Sequence[Instance]) -> list[Instance]:
    """Return the instances that a function controls."""
    uid = function.metadata.uid
    return [one for one in instances if (owner := controller_of(one)) is not None and owner.uid == uid]


def plan(
    function: Function,
    version: Version,
    instances: Sequence[Instance],
    wanted: int,
    *,
    ready: Collection[str],
    load: Mapping[str, int],
    newest: int | None = None,
    before: Version | None = None,
    finalizers: Sequence[str] = (),
) -> list[Create | Delete]:
    """Plan the actions for the instances of a function.

    wanted  the number that calls need
    ready   uids of ready instances
    load    calls of each instance, by uid
    newest  the number of this version, if it differs from `wanted`
    before  the version that answers calls, and gets the wanted instances, while none of the newest is ready
    """
    newest = wanted if newest is None else newest
    staying = [one for one in instances if one.metadata.deletion_timestamp is None]
    current = [one for one in staying if one.spec.template_hash == version.hash]
    outdated = [one for one in staying if one.spec.template_hash != version.hash]
    # Those with the fewest calls go first, and of these the newest.
    in_order = sorted(current, key=lambda one: (_rank(one, ready, load), -one.spec.ordinal))
    actions: list[Create | Delete] = [
        Delete(one.metadata.name, one.metadata.uid, "ScaledDown") for one in in_order[: max(0, len(current) - newest)]
    ]
    taken = {one.spec.ordinal for one in instances}
    free = (ordinal for ordinal in range(len(instances) + wanted + newest) if ordinal not in taken)
    ready_count = sum(one.metadata.uid in ready for one in current)
    missing = [version] * (newest - len(current))
    if before is not None and not ready_count:
        missing += [before] * (wanted - len(outdated))
    actions += [Create(_new(function, each, ordinal, finalizers)) for each, ordinal in zip(missing, free, strict=False)]
    still_needed = max(0, wanted - ready_count)
    outdated.sort(key=lambda one: (_rank(one, ready, load), -one.spec.ordinal))
    going = outdated[: max(0, len(outdated) - still_needed)]
    actions += [Delete(one.metadata.name, one.metadata.uid, "Outdated") for one in going]
    return actions


def _rank(instance: Instance, ready: Collection[str], load: Mapping[str, int]) -> tuple[bool, int]:
    return instance.metadata.uid in ready, load.get(instance.metadata.uid, 0)


def _new(function: Function, version: Version, ordinal: int, finalizers: Sequence[str]) -> Instance:
    meta = function.metadata
    beginning = stem(Function.api.name, meta.name)
    owner = OwnerReference(
        api_version=Function.api.api_version,
        kind=Function.api.name,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    labels = {OWNER_LABEL: beginning, ORDINAL_LABEL: str(ordinal), TEMPLATE_LABEL: version.hash}
    return Instance(
        metadata=ObjectMeta(
            name=f"{beginning}-{ordinal}",
            namespace=meta.namespace,
            labels=labels,
            owner_references=[owner],
            finalizers=list(finalizers),
        ),
        spec=InstanceSpec(**msgspec.structs.asdict(version.template), template_hash=version.hash, ordinal=ordinal),
    )
