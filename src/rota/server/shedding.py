"""Which writes are refused while the disk is short of space: those of tenants, so that the server has room for its own.

Deletions, and what scales down, always pass: they make room. So do an admin's writes, until the store itself has none.
"""

from __future__ import annotations

from typing import Any

from rota.registry.errors import no_space
from rota.runtime.disk import Disk
from rota.server.auth import User
from rota.store import Store

SPARED = frozenset(("admin", "worker", "cell"))
"""Scopes whose writes are the server's own, or an admin's."""
RETRY_SECONDS = 10


class Shedding:
    """What a server refuses by the state of its disk. Without a disk, nothing."""

    def __init__(self, disk: Disk | None = None, store: Store | None = None) -> None:
        self._disk = disk
        self._store = store

    def why(self) -> str:
        """Why the server does not take everything that it should; empty: it does."""
        return self._failing() or (self._disk.why_low() if self._disk is not None else "")

    def check(self, user: User) -> None:
        """Raise 507 for a write of a tenant that would take what is left of the disk."""
        if user.scope not in SPARED and (why := self.why()):
            raise no_space(f"{why}; what deletes something is still taken. Try again later")

    def status(self) -> dict[str, Any]:
        """How the disk is, for an admin."""
        if self._disk is None:
            return {}
        space = self._disk.space
        level = "failing" if self._failing() else self._disk.level
        return {"level": level, "freeBytes": space.free, "totalBytes": space.total, "message": self.why()}

    def _failing(self) -> str:
        return self._store.failing or self._store.tight if self._store is not None else ""
