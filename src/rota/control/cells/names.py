"""Names and annotations by which objects at the hub and in its cells belong together."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from rota.api import Namespace, Object, WorkloadDeployment
from rota.control.instances.names import tailed
from rota.engine.objects import Objects, get
from rota.registry.system import CELL_NAMESPACE_PREFIX, SYSTEM_NAMESPACE

CELL_FINALIZER = "rota.dev/cell"
"""Holds a deployment until nothing of it is left in its cell."""
SOURCE_NAMESPACE = "rota.dev/source-namespace"
SOURCE_NAME = "rota.dev/source-name"
SOURCE_UID = "rota.dev/source-uid"
SOURCE_GENERATION = "rota.dev/source-generation"
"""Annotations of copies, at the hub and in the cell: which object they are copies of, and as it was when."""
BOUND_NAMESPACE = "rota.dev/bound-namespace"
BOUND_NAME = "rota.dev/bound-name"
"""Annotations of a deployment in a cell: where at the hub it is bound to the cell."""
GRANTED = "rota.dev/granted"
"""The annotation of a bound deployment, and of that in the cell: how many instances of each size the quota at the hub
has room for. Without it, there is no quota."""
BOUNDED = "rota.dev/bounded"
"""Beside that: of what the quota at the hub has a bound, as `cpu,memory`."""
ADOPTED = "rota.dev/adopted"
"""The annotation of a bound deployment, and of that in the cell: when somebody last said that the hub is right, though
it knows less than it did."""
GENERATION = re.compile("[0-9]{1,18}")
MOVING_SINCE = "rota.dev/moving-since"
"""The annotation of a deployment at the hub: the generation with which it became one that is moved when its cell is
lost, or got another lease. Without it, it always was. Until the cell has it, nothing ends by itself there."""
SYNCED = "Synced"
"""The condition of a deployment that its cell does not run as the hub has it, with this reason or another."""
HUB_IS_OLDER = "HubIsOlder"
REFUSED_GENERATION = "rota.dev/refused-generation"
"""The annotation of a deployment in a cell: the generation of a hub that was restored to an older one. What the hub
changes after that is taken."""
CELL_UID = "rota.dev/cell-uid"
"""The annotation of an Instance at the hub: the uid that it has in its cell."""


class Source(NamedTuple):
    """The object at the hub that something is a copy of."""

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
    """Return what an object is a copy of; None: it is none."""
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


def store_identity(objects: Objects) -> str:
    """Return the identity of a store: that of the one object which every store has from its beginning."""
    found = get(objects, Namespace, SYSTEM_NAMESPACE)
    return found.metadata.uid if found is not None else ""


def shown_identity(identity: str) -> str:
    """Return what everybody may know of the identity of a home. The home itself is known by the identity."""
    return sha256(identity.encode()).hexdigest()


def cell_namespace(cell: str) -> str:
    """Return the namespace at the hub that is for one cell."""
    return f"{CELL_NAMESPACE_PREFIX}{cell}"


def is_bound(obj: Object) -> bool:
    """Report whether an object is in the namespace of a cell: it is for that cell alone."""
    return obj.metadata.namespace.startswith(CELL_NAMESPACE_PREFIX)


def bound_name(deployment: WorkloadDeployment) -> str:
    """Return the name of the copy of a deployment in the namespace of its cell."""
    meta = deployment.metadata
    return tailed(meta.namespace, meta.name, kind=deployment.api.name)


def copy_name(namespace: str, kind: str, name: str) -> str:
    """Return the name of the copy of something in the namespace of a cell: one for all who refer to it."""
    return tailed(namespace, kind, name)
