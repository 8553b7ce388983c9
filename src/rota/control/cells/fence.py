"""The fence of a cell: deployments that move when the cell is lost run here only with a right from the hub.

Every answer of the hub gives rights for `leaseSeconds`, counted from when the report was sent. The keeper ends
instances whose right has expired, also when the server is gone. Nothing is started without a right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from rota.api import Instance, Kind, WorkloadDeployment
from rota.client import Key, Update
from rota.control.cells.names import source_of
from rota.control.instances.names import controller_of, subject_of
from rota.engine.clock import Clock
from rota.engine.objects import Objects
from rota.runtime.interface import Runtime, Subject
from rota.runtime.keeper.client import KeeperError

log = logging.getLogger(__name__)


class Moment(NamedTuple):
    """A time by both clocks, since the wall clock may be set and the monotonic one may stop in a suspend."""

    uptime: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        return cls(clock.now(), clock.time())

    def until(self, later: Moment) -> float:
        """Return the seconds between two moments, by the clock that has advanced more."""
        return max(later.uptime - self.uptime, later.wall - self.wall)


class Fence:
    """The rights of a cell. `end` it."""

    def __init__(self, objects: Objects, runtime: Runtime | None, clock: Clock) -> None:
        self._objects = objects
        self._runtime = runtime
        self._clock = clock
        self._rights: dict[str, tuple[Moment, float]] = {}
        """The start and the seconds of each right, by the deployment's uid at the hub."""
        self._moving: dict[str, str] = {}
        """The uid at the hub of each deployment that moves, by its uid here."""
        self._held: dict[str, float | None] = {}
        """The lease that the keeper has confirmed for a deployment's instances, by uid here; None: no lease."""
        self._listeners: list[Callable[[Key], None]] = []
        self._unsubscribe = objects.listen((WorkloadDeployment.api,), self._deployment_changed)

    @property
    def holds(self) -> bool:
        """Report whether a runtime can end instances without a right."""
        return self._runtime is not None

    def end(self) -> None:
        self._unsubscribe()

    def listen(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Call `wake` for instances that may be started from now on. Returns a function that ends that."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def _deployment_changed(self, kind: Kind, update: Update[Any]) -> None:
        old, new = cast("Any", update.old), cast("Any", update.new)
        source = source_of(new) if new is not None and new.spec.on_cell_lost == "Move" else None
        if source is not None:
            self._moving[new.metadata.uid] = source.uid
            if source.uid in self._rights:
                since, seconds = self._rights[source.uid]
                self._rights[source.uid] = (since, min(seconds, new.spec.lease_seconds))
        elif (gone := self._moving.pop((new or old).metadata.uid, None)) is not None:
            self._rights.pop(gone, None)
            if new is not None:
                self._wake(self._instances(new.metadata.uid))
        if new is None:
            self._held.pop(old.metadata.uid, None)

    def _instances(self, own: str) -> list[Instance]:
        return cast("list[Instance]", self._objects.owned(Instance.api, own))

    def _wake(self, instances: Iterable[Instance]) -> None:
        for one in instances:
            for wake in [*self._listeners]:
                wake(Key(one.metadata.namespace, one.metadata.name))

    async def hold(self, deployment: WorkloadDeployment) -> None:
        """Put the instances of a deployment under its present lease, or under none.

        The cell confirms the deployment's generation to the hub only after this, and the hub moves nothing before that.
        """
        if self._runtime is None:
            return  # The mirror refuses deployments that move.
        meta, spec = deployment.metadata, deployment.spec
        source = self._moving.get(meta.uid)
        wanted = spec.lease_seconds if source is not None else None
        if meta.uid in self._held and self._held[meta.uid] == wanted:
            return
        subjects = [subject_of(one) for one in self._instances(meta.uid)]
        if wanted is None:
            await self._runtime.extend(dict.fromkeys(subjects, None))
        else:
            await self._runtime.extend(dict.fromkeys(subjects, float(wanted)), unleased=True)
            if source in self._rights:
                await self._runtime.extend(dict.fromkeys(subjects, self._left(source)))
        self._held[meta.uid] = wanted

    def left(self, instance: Instance) -> float | None:
        """Return the seconds that an instance may run without another answer of the hub; None: no limit."""
        owner = controller_of(instance)
        source = self._moving.get(owner.uid) if owner is not None else None
        return None if source is None else self._left(source)

    def _left(self, source: str) -> float:
        if source not in self._rights:
            return 0.0
        since, seconds = self._rights[source]
        return max(0.0, seconds - since.until(Moment.now(self._clock)))

    async def renew(self, rights: Mapping[str, float], sent: Moment) -> None:
        """Take the rights of an answer. `sent`: when its report was sent. Deployments not in it lose theirs."""
        leases: dict[Subject, float | None] = {}
        woken: list[Instance] = []
        for own, source in self._moving.items():
            had = self._left(source) > 0
            if source not in rights:
                self._rights.pop(source, None)
                continue
            self._rights[source] = (sent, rights[source])
            left = self._left(source)
            for one in self._instances(own):
                leases[subject_of(one)] = left
                if not had:
                    woken.append(one)
        self._wake(woken)
        if leases and self._runtime is not None:
            try:
                await self._runtime.extend(leases)
            except KeeperError as error:
                log.warning("the leases of instances could not be extended: %s", error)
