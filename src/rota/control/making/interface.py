"""The interface between the Instance controller and what makes instances real.

The controller decides: whether an instance may be made at all (gates, quota), what is started again and when, who has
it, what its status says. A maker carries that out, on this machine (`local.py`) or elsewhere, and reports what is
there. Secrets and ConfigMaps are the maker's matter: it is given the objects, and resolves or refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from rota.api import Condition, Instance
from rota.api.instance import Address
from rota.client import Key
from rota.engine.objects import Objects
from rota.runtime.interface import Overuse, Owner, Run, Subject
from rota.runtime.runner.messages import Report
from rota.runtime.runners import Runners


class Obstacle(Struct, frozen=True):
    """Why an instance is not as it should be, as its maker says: a reason of `instances/reasons.py`, or its own.

    Nothing is started while there is any. A maker that cannot reach what it made says that, and not that it is gone.
    """

    reason: str
    message: str
    is_made: bool = False
    """It was made, and this came afterwards; False: it could not be made."""


class Observed(Struct, frozen=True):
    """What was there of an instance, at one moment."""

    runs: Mapping[str, Run]
    """The newest run of each container. The id of the first one's is the instance's `runtimeID`, which may be the same
    for all its runs: they are told apart by their numbers."""
    report: Report | None = None
    """The last report of its runner; None: it has none, or that is not connected."""
    configured: str = ""
    """The configuration that its runner should have by now, as far as it was just made."""
    unready: str = ""
    """Why its probes do not pass; empty: they do, or there are none."""
    unhealthy: str = ""
    """The container that has to be restarted because it is not alive, unless the maker does that by itself."""
    overuse: Overuse | None = None
    """Why it must end."""
    obstacle: Obstacle | None = None
    """Why it is not as it should be, whatever else is known of it."""


class Description(NamedTuple):
    """How an instance was made."""

    addresses: list[Address] | None
    """Where its ports are reached; None: this maker has not made it, and its addresses are as they were."""
    conditions: list[Condition]
    """How far it is kept apart, what its network keeps it from, how the size of its storage is held."""
    unhonoured: list[str]
    """Settings that change nothing here, each with why."""
    limits_unmet: list[str]
    """Limits that cannot be held here, each with why."""


class InstanceResources(Protocol):
    """What the instances of an owner have and use, for who plans them."""

    def storages(self) -> Iterable[tuple[str, Owner]]:
        """The owners of all storage there is, each with its namespace."""
        ...

    async def drop_storage(self, namespace: str, owner: Owner) -> None:
        """Remove all storage of an owner. Nothing runs in it."""
        ...

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        """The CPU time of instances since each began. Those of which it is not known are left out."""
        ...


class InstanceMaker(InstanceResources, Protocol):
    """Makes instances real. What it remembers can be lost: another one adopts what is there."""

    runners: Runners
    """The streams of the runners of what it makes."""
    copies_gates: bool
    """It is given what has other gates than a quota's, too, and keeps that from starting until they are removed."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Call `wake` for every instance of which something changes, and once for what is there already.

        Returns how to end that. What is made goes on, and ends that are under way are left to the next maker.
        """
        ...

    def observe(self, obj: Instance) -> Observed:
        """What is there now. Changes nothing, and is cheap."""
        ...

    def warnings(self, obj: Instance) -> Iterable[tuple[str, str]]:
        """What people should be told of an instance since this was last asked: reasons and messages of Events."""
        ...

    def describe(self, obj: Instance) -> Description:
        """How an instance was made, or would be."""
        ...

    def refusal(self, objects: Objects, obj: Instance) -> Obstacle | None:
        """Why an instance may not be made here, whatever its state; `make` refuses it, too. None: it may."""
        ...

    async def make(self, objects: Objects, obj: Instance, start: Collection[str] = ()) -> Observed:
        """Bring what is there to what the instance asks for, and report what came of it.

        What was never made is made, and what is left of an earlier instance of this name is ended first. What runs is
        kept, with its files and the configuration of its runner as they should be by now. `start`: containers that
        have ended and are started again, as whoever has the instance wants them.
        """
        ...

    async def renew(self, obj: Instance) -> bool:
        """End everything that runs in an instance, for another holder. Its storage stays. `make` starts it again.

        False: that cannot be, as whoever has it wants it. It has to be replaced.
        """
        ...

    def restart(self, obj: Instance, container: str) -> None:
        """Have one run end, within the grace of its instance. Its end is then observed as any other."""
        ...

    async def discard(self, obj: Instance) -> None:
        """End an instance without grace, and remove its storage: both are given to nobody any more.

        What cannot be done at once is done when `end` says that it is over.
        """
        ...

    async def end(self, obj: Instance, grace_seconds: float, *, keep_storage: bool) -> bool:
        """End an instance. True: nothing of it is alive, and it is forgotten, with its storage unless that is kept.

        False: that takes its time, and `wake` is called when it is over. Asked again meanwhile, it does not begin anew.
        """
        ...

    async def gone(self, key: Key) -> None:
        """There is no instance of this name any more: end what is left of it, and forget it."""
        ...
