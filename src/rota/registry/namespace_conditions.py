"""The conditions of a namespace that is being deleted, which report its remaining content, as in Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rota.api import Kind

Object = dict[str, Any]
NAMED_MAX = 20
"""Bound on the kinds, finalizers or failures that one message names."""

FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The conditions, each with its reason and message while it is False."""


class Remaining(NamedTuple):
    """The remaining content of a namespace: counts by kind and by finalizer, and failed deletions."""

    kinds: Mapping[Kind, int]
    finalizers: Mapping[str, int]
    failures: list[str]


def conditions(left: Remaining, old: list[Object], now: str) -> list[Object]:
    """Return the conditions of a namespace. Unchanged statuses keep their time; conditions of other types are kept."""
    bad: dict[str, tuple[str, str]] = {}
    if left.kinds:
        kinds = [f"{kind.plural}.{kind.group} has {count} resource instances" for kind, count in left.kinds.items()]
        bad["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {_named(kinds)}",
        )
    if left.finalizers:
        finalizers = [f"{name} in {count} resource instances" for name, count in left.finalizers.items()]
        bad["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {_named(finalizers)}",
        )
    if left.failures:
        count = len(left.failures)
        bad["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {count} remaining: {_named(left.failures)}",
        )
    before = {condition["type"]: condition for condition in old}
    out = [condition for condition in old if condition["type"] not in FINE]
    for type_, fine in FINE.items():
        reason, message = bad.get(type_, fine)
        status = "True" if type_ in bad else "False"
        was = before.get(type_, {})
        since = was["lastTransitionTime"] if was.get("status") == status else now
        out.append({"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    return out


def _named(texts: list[str]) -> str:
    named = sorted(texts)
    more = f", and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return ", ".join(named[:NAMED_MAX]) + more
