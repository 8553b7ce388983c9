"""Every controller there is."""

from __future__ import annotations

from rota.api import AgentConfig, Claim, Function, Schedule, Task, TaskSpawner, WorkerPool, Workload, Workspace
from rota.control.gate import Gate, Settling
from rota.control.instance import Instances
from rota.control.pool import Pools
from rota.control.retention import EventRetention
from rota.control.shipped import Shipped
from rota.engine import Reconciler
from rota.runtime.interface import Runtime
from rota.runtime.runners import Runners


def controllers(runtime: Runtime | None = None, runners: Runners | None = None) -> list[Reconciler]:
    """New controllers, one a lane. Without a runtime, none that would make or run instances."""
    return [
        Shipped(),
        EventRetention(),
        Settling(Workspace),
        Settling(AgentConfig),
        *((Gate(WorkerPool),) if runtime is None else (Pools(runtime), Instances(runtime, runners))),
        Gate(Function),
        Gate(Schedule),
        Gate(TaskSpawner),
        Gate(Workload),
        Gate(Task),
        Gate(Claim),
    ]
