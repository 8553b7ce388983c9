"""The revisions of a workload: the templates that it can be rolled back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.api import ObjectMeta, OwnerReference, Revision, Workload
from rota.api.model import Ref
from rota.api.workload import RevisionSpec
from rota.control.instances import derived, template_hash
from rota.control.instances.template import RESTARTS
from rota.registry.privileges import inherited


class RevisionPlan(NamedTuple):
    create: Revision | None
    delete: Sequence[Revision]


def hash_of(workload: Workload) -> str:
    """Return the hash of a workload's template, without restart annotations: a restart is no new revision."""
    template = workload.spec.template
    marks = template.metadata
    if marks is None:
        return template_hash(template.spec)
    annotations = {key: each for key, each in marks.annotations.items() if key not in RESTARTS}
    return template_hash(template.spec, marks.labels, annotations)


def plan_revisions(workload: Workload, there: Sequence[Revision]) -> RevisionPlan:
    """Plan the newest template as the newest revision, and no more old ones than `revisionHistoryLimit`.

    If the workload has a former template again, its older revision is deleted.
    """
    current = hash_of(workload)
    in_order = sorted(there, key=lambda one: one.spec.number)
    newest = in_order[-1] if in_order else None
    if newest is not None and newest.spec.template_hash == current:
        old = in_order[:-1]
        return RevisionPlan(None, old[: max(0, len(old) - workload.spec.revision_history_limit)])
    number = newest.spec.number + 1 if newest is not None else 1
    old = [one for one in in_order if one.spec.template_hash != current]
    again = [one for one in in_order if one.spec.template_hash == current]
    excess = old[: max(0, len(old) - workload.spec.revision_history_limit)]
    return RevisionPlan(_new(workload, current, number), [*again, *excess])


def _new(workload: Workload, hash_: str, number: int) -> Revision:
    meta = workload.metadata
    owner = OwnerReference(
        api_version=workload.api.api_version, kind=workload.api.name, name=meta.name, uid=meta.uid, controller=True
    )
    return Revision(
        metadata=ObjectMeta(
            name=derived(meta.name, str(number)),
            namespace=meta.namespace,
            owner_references=[owner],
            annotations=inherited(meta.annotations),
        ),
        spec=RevisionSpec(
            workload_ref=Ref(name=meta.name), number=number, template_hash=hash_, template=workload.spec.template
        ),
    )
