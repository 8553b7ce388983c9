"""The identity under which an instance is made real, and that of its storage."""

from __future__ import annotations

from rota.api import Instance
from rota.control.instances.names import CITY_LABEL, STORAGE_OWNER, TERM, controller_of
from rota.runtime.interface import Owner, Subject


def subject_of(obj: Instance) -> Subject:
    return Subject(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)


def owner_of(obj: Instance) -> Owner:
    """The owner of the storage of an instance: its own owner, or itself."""
    owner = controller_of(obj)
    if owner is not None:
        return Owner(owner.name, owner.uid)
    name, _, uid = obj.metadata.annotations.get(STORAGE_OWNER, "").partition("/")
    return Owner(name, uid) if uid else Owner(obj.metadata.name, obj.metadata.uid)


def place_variables(obj: Instance) -> dict[str, str]:
    """The variables that tell a replica of a workload where it is, and which of how many."""
    labels, annotations = obj.metadata.labels, obj.metadata.annotations
    if CITY_LABEL not in labels:
        return {}
    return {
        "ROTA_CITY": labels[CITY_LABEL],
        "ROTA_CELL": obj.spec.cell_name or "",
        "ROTA_ORDINAL": str(obj.spec.ordinal),
        "ROTA_TERM": annotations.get(TERM, "0"),
    }
