"""Refuse writes of tenants while the disk is short of space, so that the server has room for its own.

Deletions, and scaling down, always pass because they make room. So do an admin's writes, until the store itself has no
room.
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
    """Refuses writes by the state of the disk. Without a disk it refuses none."""

    def __init__(self, disk: Disk | None = None, store: Store | None = None) -> None:
        self._disk = disk
        self._store = store

    def why(self) -> str:
        """Return the reason why some writes are refused; empty if none are."""
        return self._failing() or (self._disk.why_low() if self._disk is not None else "")

    def check(self, user: User) -> None:
        """Raise 507 for a write of a tenant while space is short."""
        if user.scope not in SPARED and (why := self.why()):
            raise no_space(f"{why}; what deletes something is still taken. Try again later")

    def status(self) -> dict[str, Any]:
        """Return the state of the disk, for an admin."""
        if self._disk is None:
            return {}
        space = self._disk.space
        level = "failing" if self._failing() else self._disk.level
        return {"level": level, "freeBytes": space.free, "totalBytes": space.total, "message": self.why()}

    def _failing(self) -> str:
        return self._store.failing or self._store.tight if self._store is not None else ""
