"""The interface between the Instance controller and the makers, which make instances real.

The controller decides whether an instance may be made (gates, quota), what is started again and when, who holds it, and
what its status says. A maker carries that out, on this machine (`local.py`) or elsewhere, and reports what is there.
A maker gets the objects, and resolves Secrets and ConfigMaps itself or passes references on.
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

    Nothing is started while there is one. A maker that cannot reach an instance reports that as its obstacle; it must
    not report the instance as gone.
    """

    reason: str
    message: str
    is_made: bool = False
    """True: the obstacle came after the instance was made; False: the instance could not be made."""
    again_seconds: float | None = None
    """Seconds after which another try may help; None: something has to change first, and is reported."""


class Observed(Struct, frozen=True):
    """The state of an instance as its maker sees it, at one moment."""

    runs: Mapping[str, Run]
    """The newest run of each container.

    The id of the first container's run is the instance's `runtimeID`. It may be the same for all its runs, which differ
    in their numbers.
    """
    report: Report | None = None
    """The last report of its runner; None: it has no runner, or the runner is not connected."""
    configured: str = ""
    """The digest of the configuration that its runner should have; empty unless `make` has just computed it."""
    unready: str = ""
    """The reason why its probes do not pass; empty: they do, or there are none."""
    unhealthy: str = ""
    """The container that has to be restarted because it is not alive, unless the maker does that by itself."""
    overuse: Overuse | None = None
    """The limit that the instance has exceeded, and for which it must end."""
    obstacle: Obstacle | None = None
    """Takes precedence over all other fields."""


class Description(NamedTuple):
    """The properties that a maker has given an instance."""

    addresses: list[Address] | None
    """The addresses of its ports; None: this maker has not made it, so the recorded ones stay."""
    conditions: list[Condition]
    """Isolation, network and the bound of its storage."""
    unhonoured: list[str]
    """Settings that have no effect with this maker, each with the reason."""
    limits_unmet: list[str]
    """Limits that this maker cannot enforce, each with the reason."""


class InstanceResources(Protocol):
    """Storage and CPU time of instances, for the controllers of their owners."""

    is_cluster: bool
    """True if the maker runs images and reserves requested resources, as a cluster does and one machine does not."""

    def storages(self) -> Iterable[tuple[str, Owner]]:
        """Return the owners of all storage, each with its namespace."""
        ...

    async def drop_storage(self, namespace: str, owner: Owner) -> None:
        """Remove all storage of an owner. The caller has ended what ran in it."""
        ...

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        """Return the CPU time of instances since each began. Instances without a measurement are left out."""
        ...


class InstanceMaker(InstanceResources, Protocol):
    """Makes instances real. Its memory can be lost: another maker adopts what is there."""

    runners: Runners
    """The streams of the runners of its instances."""
    copies_gates: bool
    """True: the maker also gets instances with gates, other than a quota's, and starts them when the gates are gone."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Call `wake` for each instance that changes, and once for each that is there already.

        Returns a function that stops this maker. Instances go on, and ends under way are left to the next maker.
        """
        ...

    def observe(self, obj: Instance) -> Observed:
        """Return the present state of an instance. Changes nothing, and is cheap."""
        ...

    def warnings(self, obj: Instance) -> Iterable[tuple[str, str]]:
        """Take the warnings about an instance since the last call: reasons and messages for Events."""
        ...

    def describe(self, obj: Instance) -> Description:
        """Describe an instance as it was made, or would be."""
        ...

    def refusal(self, objects: Objects, obj: Instance) -> Obstacle | None:
        """Return the reason why an instance must not be made here; None: it may be. `make` checks the same."""
        ...

    async def make(self, objects: Objects, obj: Instance, start: Collection[str] = ()) -> Observed:
        """Make an instance as its object asks for, and return its state after that.

        Containers that never ran are started, after what is left of an earlier instance of this name was ended. Running
        containers go on; their files and their runner's configuration are updated. `start` names containers that have
        ended and are started again, with the options of the instance's holder.
        """
        ...

    async def renew(self, obj: Instance) -> bool:
        """End everything that runs in an instance, for another holder. Its storage stays. `make` starts it again.

        Returns False if this maker cannot do so for the instance's holder: then the instance has to be replaced.
        """
        ...

    def restart(self, obj: Instance, container: str) -> None:
        """End one run, within the grace of its instance. Its end is then observed as any other."""
        ...

    async def discard(self, obj: Instance) -> None:
        """End an instance without grace, and remove its storage: neither is given to anybody any more.

        A maker that cannot do so at once has done it when `end` returns True.
        """
        ...

    async def end(self, obj: Instance, grace_seconds: float, *, keep_storage: bool) -> bool:
        """End an instance. True: nothing of it is alive, and its storage is removed unless that is to be kept.

        False: the end is under way, and `wake` is called when it is over. Another call meanwhile does not restart it.
        """
        ...

    async def gone(self, key: Key) -> None:
        """End and forget what is left of an instance whose object is gone."""
        ...
