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
    """A reason why an instance is not as it should be: one of `instances/reasons.py`, or its maker's own.

    Nothing is started while there is any. A maker that cannot reach what it made says that, and not that it is gone.
    """

    reason: str
    message: str
    is_made: bool = False
    """It was made, and this came afterwards; False: it could not be made."""
    again_seconds: float | None = None
    """Seconds after which another try may help; None: something has to change first, and is reported."""


class Observed(Struct, frozen=True):
    """The state of what is real of an instance, at one moment."""

    runs: Mapping[str, Run]
    """The newest run of each container. The id of the first one's is the instance's `runtimeID`, which may be the same
    for all its runs: their numbers tell them apart."""
    report: Report | None = None
    """The last report of its runner; None: it has none, or that is not connected."""
    configured: str = ""
    """The configuration that its runner should have by now, as far as it was just made."""
    unready: str = ""
    """The reason why its probes do not pass; empty: they do, or there are none."""
    unhealthy: str = ""
    """The container that has to be restarted because it is not alive, unless the maker does that by itself."""
    overuse: Overuse | None = None
    """The reason why it must end, if there is one."""
    obstacle: Obstacle | None = None
    """Counts before everything else that is known of it."""


class Description(NamedTuple):
    """The properties that an instance has been given."""

    addresses: list[Address] | None
    """The addresses of its ports; None: this maker has not made it, and they are as they were."""
    conditions: list[Condition]
    """Isolation, network and the bound of its storage."""
    unhonoured: list[str]
    """Settings that change nothing here, each with the reason."""
    limits_unmet: list[str]
    """Limits that cannot be held here, each with the reason."""


class InstanceResources(Protocol):
    """Storage and CPU time of instances, for the controllers of their owners."""

    is_cluster: bool
    """It runs images and reserves what is requested, as a cluster does and one machine does not."""

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
        """Report what is there now. Changes nothing, and is cheap."""
        ...

    def warnings(self, obj: Instance) -> Iterable[tuple[str, str]]:
        """Take the warnings about an instance since the last call: reasons and messages for Events."""
        ...

    def describe(self, obj: Instance) -> Description:
        """Describe an instance as it was made, or would be."""
        ...

    def refusal(self, objects: Objects, obj: Instance) -> Obstacle | None:
        """Check whether an instance may be made here, whatever its state. None: it may. `make` checks that, too."""
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
        """End and forget what is left of an instance of this name, which is there no more."""
        ...
