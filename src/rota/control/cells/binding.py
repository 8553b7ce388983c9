"""Binding, at the hub: a deployment for another cell has a copy in that cell's namespace, and so has what it refers to.

The cell sees that namespace and nothing else. A deployment that is deleted stays until the cell has said that nothing
of it is left there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from rota.api import (
    ConfigMap,
    InstanceType,
    Namespace,
    Object,
    ObjectMeta,
    OwnerReference,
    Secret,
    WorkloadDeployment,
    Workspace,
)
from rota.api.references import references
from rota.client import Key, to_dict
from rota.control.cells.grants import grants
from rota.control.cells.names import (
    BOUNDED,
    CELL_FINALIZER,
    GRANTED,
    Source,
    bound_name,
    cell_namespace,
    copy_name,
    is_bound,
    source_of,
)
from rota.control.quotas.asking import ask
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Context, Outcome
from rota.engine.objects import Objects, get
from rota.registry.privileges import inherited

TRAVELLING: tuple[type[Object], ...] = (Secret, ConfigMap, Workspace)
"""Kinds of namespaced objects that travel with a deployment that refers to them."""


class Copy(NamedTuple):
    """Something that a deployment refers to, and the name of its copy."""

    kind: type[Object]
    name: str
    of: Object


def of_source(bound: WorkloadDeployment) -> Iterable[Key]:
    """Return which deployment a bound one is a copy of."""
    source = source_of(bound) if is_bound(bound) else None
    return () if source is None else (Key(source.namespace, source.name),)


def bound_copy(deployment: WorkloadDeployment, granted: Mapping[str, str]) -> WorkloadDeployment:
    """Return the copy of a deployment that is for its cell. `granted`: by its quota, as an annotation."""
    meta = deployment.metadata
    source = Source(meta.namespace, meta.name, meta.uid, meta.generation)
    return WorkloadDeployment(
        metadata=ObjectMeta(
            name=bound_name(deployment),
            namespace=cell_namespace(deployment.spec.cell_name),
            finalizers=[CELL_FINALIZER],
            annotations={**source.annotations(), **inherited(meta.annotations), **granted},
        ),
        spec=deployment.spec,
    )


def copies(objects: Objects, deployment: WorkloadDeployment) -> list[Copy]:
    """Return what a deployment refers to and that is there, with the names that the copies have."""
    found: dict[tuple[str, str], Copy] = {}
    by_name = {kind.api.name: kind for kind in TRAVELLING}
    pending = [(deployment.api, to_dict(deployment))]
    while pending:
        for reference in references(*pending.pop()):
            kind = by_name.get(reference.kind.name)
            if kind is None or (reference.kind.name, reference.name) in found:
                continue
            obj = objects.find(reference.kind, deployment.metadata.namespace, reference.name)
            if obj is not None:
                name = copy_name(bound_name(deployment), reference.kind.name, reference.name)
                found[reference.kind.name, reference.name] = Copy(kind, name, obj)
                # A Workspace has its Secret.
                pending.append((reference.kind, to_dict(obj)))
    return [*found.values()]


def copied(copy: Copy, bound: WorkloadDeployment) -> Object:
    """Return a copy of something, owned by the bound deployment that it is for."""
    meta, owner = copy.of.metadata, bound.metadata
    source = Source(meta.namespace, meta.name, meta.uid, int(meta.resource_version or 0))
    reference = OwnerReference(api_version=bound.api.api_version, kind=bound.api.name, name=owner.name, uid=owner.uid)
    metadata = ObjectMeta(
        name=copy.name,
        namespace=owner.namespace,
        annotations={**source.annotations(), **inherited(meta.annotations)},
        owner_references=[reference],
    )
    changes: dict[str, Any] = {"metadata": metadata}
    if copy.kind.api.has_status:
        changes["status"] = None
    return msgspec.structs.replace(copy.of, **changes)


class Binding:
    """Keeps what is bound to a cell as the hub wants it."""

    reads: tuple[type[Object], ...] = (*TRAVELLING, InstanceType, Namespace)

    async def look(self, context: Context, obj: WorkloadDeployment) -> Outcome:
        """Bind a deployment to its cell, or have the cell give it up."""
        meta = obj.metadata
        bound = get(context.objects, WorkloadDeployment, bound_name(obj), cell_namespace(obj.spec.cell_name))
        if meta.deletion_timestamp is not None:
            await self._unbind(context, obj, bound)
            return DONE
        if CELL_FINALIZER not in meta.finalizers:
            # First: it must not go while the cell has it.
            finalizers = [*meta.finalizers, CELL_FINALIZER]
            metadata = msgspec.structs.replace(meta, finalizers=finalizers)
            obj = await context.client.update(msgspec.structs.replace(obj, metadata=metadata))
        bound = await self._bind(context, obj, bound)
        if bound is not None:
            await self._copy(context, obj, bound)
        return DONE

    async def _unbind(self, context: Context, obj: WorkloadDeployment, bound: WorkloadDeployment | None) -> None:
        source = source_of(bound) if bound is not None else None
        if bound is not None and source is not None and source.uid == obj.metadata.uid:
            await _delete(context, bound)
            return
        if CELL_FINALIZER in obj.metadata.finalizers:
            finalizers = [one for one in obj.metadata.finalizers if one != CELL_FINALIZER]
            metadata = msgspec.structs.replace(obj.metadata, finalizers=finalizers)
            await context.client.update(msgspec.structs.replace(obj, metadata=metadata))

    async def _bind(
        self, context: Context, obj: WorkloadDeployment, before: WorkloadDeployment | None
    ) -> WorkloadDeployment | None:
        """Return the bound deployment as it is now; None: one that went before is still going."""
        await ask(context, obj, obj.spec.template.spec, obj.spec.replicas)
        wanted = bound_copy(obj, grants(context.objects, obj))
        if before is None:
            await self._make_namespace(context, wanted.metadata.namespace)
            return await context.client.create(wanted)
        source = source_of(before)
        if before.metadata.deletion_timestamp is not None:
            return None
        if source is None or source.uid != obj.metadata.uid:
            await _delete(context, before)
            return None
        annotations = renewed(before, wanted)
        if before.spec == wanted.spec and before.metadata.annotations == annotations:
            return before
        metadata = msgspec.structs.replace(before.metadata, annotations=annotations)
        return await context.client.update(msgspec.structs.replace(before, metadata=metadata, spec=wanted.spec))

    async def _copy(self, context: Context, obj: WorkloadDeployment, bound: WorkloadDeployment) -> None:
        """Have copies of what it refers to, as that is now, and none of what it no longer refers to."""
        wanted = {(one.kind.api.name, one.name): one for one in copies(context.objects, obj)}
        for (_, name), one in wanted.items():
            there: Any = context.objects.find(one.kind.api, bound.metadata.namespace, name)
            copy = copied(one, bound)
            if there is None:
                await unless_overtaken(context.client.create(copy))
            elif _differs(there, copy):
                kept = {"uid": there.metadata.uid, "resource_version": there.metadata.resource_version}
                await context.client.update(
                    msgspec.structs.replace(copy, metadata=msgspec.structs.replace(copy.metadata, **kept))
                )
        for kind in TRAVELLING:
            for old in context.objects.owned(kind.api, bound.metadata.uid):
                if (kind.api.name, old.metadata.name) not in wanted:
                    await _delete(context, old)

    async def _make_namespace(self, context: Context, name: str) -> None:
        if not context.objects.has(Namespace.api, "", name):
            await unless_overtaken(context.client.create(Namespace(metadata=ObjectMeta(name=name))))


def renewed(before: Object, wanted: Object) -> dict[str, str]:
    """Return the annotations of a copy as they are to be. A mark that it has stays; what was granted does not."""
    kept = {name: value for name, value in before.metadata.annotations.items() if name not in (GRANTED, BOUNDED)}
    return {**kept, **wanted.metadata.annotations}


def _differs(there: Object, wanted: Object) -> bool:
    return _substance(there) != _substance(wanted)


def _substance(obj: Object) -> Mapping[str, Any]:
    body = to_dict(obj)
    body.pop("status", None)
    meta = body.pop("metadata")
    return {**body, "annotations": meta.get("annotations"), "owners": meta.get("ownerReferences")}


async def _delete(context: Context, obj: Object) -> None:
    if obj.metadata.deletion_timestamp is None:
        kind: Any = type(obj)
        meta = obj.metadata
        await unless_overtaken(context.client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid))
