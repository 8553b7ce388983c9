"""Names and labels that Rota derives: always the same for the same parts, unique, and valid as DNS labels.

A name is its parts joined by dashes, unless other parts could give the same name. Then it gets a hash tail: if it was
cut, if a dash could belong to either of two parts, or if it looks as if it had a tail already.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from rota.api import Instance, OwnerReference
from rota.runtime.interface import Owner, Subject

LABEL_LENGTH_MAX = 63
ORDINAL_DIGITS_MAX = 7
"""Digits of 1,000,000, the greatest ordinal."""
STEM_LENGTH_MAX = LABEL_LENGTH_MAX - 1 - ORDINAL_DIGITS_MAX
TAIL_LENGTH = 12
PLAIN_OWNER = "WorkerPool"
"""The only kind whose instances are named by the bare name of their owner. Owners of other kinds may share the name."""
TAILED_OWNER = "WorkloadDeployment"
"""The only kind of owners whose own names have a hash tail. The names of their instances have the same tail."""

OWNER_LABEL = "rota.dev/owner"
ORDINAL_LABEL = "rota.dev/ordinal"
TEMPLATE_LABEL = "rota.dev/template"
WORKLOAD_LABEL = "rota.dev/workload"
PLACEMENT_LABEL = "rota.dev/placement"
CITY_LABEL = "rota.dev/city"
CELL_LABEL = "rota.dev/cell"
TERM = "rota.dev/term"
"""Annotation of a replica: the term of its deployment, which grows with each move."""
STORAGE_OWNER = "rota.dev/storage-owner"
"""Annotation of an instance with storage: the storage's owner, also after that has orphaned the instance."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_TAILED = re.compile(rf"(.*-)?[0-9a-f]{{{TAIL_LENGTH}}}", re.ASCII)
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+", re.ASCII)


def derived(*parts: str, length_max: int = LABEL_LENGTH_MAX) -> str:
    """Return a name that no other list of as many parts gives."""
    plain = "-".join(parts)
    ambiguous = any("-" in part or not part for part in parts[1:])
    if not ambiguous and len(plain) <= length_max and _LABEL.fullmatch(plain) and not _TAILED.fullmatch(plain):
        return plain
    return tailed(*parts, length_max=length_max)


def tailed(*parts: str, kind: str = "", length_max: int = LABEL_LENGTH_MAX) -> str:
    """Return a name that always has a hash tail. The hash includes the kind, which the readable part does not."""
    # The length of each part keeps `a-b` + `c` apart from `a` + `b-c`.
    exact = "".join(f"{len(part)}:{part}" for part in (kind, *parts))
    tail = blake2b(exact.encode("utf-8", "surrogatepass"), digest_size=TAIL_LENGTH // 2).hexdigest()
    readable = _NOT_IN_LABEL.sub("-", "-".join(parts).lower()).strip("-")
    cut = readable[: length_max - 1 - TAIL_LENGTH].strip("-")
    return f"{cut}-{tail}" if cut else tail


def stem(kind: str, owner: str) -> str:
    """Return the prefix of the names of an owner's instances, which is also the value of their owner label."""
    if kind == TAILED_OWNER and len(owner) <= STEM_LENGTH_MAX and _LABEL.fullmatch(owner) and _TAILED.fullmatch(owner):
        return owner
    if kind == PLAIN_OWNER:
        return derived(owner, length_max=STEM_LENGTH_MAX)
    return tailed(owner, kind=kind, length_max=STEM_LENGTH_MAX)


def instance_name(kind: str, owner: str, ordinal: int) -> str:
    return f"{stem(kind, owner)}-{ordinal}"


def selector(kind: str, owner: str) -> str:
    """Return the label selector of an owner's instances."""
    return f"{OWNER_LABEL}={stem(kind, owner)}"


def controller_of(instance: Instance) -> OwnerReference | None:
    """Return the owner that plans an instance, if it has one."""
    return next((owner for owner in instance.metadata.owner_references if owner.controller), None)


def storage_name(instance: Instance) -> str:
    """Return the name of an instance's storage, by owner and ordinal: a recreated instance has the same."""
    owner = controller_of(instance)
    if owner is None:
        return instance.metadata.name
    return instance_name(owner.kind, owner.name, instance.spec.ordinal)


def subject_of(obj: Instance) -> Subject:
    return Subject(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)


def owner_of(obj: Instance) -> Owner:
    """Return the owner of an instance's storage: its own owner, or the instance itself."""
    owner = controller_of(obj)
    if owner is not None:
        return Owner(owner.name, owner.uid)
    name, _, uid = obj.metadata.annotations.get(STORAGE_OWNER, "").partition("/")
    return Owner(name, uid) if uid else Owner(obj.metadata.name, obj.metadata.uid)


def place_variables(obj: Instance) -> dict[str, str]:
    """Return the variables with the city, cell, ordinal and term of a workload's replica; others have none."""
    labels, annotations = obj.metadata.labels, obj.metadata.annotations
    if CITY_LABEL not in labels:
        return {}
    return {
        "ROTA_CITY": labels[CITY_LABEL],
        "ROTA_CELL": obj.spec.cell_name or "",
        "ROTA_ORDINAL": str(obj.spec.ordinal),
        "ROTA_TERM": annotations.get(TERM, "0"),
    }
