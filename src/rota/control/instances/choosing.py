"""Which ordinals an owner's instances have, where it does not matter that they are 0 … n-1.

A pool that scales by demand takes away what nobody needs, whatever its ordinal: whoever works goes on working.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count, islice

from rota.api import Instance
from rota.control.instances.reasons import worst_blocker
from rota.control.instances.states import is_draining, is_held, is_leaving, is_used


def chosen(there: Mapping[int, Instance], ready: Collection[str], replicas: int) -> set[int]:
    """So many ordinals: of those there are, the ones of most use; and only if they are too few, new ones.

    `ready` has the names of those that are. One that is leaving is waited for before another ordinal is taken: so no
    instance is made while there are as many as there should be, in whatever state.
    """
    ranked = sorted(there, key=lambda ordinal: (_place(there[ordinal], ready), ordinal))
    taken = set(ranked[:replicas])
    return taken | set(islice(_free(there), replicas - len(taken)))


def _free(there: Mapping[int, Instance]) -> Iterator[int]:
    return (ordinal for ordinal in count() if ordinal not in there)


def _place(instance: Instance, ready: Collection[str]) -> int:
    """The lower, the more is lost with an instance."""
    if is_leaving(instance):
        return 5
    if is_held(instance):
        # Among those who work, those go first who were asked already: to ask another would disturb two.
        return 1 if is_draining(instance) else 0
    if instance.metadata.name in ready and not is_used(instance):
        return 2
    worst = worst_blocker(instance)
    return 4 if worst is not None and worst.is_failure else 3
