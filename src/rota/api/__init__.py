"""The kinds of the API, as types.

- *Declared once.* Static defaults, bounds, cross-field rules, checks, references, readiness and table columns of a kind
  are declared beside its type. Schemas, CustomResourceDefinitions, OpenAPI and the reference are derived from that.
- *Documented and bounded.* Every field has a description, and every string, list and map a bound.
- *One verdict.* The quick check, which is generated code, never accepts an object that the thorough walk refuses.
- *The same on a cluster.* Rules are CEL, with the meaning that they have in a kube-apiserver.
- *Pure.* Nothing here reads a clock, a socket, or a file other than the machine's time zones.

Never: knows of stores, verbs or controllers.
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
