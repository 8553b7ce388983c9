"""The mirror, in a cell: it copies the deployments that are bound to the cell, under their names at the hub.

- *Deleted means deleted.* A deployment is deleted here only after the hub's copy was seen in deletion. Nothing is
  deleted because it is missing from a list.
- *No leftovers.* Secrets and other references are deleted with the last deployment that needs them.
- *Local objects stay.* A deployment of the same name that was created in the cell is not taken over.
- *No step back.* A hub that was restored to an earlier state changes nothing that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from rota.api import InstanceType, Kind, Namespace, Object, ObjectMeta, WorkloadDeployment
from rota.client import Key, Update
from rota.control.cells.binding import TRAVELLING, Named, is_of_another, referred, renewed
from rota.control.cells.names import (
    ADOPTED,
    BOUND_NAME,
    BOUND_NAMESPACE,
    BOUNDED,
    GENERATION,
    GRANTED,
    HUB_IS_OLDER,
    REFUSED_GENERATION,
    Source,
    copy_name,
    source_of,
)
from rota.control.writing import find_fresh, unless_overtaken
from rota.engine import DONE, Context, Done, Outcome, Reconciler, Watch
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.registry.options import Propagation
from rota.registry.privileges import inherited

RELEASE_SECONDS = 5.0
"""Pause before the release of a deployment is reported again, while the hub still has it."""


class Notifier(Protocol):
    """Reports the mirror's results to the hub."""

    def release(self, source: Source) -> None:
        """Report that nothing of a deployment is left here."""
        ...

    def refuse(self, source: Source, reason: str, message: str) -> None:
        """Report that a deployment cannot be run here. An empty reason withdraws that."""
        ...


