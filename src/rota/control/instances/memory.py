"""The memory that the Instance controller has of an instance between two looks."""

from __future__ import annotations

from rota.control.instances.backoff import RunHistory
from rota.control.instances.baseline import Baseline


class Memory:
    """The memory of one instance. It is lost with the process, and can be."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.history = RunHistory()
        self.renewed_for = ""
        """The hold for which runs were ended to be started anew."""
        self.renewed: dict[str, int] = {}
        """The numbers of those runs, by container."""
        self.step: object = None
        """The last step sent to its runner, with the stream and the report before it: sent twice, it is done twice."""
        self.baseline: Baseline | None = None
        """While only its holder differs from this, a passing look is enough."""
        self.unwritten_since: float | None = None
        """The time since which its status does not say who has it, or that it is being reset."""
