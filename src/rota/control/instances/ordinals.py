"""Choose the ordinals of an owner's instances where they need not be 0 … n-1.

A pool that scales by demand removes instances that nobody holds, whatever their ordinals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count, islice

from rota.api import Instance
from rota.control.instances.reasons import worst_blocker
from rota.control.instances.states import is_draining, is_held, is_leaving, is_used


def choose(there: Mapping[int, Instance], ready: Collection[str], replicas: int) -> set[int]:
    """Choose `replicas` ordinals: existing ones first, by the use of their instances, then new ones.

    `ready` has the names of ready instances. An instance that is being deleted keeps its place until it is gone: no
    instance is created while as many exist as there should be, in whatever state.
    """
    ranked = sorted(there, key=lambda ordinal: (_place(there[ordinal], ready), ordinal))
    taken = set(ranked[:replicas])
    return taken | set(islice(_free(there), replicas - len(taken)))


def _free(there: Mapping[int, Instance]) -> Iterator[int]:
    return (ordinal for ordinal in count() if ordinal not in there)


def _place(instance: Instance, ready: Collection[str]) -> int:
    """Return the rank of an instance. The lowest is kept first, since most would be lost with it."""
    if is_leaving(instance):
        return 5
    if is_held(instance):
        # Among held ones, draining ones go first: to drain another would disturb two holders.
        return 1 if is_draining(instance) else 0
    if instance.metadata.name in ready and not is_used(instance):
        return 2
    worst = worst_blocker(instance)
    return 4 if worst is not None and worst.is_failure else 3
