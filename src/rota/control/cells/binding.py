"""Binding, at the hub: a deployment for another cell and its references have copies in that cell's namespace.

An object that several deployments refer to has one copy in each cell's namespace. The cell can read that namespace and
no other. A deleted deployment stays until the cell has reported that nothing of it is left there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from rota.api import (
    ConfigMap,
    InstanceType,
    Kind,
    Namespace,
    Object,
    ObjectMeta,
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
from rota.control.writing import find_fresh, unless_overtaken
from rota.engine import DONE, Context, Outcome
from rota.engine.objects import Objects, get
from rota.registry.privileges import inherited

TRAVELLING: tuple[type[Object], ...] = (Secret, ConfigMap, Workspace)
"""Kinds of namespaced objects that are copied with a deployment that refers to them."""


_BY_NAME = {kind.api.name: kind for kind in TRAVELLING}

Named = tuple[str, str]
"""A kind and a name."""


def of_source(bound: WorkloadDeployment) -> Iterable[Key]:
    """Return the key of the deployment that a bound one is a copy of."""
    source = source_of(bound) if is_bound(bound) else None
    return () if source is None else (Key(source.namespace, source.name),)


def bound_copy(deployment: WorkloadDeployment, granted: Mapping[str, str]) -> WorkloadDeployment:
    """Return the copy of a deployment for its cell. `granted`: annotations with the grants of its quota."""
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


def referred(deployment: WorkloadDeployment, find: Callable[[Kind, str], Object | None]) -> dict[Named, Object]:
    """Return the objects that are copied with a deployment: its references, direct or not, that `find` finds."""
    found: dict[Named, Object] = {}
    pending: list[tuple[Kind, dict[str, Any]]] = [(deployment.api, to_dict(deployment))]
    while pending:
        for reference in references(*pending.pop()):
            named = reference.kind.name, reference.name
            if named[0] not in _BY_NAME or named in found:
                continue
            obj = find(reference.kind, reference.name)
            if obj is not None:
                found[named] = obj
                if isinstance(obj, Workspace):
                    # It may refer to a Secret. The other kinds refer to nothing, and may be long.
                    pending.append((reference.kind, to_dict(obj)))
    return found


def copied(of: Object, namespace: str) -> Object:
    """Return the copy of an object for the cell with this namespace."""
    meta = of.metadata
    source = Source(meta.namespace, meta.name, meta.uid, int(meta.resource_version or 0))
    changes: dict[str, Any] = {
        "metadata": ObjectMeta(
            name=copy_name(meta.namespace, of.api.name, meta.name),
            namespace=namespace,
            annotations={**source.annotations(), **inherited(meta.annotations)},
        )
    }
    if of.api.has_status:
        changes["status"] = None
    return msgspec.structs.replace(of, **changes)


class Binding:
    """Keeps the copies in the namespaces of cells."""

    reads: tuple[type[Object], ...] = (*TRAVELLING, InstanceType, Namespace)

    def __init__(self) -> None:
        self._needs: dict[Key, frozenset[Named]] = {}
        """The references of each deployment at its last reconciliation."""
        self._tidied: set[str] = set()
        """The cells whose unused copies from before this process have been deleted."""

    async def sync(self, context: Context, obj: WorkloadDeployment) -> Outcome:
        """Bind a deployment to its cell, or unbind a deleted one."""
        meta = obj.metadata
        await self._tidy(context, obj.spec.cell_name)
        bound = get(context.objects, WorkloadDeployment, bound_name(obj), cell_namespace(obj.spec.cell_name))
        if meta.deletion_timestamp is not None:
            await self._unbind(context, obj, bound)
            await self._drop(context, obj, frozenset())
            return DONE
        if CELL_FINALIZER not in meta.finalizers:
            # Before the copy: the deployment must not vanish while the cell runs it.
            finalizers = [*meta.finalizers, CELL_FINALIZER]
            metadata = msgspec.structs.replace(meta, finalizers=finalizers)
            obj = await context.client.update(msgspec.structs.replace(obj, metadata=metadata))
        bound = await self._bind(context, obj, bound)
        if bound is not None:
            await self._copy(context, obj, bound)
        return DONE

    async def _unbind(self, context: Context, obj: WorkloadDeployment, bound: WorkloadDeployment | None) -> None:
        if bound is None:
            # A former leader may have just created it. Without its source nobody would ever delete it.
            bound = await find_fresh(context, WorkloadDeployment, bound_name(obj), cell_namespace(obj.spec.cell_name))
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
        """Create or update the bound deployment, and return it; None: an earlier one is still being deleted."""
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
        """Update the copies of a deployment's references, and delete those that nothing in the cell refers to."""
        wanted = _needed(context.objects, obj)
        for of in wanted.values():
            # Only sources are compared: contents may be long, and have many users.
            copy = copied(of, bound.metadata.namespace)
            there: Any = context.objects.find(copy.api, copy.metadata.namespace, copy.metadata.name)
            if there is not None and is_of_another(there, of.metadata.uid):
                await _delete(context, there)
                there = None
            if there is None:
                await unless_overtaken(context.client.create(copy))
            elif source_of(there) != source_of(copy):
                kept = {"uid": there.metadata.uid, "resource_version": there.metadata.resource_version}
                await context.client.update(
                    msgspec.structs.replace(copy, metadata=msgspec.structs.replace(copy.metadata, **kept))
                )
        await self._drop(context, obj, frozenset(wanted))

    async def _drop(self, context: Context, obj: WorkloadDeployment, needed: frozenset[Named]) -> None:
        """Delete copies that no deployment of this namespace and cell needs any more."""
        objects, meta = context.objects, obj.metadata
        left = self._needs.pop(Key(meta.namespace, meta.name), frozenset()) - needed
        if needed:
            self._needs[Key(meta.namespace, meta.name)] = needed
        if not left:
            return
        others = (_needed(objects, one) for one in _placed(objects, obj.spec.cell_name, meta.namespace))
        for kind, name in left.difference(*others):
            copy = copy_name(meta.namespace, kind, name)
            there = objects.find(_BY_NAME[kind].api, cell_namespace(obj.spec.cell_name), copy)
            if there is not None:
                await _delete(context, there)

    async def _tidy(self, context: Context, cell: str) -> None:
        """Delete all unused copies of a cell, once: `_needs` does not have the references from before this process."""
        if cell in self._tidied:
            return
        self._tidied.add(cell)
        namespace = cell_namespace(cell)
        needed = {
            (kind, copy_name(one.metadata.namespace, kind, name))
            for one in _placed(context.objects, cell)
            for kind, name in _needed(context.objects, one)
        }
        for type_ in TRAVELLING:
            for copy in [*context.objects.list(type_.api, namespace)]:
                if source_of(copy) is not None and (type_.api.name, copy.metadata.name) not in needed:
                    await _delete(context, copy)

    async def _make_namespace(self, context: Context, name: str) -> None:
        if not context.objects.has(Namespace.api, "", name):
            await unless_overtaken(context.client.create(Namespace(metadata=ObjectMeta(name=name))))


