"""What the Instance controller remembers of an instance between two looks."""

from __future__ import annotations

from rota.control.instances.backoff import RunHistory
from rota.control.instances.baseline import Baseline


class Memory:
    """What is remembered of an instance. Lost with the process, and not missed."""

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
        """From which only its holder may differ for it to need no more than a passing look."""
        self.unwritten_since: float | None = None
        """Since when its status does not say who has it, or that it is being reset."""
