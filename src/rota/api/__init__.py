"""The kinds: what can be declared, in types.

Promises: every kind is a typed, documented and bounded structure; its static defaults, cross-field rules, checks,
references, readiness and table columns are declared once, beside the type; schemas for clients and for real Kubernetes
API servers are derived from that, never written by hand.

Never: reads a clock, a socket, or a file other than the machine's time zones; knows of stores, verbs or controllers.
"""

from rota.api.cell import Cell, InstanceType, Location, Quota, QuotaClaim
from rota.api.core import ConfigMap, Event, Lease, Namespace, Role, Secret
from rota.api.function import Function, Schedule
from rota.api.instance import Instance
from rota.api.kind import BY_BUCKET, GROUP, KINDS, VERSION, Column, Kind, Scale
from rota.api.meta import Condition, Object, ObjectMeta, OwnerReference, Readiness
from rota.api.pool import AgentConfig, Claim, WorkerPool, Workspace
from rota.api.spawner import TaskSpawner
from rota.api.task import Task
from rota.api.workload import Revision, Workload, WorkloadDeployment

__all__ = [
    "BY_BUCKET",
    "GROUP",
    "KINDS",
    "VERSION",
    "AgentConfig",
    "Cell",
    "Claim",
    "Column",
    "Condition",
    "ConfigMap",
    "Event",
    "Function",
    "Instance",
    "InstanceType",
    "Kind",
    "Lease",
    "Location",
    "Namespace",
    "Object",
    "ObjectMeta",
    "OwnerReference",
    "Quota",
    "QuotaClaim",
    "Readiness",
    "Revision",
    "Role",
    "Scale",
    "Schedule",
    "Secret",
    "Task",
    "TaskSpawner",
    "WorkerPool",
    "Workload",
    "WorkloadDeployment",
    "Workspace",
]