class Mirror(Reconciler):
    """Reconciles the deployments that are bound to this cell. It reads the hub's objects, and writes to this cell."""

    name = "mirror"
    reads = (InstanceType,)

    def __init__(self, cell: str, here: Objects, notifier: Notifier, *, fenced: bool = True) -> None:
        """`fenced`: instances without a right are ended here, so that deployments that move can be taken."""
        self._cell = cell
        self._here = here
        self._notifier = notifier
        self._fenced = fenced
        self._hub: Objects | None = None
        self.watches = (
            Watch(WorkloadDeployment, _key),
            *(Watch(kind, self._users) for kind in TRAVELLING),
            Watch(InstanceType, self._everybody),
        )
        self._is_tidy = False

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        def changed(kind: Kind, update: Update[Any]) -> None:
            # The hub waits for the report that a deleted deployment is gone.
            old = update.old
            if update.new is None and old is not None and BOUND_NAME in old.metadata.annotations:
                wake(Key(old.metadata.annotations.get(BOUND_NAMESPACE, ""), old.metadata.annotations[BOUND_NAME]))

        return self._here.listen((WorkloadDeployment.api,), changed)

    def _everybody(self, type_: InstanceType) -> Iterable[Key]:
        if self._hub is None:
            return ()
        return [Key(one.metadata.namespace, one.metadata.name) for one in self._hub.list(WorkloadDeployment.api)]

    def _users(self, copy: Object) -> Iterable[Key]:
        """Yield the deployments that may refer to a copy: all of its namespace at the hub."""
        about = source_of(copy)
        for one in self._hub.list(WorkloadDeployment.api) if self._hub is not None and about is not None else ():
            source = source_of(one)
            if about is not None and source is not None and source.namespace == about.namespace:
                yield Key(one.metadata.namespace, one.metadata.name)

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        self._hub = context.objects
        if not self._is_tidy:
            await self._tidy(context)
            self._is_tidy = True
        bound = get(context.objects, WorkloadDeployment, key.name, key.namespace)
        source = source_of(bound) if bound is not None else None
        if bound is None or source is None:
            return DONE
        here = get(self._here, WorkloadDeployment, source.name, source.namespace)
        if bound.metadata.deletion_timestamp is not None:
            return await self._give_up(context, source, here)
        if bound.spec.on_cell_lost == "Move" and not self._fenced:
            await self._refuse_to_move(context, source, here)
        elif here is None:
            await self._make(context, bound, source)
        elif here.metadata.deletion_timestamp is None:
            await self._change(context, bound, source, here)
        return DONE

    async def _give_up(self, context: Context, source: Source, here: WorkloadDeployment | None) -> Outcome:
        if here is None:
            # A former leader may have just created it, and the hub relies on the report that nothing is left.
            here = await find_fresh(context, WorkloadDeployment, source.name, source.namespace)
        there = source_of(here) if here is not None else None
        if here is None or there is None or there.uid != source.uid:
            await self._tidy(context, source.namespace)
            self._notifier.release(source)
            # Repeated: the hub ignores a release that arrives before it has seen the deletion itself.
            return Done(again_after=RELEASE_SECONDS)
        if here.metadata.deletion_timestamp is None:
            await _delete(context, here)
        return DONE

    async def _refuse_to_move(self, context: Context, source: Source, here: WorkloadDeployment | None) -> None:
        """Refuse a deployment that moves when its cell is lost: without a fence, it would go on here after the move."""
        known = source_of(here) if here is not None else None
        if here is not None and known is not None and here.metadata.deletion_timestamp is None:
            await _delete(context, here)
        self._notifier.refuse(
            source,
            "MoveNotHonoured",
            "this cell is a cluster, where nothing ends instances when the hub is out of reach: use onCellLost: Keep",
        )

    async def _make(self, context: Context, bound: WorkloadDeployment, source: Source) -> None:
        await self._prepare(context, bound, source)
        try:
            await context.client.create(local_copy(bound, source))
        except ApiError as error:
            if not error.is_overtaken:
                raise
        self._notifier.refuse(source, "", "")

    async def _change(
        self, context: Context, bound: WorkloadDeployment, source: Source, here: WorkloadDeployment
    ) -> None:
        known = source_of(here)
        if known is None:
            self._notifier.refuse(
                source,
                "NameTaken",
                f'deployment "{source.namespace}/{source.name}" exists in the cell, and is not the hub\'s',
            )
            return
        # One with another uid was recreated, as after a restore of the hub: it takes over what runs here.
        if _is_older(source, known) and here.spec != bound.spec and not _is_adopted(bound, here):
            refused = here.metadata.annotations.get(REFUSED_GENERATION)
            if refused is None or not GENERATION.fullmatch(refused) or source.generation <= int(refused):
                await self._refuse_older(context, source, known, here)
                return
        await self._prepare(context, bound, source)
        older = self._older_copy(context, bound, here)
        problem = ("", "") if older is None else self._older(f"an earlier {older}", "a later one")
        self._notifier.refuse(source, *problem)
        wanted = local_copy(bound, source)
        annotations = renewed(here, wanted)
        annotations.pop(REFUSED_GENERATION, None)
        if here.spec == wanted.spec and here.metadata.annotations == annotations:
            return
        metadata = msgspec.structs.replace(here.metadata, annotations=annotations)
        await context.client.update(msgspec.structs.replace(here, metadata=metadata, spec=wanted.spec))
        if here.spec.template != wanted.spec.template:
            await self._tidy(context, source.namespace)

    async def _tidy(self, context: Context, namespace: str = "") -> None:
        """Delete the mirrored references of deployments that are gone. Objects that were created here stay."""
        needed: dict[str, set[Named]] = {}
        here = cast("list[WorkloadDeployment]", [*self._here.list(WorkloadDeployment.api, namespace)])
        # Deployments that are about to be created here need them, too.
        coming = cast("list[WorkloadDeployment]", [*context.objects.list(WorkloadDeployment.api)])
        for one in (*here, *(bound for bound in coming if bound.metadata.deletion_timestamp is None)):
            source = source_of(one)
            there = one.metadata.namespace if source is None else source.namespace
            needed.setdefault(there, set()).update(referred(one, partial(_found, self._here, there)))
        for kind in TRAVELLING:
            for copy in [*self._here.list(kind.api, namespace)]:
                meta, source = copy.metadata, source_of(copy)
                is_copy = source is not None and (source.namespace, source.name) == (meta.namespace, meta.name)
                if is_copy and (kind.api.name, meta.name) not in needed.get(meta.namespace, ()):
                    await _delete(context, copy)

    def _older(self, hub: str, here: str) -> tuple[str, str]:
        return HUB_IS_OLDER, (
            f"the hub has {hub}, and {here} is in use here: was it restored from a backup? What runs goes on."
            f" Change it at the hub; or `rota cell adopt {self._cell}` at the hub has the cell take what the hub has"
        )

    def _older_copy(self, context: Context, bound: WorkloadDeployment, here: WorkloadDeployment) -> str | None:
        """Return the kind and name of a reference that is older at the hub than here; None: there is none."""
        if _is_adopted(bound, here):
            return None
        deployed = source_of(bound)
        for copy in _copies(context.objects, bound, deployed) if deployed is not None else ():
            source = source_of(copy)
            there = self._here.find(copy.api, source.namespace, source.name) if source is not None else None
            known = source_of(there) if there is not None else None
            if source is not None and known is not None and _is_older(source, known):
                return f"{copy.api.name} {source.name}"
        return None

    async def _refuse_older(self, context: Context, source: Source, known: Source, here: WorkloadDeployment) -> None:
        """Keep what runs, until a person changes the deployment at the restored hub."""
        self._notifier.refuse(source, *self._older(f"generation {source.generation}", f"generation {known.generation}"))
        if here.metadata.annotations.get(REFUSED_GENERATION) != str(source.generation):
            annotations = {**here.metadata.annotations, REFUSED_GENERATION: str(source.generation)}
            metadata = msgspec.structs.replace(here.metadata, annotations=annotations)
            await context.client.update(msgspec.structs.replace(here, metadata=metadata))

    async def _prepare(self, context: Context, bound: WorkloadDeployment, source: Source) -> None:
        """Create the namespace and the references of a deployment."""
        if not self._here.has(Namespace.api, "", source.namespace):
            await unless_overtaken(context.client.create(Namespace(metadata=ObjectMeta(name=source.namespace))))
        here = get(self._here, WorkloadDeployment, source.name, source.namespace)
        is_adopted = here is not None and _is_adopted(bound, here)
        for copy in _copies(context.objects, bound, source):
            await self._travel(context, copy, is_adopted=is_adopted)
        type_ = bound.spec.template.spec.instance_type
        size = get(context.objects, InstanceType, type_) if type_ else None
        if size is not None:
            await self._travel_size(context, size)

    async def _travel(self, context: Context, copy: Any, *, is_adopted: bool) -> None:
        """Create or update a reference here, unless an object of its name was created in the cell."""
        source = source_of(copy)
        if source is None:
            return
        there: Any = self._here.find(copy.api, source.namespace, source.name)
        known = source_of(there) if there is not None else None
        if there is not None:
            is_same = known is not None and (known.uid, known.generation) == (source.uid, source.generation)
            if known is None or is_same or (_is_older(source, known) and not is_adopted):
                return
        metadata = ObjectMeta(
            name=source.name,
            namespace=source.namespace,
            annotations={**source.annotations(), **inherited(copy.metadata.annotations)},
        )
        changes: dict[str, Any] = {"metadata": metadata}
        if copy.api.has_status:
            changes["status"] = None
        wanted = msgspec.structs.replace(copy, **changes)
        if there is not None and is_of_another(there, source.uid):
            await _delete(context, there)
            there = None
        if there is None:
            await unless_overtaken(context.client.create(wanted))
            return
        kept = {"uid": there.metadata.uid, "resource_version": there.metadata.resource_version}
        metadata = msgspec.structs.replace(metadata, **kept)
        await context.client.update(msgspec.structs.replace(wanted, metadata=metadata))

    async def _travel_size(self, context: Context, size: InstanceType) -> None:
        there = get(self._here, InstanceType, size.metadata.name)
        if there is None:
            made = InstanceType(metadata=ObjectMeta(name=size.metadata.name), spec=size.spec)
            await unless_overtaken(context.client.create(made))
        elif there.spec != size.spec:
            await context.client.update(msgspec.structs.replace(there, spec=size.spec))