def _needed(objects: Objects, deployment: WorkloadDeployment) -> dict[Named, Object]:
    return referred(deployment, lambda kind, name: objects.find(kind, deployment.metadata.namespace, name))


def _placed(objects: Objects, cell: str, namespace: str = "") -> Iterable[WorkloadDeployment]:
    """Yield the deployments placed on a cell, of one namespace or of all."""
    for one in cast("Iterable[WorkloadDeployment]", objects.list(WorkloadDeployment.api, namespace)):
        if one.spec.cell_name == cell and one.metadata.deletion_timestamp is None and not is_bound(one):
            yield one


def is_of_another(copy: Object, uid: str) -> bool:
    """Report whether a copy has another source, and so must be recreated: an update cannot change immutable fields."""
    source = source_of(copy)
    return source is None or source.uid != uid


def renewed(before: Object, wanted: Object) -> dict[str, str]:
    """Return the annotations of a copy after an update: existing ones stay, except for grants."""
    kept = {name: value for name, value in before.metadata.annotations.items() if name not in (GRANTED, BOUNDED)}
    return {**kept, **wanted.metadata.annotations}


async def _delete(context: Context, obj: Object) -> None:
    if obj.metadata.deletion_timestamp is None:
        meta = obj.metadata
        await unless_overtaken(context.client.delete(type(obj), meta.name, namespace=meta.namespace, uid=meta.uid))
