"""The grants of the hub's quota, as annotations of a bound deployment.

A grant is a number of instances of a size, so that the cell can recreate an instance while the hub is away. It is in
the same object as the template: a cell never has one without the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rota.api import Instance, Object, QuotaClaim, WorkloadDeployment
from rota.control.cells.names import BOUNDED, GRANTED
from rota.control.instances.reasons import HUB_QUOTA_GATE
from rota.control.quotas.amounts import names_of
from rota.control.quotas.asking import claim_name, quota_of
from rota.control.sizes import counted_of
from rota.engine.objects import Objects, get

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, int]).decode


def grants(objects: Objects, deployment: WorkloadDeployment) -> dict[str, str]:
    """Return the annotations with the grants of a deployment of this hub; none without a quota."""
    meta = deployment.metadata
    quota = quota_of(objects, meta.namespace)
    if quota is None:
        return {}
    claim = get(objects, QuotaClaim, claim_name(deployment), meta.namespace)
    known = claim is not None and claim.spec.owner.uid == meta.uid
    granted = claim.status.granted if claim is not None and known and claim.status is not None else []
    return {
        GRANTED: _encode({one.hash: one.count for one in granted}).decode(),
        BOUNDED: ",".join(names_of(quota.spec.hard)),
    }


def granted_to(deployment: Object) -> Mapping[str, int] | None:
    """Return the granted number of instances of each size, by hash; None: the hub has no quota."""
    text = deployment.metadata.annotations.get(GRANTED)
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return {}


def is_waiting(instance: Instance) -> bool:
    """Report whether an instance of a cell waits for the quota of its hub."""
    return any(one.name == HUB_QUOTA_GATE for one in instance.spec.scheduling_gates)


def opening(objects: Objects, there: Iterable[Instance], granted: Mapping[str, int] | None) -> Sequence[Instance]:
    """Return the instances whose gates the grants open: of each size, the lowest ordinals."""
    by_size: dict[str, list[Instance]] = {}
    for one in there:
        by_size.setdefault(counted_of(objects, one.spec).hash(), []).append(one)
    found: list[Instance] = []
    for hash_, every in by_size.items():
        gated = sorted((one for one in every if is_waiting(one)), key=lambda one: one.spec.ordinal)
        room = len(gated) if granted is None else granted.get(hash_, 0) - (len(every) - len(gated))
        found += gated[: max(0, room)]
    return found
