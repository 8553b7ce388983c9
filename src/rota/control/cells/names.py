"""Names and annotations that connect objects at the hub with their copies in its cells."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from rota.api import Namespace, Object, WorkloadDeployment
from rota.control.instances.names import tailed
from rota.engine.objects import Objects, get
from rota.registry.system import CELL_NAMESPACE_PREFIX, SYSTEM_NAMESPACE

CELL_FINALIZER = "rota.dev/cell"
"""Finalizer of a deployment, removed when nothing of it is left in its cell."""
SOURCE_NAMESPACE = "rota.dev/source-namespace"
SOURCE_NAME = "rota.dev/source-name"
SOURCE_UID = "rota.dev/source-uid"
SOURCE_GENERATION = "rota.dev/source-generation"
"""Annotations of copies, at the hub and in the cell: their source, and its generation at the last copy."""
BOUND_NAMESPACE = "rota.dev/bound-namespace"
BOUND_NAME = "rota.dev/bound-name"
"""Annotations of a deployment in a cell: namespace and name of the bound deployment at the hub."""
GRANTED = "rota.dev/granted"
"""Annotation of a bound deployment and of its mirror: the number of instances of each size that the hub's quota has
granted. Without it, the hub has no quota."""
BOUNDED = "rota.dev/bounded"
"""Annotation beside GRANTED: the resources that the hub's quota bounds, such as `cpu,memory`."""
ADOPTED = "rota.dev/adopted"
"""Annotation of a bound deployment and of its mirror: the time at which a person last confirmed the state of a hub that
was restored from a backup."""
UID_LENGTH_MAX = 64
GENERATION = re.compile("[0-9]{1,18}")
MOVING_SINCE = "rota.dev/moving-since"
"""Annotation of a deployment at the hub: the generation that last changed `onCellLost` or `leaseSeconds`.

Without it, the first generation did. The lease applies in the cell only once the cell has that generation.
"""
SYNCED = "Synced"
"""The condition Synced, False while the cell does not run a deployment in the form that the hub has."""
HUB_IS_OLDER = "HubIsOlder"
REFUSED_GENERATION = "rota.dev/refused-generation"
"""Annotation of a deployment in a cell: the generation of a restored hub that was refused. Later ones are taken."""
CELL_UID = "rota.dev/cell-uid"
"""Annotation of an Instance at the hub: its uid in its cell."""


class Source(NamedTuple):
    """The object at the hub of which another one is a copy."""

    namespace: str
    name: str
    uid: str
    generation: int = 0

    def annotations(self) -> dict[str, str]:
        return {
            SOURCE_NAMESPACE: self.namespace,
            SOURCE_NAME: self.name,
            SOURCE_UID: self.uid,
            SOURCE_GENERATION: str(self.generation),
        }


def source_of(obj: Object) -> Source | None:
    """Return the source of a copy; None: the object is not a copy."""
    found = obj.metadata.annotations
    if SOURCE_UID not in found:
        return None
    generation = found.get(SOURCE_GENERATION, "")
    return Source(
        found.get(SOURCE_NAMESPACE, ""),
        found.get(SOURCE_NAME, ""),
        found[SOURCE_UID],
        int(generation) if GENERATION.fullmatch(generation) else 0,
    )


def mirrored_source(obj: Object) -> Source | None:
    """Return the source of an object that the mirror of a cell made; None: another writer made it.

    On a cluster, whoever writes deployments can set any annotations. Those that the mirror cannot have written are
    ignored.
    """
    source, meta = source_of(obj), obj.metadata
    if source is None or (source.namespace, source.name) != (meta.namespace, meta.name):
        return None
    return source if 0 < len(source.uid) <= UID_LENGTH_MAX else None


def store_identity(objects: Objects) -> str:
    """Return the identity of a store: the uid of its system namespace, which every store has from its beginning."""
    found = get(objects, Namespace, SYSTEM_NAMESPACE)
    return found.metadata.uid if found is not None else ""


def shown_identity(identity: str) -> str:
    """Return the hash of a home's identity. The identity itself authenticates the home, and must not be shown."""
    return sha256(identity.encode()).hexdigest()


def cell_namespace(cell: str) -> str:
    """Return the name of a cell's namespace at the hub."""
    return f"{CELL_NAMESPACE_PREFIX}{cell}"


def is_bound(obj: Object) -> bool:
    """Report whether an object is in the namespace of a cell."""
    return obj.metadata.namespace.startswith(CELL_NAMESPACE_PREFIX)


def bound_name(deployment: WorkloadDeployment) -> str:
    """Return the name of the copy of a deployment in the namespace of its cell."""
    meta = deployment.metadata
    return tailed(meta.namespace, meta.name, kind=deployment.api.name)


def copy_name(namespace: str, kind: str, name: str) -> str:
    """Return the name of an object's copy in the namespace of a cell, the same for all who refer to it."""
    return tailed(namespace, kind, name)
