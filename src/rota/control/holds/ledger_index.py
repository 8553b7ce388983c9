"""An index of the ledgers by the uid of a task or claim, for those that wait for an instance or have one."""

from __future__ import annotations

from typing import TypeVar

from rota.api import Object
from rota.control.holds.executor import Executor
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.engine.objects import get
from rota.pools import Ledger, State

T = TypeVar("T", bound=Object)


class LedgerIndex(ByName[PoolKey]):
    """The pools of active tasks, or of active claims: those that wait for an instance or have one, by uid."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def ledger(self, uid: str) -> Ledger | None:
        """Return the ledger of the pool of a task or claim; None: it is not active."""
        pool = self.get(uid)
        return self._executor.ledgers.get(pool) if pool is not None else None

    def state(self, uid: str) -> State | None:
        ledger = self.ledger(uid)
        return ledger.state(uid) if ledger is not None else None

    def member(self, uid: str) -> Member | None:
        """Return the instance that a task or claim holds."""
        ledger = self.ledger(uid)
        instance = ledger.instance_of(uid) if ledger is not None else None
        return self._executor.members.get(instance) if instance is not None else None

    def find(self, kind: type[T], uid: str) -> T | None:
        """Return the object with a uid, as it was last read; None: it is gone."""
        key = self.key_of(uid)
        found = get(self._executor.objects, kind, key.name, key.namespace) if key is not None else None
        return found if found is not None and found.metadata.uid == uid else None

    def name_of(self, uid: str) -> str | None:
        key = self.key_of(uid)
        return key.name if key is not None else None
