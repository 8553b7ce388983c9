"""Every controller there is."""

from __future__ import annotations

from rota.api import AgentConfig, Claim, Function, Schedule, Task, TaskSpawner, WorkerPool, Workload, Workspace
from rota.control.gate import Gate, Settling
from rota.control.retention import EventRetention
from rota.control.shipped import Shipped
from rota.engine import Reconciler


def controllers() -> list[Reconciler]:
    """New controllers, one a lane."""
    return [
        Shipped(),
        EventRetention(),
        Settling(Workspace),
        Settling(AgentConfig),
        Gate(WorkerPool),
        Gate(Function),
        Gate(Schedule),
        Gate(TaskSpawner),
        Gate(Workload),
        Gate(Task),
        Gate(Claim),
    ]
