"""Names that Rota derives: the same for the same parts, never the same for others, and fit for a DNS label.

A name is plain, its parts joined by dashes, when it can be told apart from every other. It gets a hash tail when it
was cut, when a dash could belong to either of two parts, or when it looks as if it had a tail already.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from rota.api import Instance, OwnerReference

LABEL_LENGTH_MAX = 63
ORDINAL_DIGITS_MAX = 7
"""Of 1,000,000, the greatest ordinal."""
STEM_LENGTH_MAX = LABEL_LENGTH_MAX - 1 - ORDINAL_DIGITS_MAX
TAIL_LENGTH = 12
PLAIN_OWNER = "WorkerPool"
"""The one kind whose instances are named after it as it is. A namesake of another kind needs names of its own."""
TAILED_OWNER = "WorkloadDeployment"
"""The one kind whose objects are given names with a hash tail, which their instances share."""

OWNER_LABEL = "rota.dev/owner"
ORDINAL_LABEL = "rota.dev/ordinal"
TEMPLATE_LABEL = "rota.dev/template"
WORKLOAD_LABEL = "rota.dev/workload"
PLACEMENT_LABEL = "rota.dev/placement"
CITY_LABEL = "rota.dev/city"
CELL_LABEL = "rota.dev/cell"
TERM = "rota.dev/term"
"""The annotation of a replica with the term of its deployment: how often that was moved."""
STORAGE_OWNER = "rota.dev/storage-owner"
"""The annotation of an instance with storage that says whose that is: it stays so when the owner lets go of it."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_TAILED = re.compile(rf"(.*-)?[0-9a-f]{{{TAIL_LENGTH}}}", re.ASCII)
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+", re.ASCII)


def derived(*parts: str, length_max: int = LABEL_LENGTH_MAX) -> str:
    """A name made of these parts, unlike that of any other parts of the same number."""
    plain = "-".join(parts)
    ambiguous = any("-" in part or not part for part in parts[1:])
    if not ambiguous and len(plain) <= length_max and _LABEL.fullmatch(plain) and not _TAILED.fullmatch(plain):
        return plain
    return tailed(*parts, length_max=length_max)


def tailed(*parts: str, kind: str = "", length_max: int = LABEL_LENGTH_MAX) -> str:
    """A name with a hash tail, however plain the parts are. The kind is in the tail only."""
    # The length of each part keeps `a-b` + `c` apart from `a` + `b-c`.
    exact = "".join(f"{len(part)}:{part}" for part in (kind, *parts))
    tail = blake2b(exact.encode("utf-8", "surrogatepass"), digest_size=TAIL_LENGTH // 2).hexdigest()
    readable = _NOT_IN_LABEL.sub("-", "-".join(parts).lower()).strip("-")
    cut = readable[: length_max - 1 - TAIL_LENGTH].strip("-")
    return f"{cut}-{tail}" if cut else tail


def stem(kind: str, owner: str) -> str:
    """What the names of an owner's instances begin with. It is a label's value, too, and tells owners apart."""
    if kind == TAILED_OWNER and len(owner) <= STEM_LENGTH_MAX and _LABEL.fullmatch(owner) and _TAILED.fullmatch(owner):
        return owner
    if kind == PLAIN_OWNER:
        return derived(owner, length_max=STEM_LENGTH_MAX)
    return tailed(owner, kind=kind, length_max=STEM_LENGTH_MAX)


def instance_name(kind: str, owner: str, ordinal: int) -> str:
    """The name of an owner's instance, in the owner's namespace."""
    return f"{stem(kind, owner)}-{ordinal}"


def selector(kind: str, owner: str) -> str:
    """Selects the instances of an owner, by label."""
    return f"{OWNER_LABEL}={stem(kind, owner)}"


def controller_of(instance: Instance) -> OwnerReference | None:
    """The one owner that plans an instance, if it has one."""
    return next((owner for owner in instance.metadata.owner_references if owner.controller), None)


def storage_name(instance: Instance) -> str:
    """The name of an instance's storage, within its namespace: that of whoever has this ordinal of this owner."""
    owner = controller_of(instance)
    if owner is None:
        return instance.metadata.name
    return instance_name(owner.kind, owner.name, instance.spec.ordinal)