def _copies(hub: Objects, bound: WorkloadDeployment, source: Source) -> Iterable[Object]:
    """Return the hub's copies of a bound deployment's references."""
    where = bound.metadata.namespace
    find = lambda kind, name: hub.find(kind, where, copy_name(source.namespace, kind.name, name))  # noqa: E731
    return referred(bound, find).values()


def _is_older(source: Source, known: Source) -> bool:
    """Report whether the hub has an earlier generation of an object than this cell."""
    return source.uid == known.uid and source.generation < known.generation


def _is_adopted(bound: WorkloadDeployment, here: WorkloadDeployment) -> bool:
    """Report whether a person has confirmed the hub's state since the cell's last update from it."""
    return bound.metadata.annotations.get(ADOPTED, "") > here.metadata.annotations.get(ADOPTED, "")


def local_copy(bound: WorkloadDeployment, source: Source) -> WorkloadDeployment:
    """Return the cell's deployment for one that is bound to it."""
    meta = bound.metadata
    names = {BOUND_NAME: meta.name, BOUND_NAMESPACE: meta.namespace}
    names |= {name: meta.annotations[name] for name in (GRANTED, BOUNDED, ADOPTED) if name in meta.annotations}
    return WorkloadDeployment(
        metadata=ObjectMeta(
            name=source.name,
            namespace=source.namespace,
            annotations={**source.annotations(), **names, **inherited(meta.annotations)},
        ),
        spec=bound.spec,
    )


def _key(bound: WorkloadDeployment) -> tuple[Key]:
    return (Key(bound.metadata.namespace, bound.metadata.name),)


def _found(objects: Objects, namespace: str, kind: Kind, name: str) -> Object | None:
    return objects.find(kind, namespace, name)


async def _delete(context: Context, obj: Object) -> None:
    meta = obj.metadata
    # In the foreground, so that the instances of a deployment are gone before it is.
    propagation: Propagation = "Foreground" if isinstance(obj, WorkloadDeployment) else "Background"
    await unless_overtaken(
        context.client.delete(type(obj), meta.name, namespace=meta.namespace, uid=meta.uid, propagation=propagation)
    )
