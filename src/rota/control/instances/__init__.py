"""Instances of one owner, a pool or a deployment: planner, names, template hash, restarts, and reasons for not ready.

- *Repairable plans.* A plan that was carried out twice, late, in part or not at all is repaired by the next one.
- *Stable names.* Names and template hashes are the same on every plane and in every release, and no two instances share
  a name.
- *Restarts with a pause.* The pause grows with the crashes in a row; an end that is no fault of the instance has none.
- *One table of reasons.* The reason of a condition is the first blocker in the table, at each level: instance, pool,
  deployment, workload.

Never: reads a clock, an object or a file. The caller passes the objects and the time, and carries the actions out.
"""

from rota.control.instances.actions import Action, Counts, Create, Delete, Desired, Drain, Plan, Undrain
from rota.control.instances.backoff import crashes_in_a_row, restart_delay, restarts
from rota.control.instances.names import derived, instance_name, selector, storage_name
from rota.control.instances.planner import plan
from rota.control.instances.reasons import Blocker, blocker, blockers_of, is_ready, ready_condition, rolled_up
from rota.control.instances.states import DRAINING, is_draining
from rota.control.instances.template import Size, restart_stamps, settle_seconds, size, template_hash

__all__ = [
    "DRAINING",
    "Action",
    "Blocker",
    "Counts",
    "Create",
    "Delete",
    "Desired",
    "Drain",
    "Plan",
    "Size",
    "Undrain",
    "blocker",
    "blockers_of",
    "crashes_in_a_row",
    "derived",
    "instance_name",
    "is_draining",
    "is_ready",
    "plan",
    "ready_condition",
    "restart_delay",
    "restart_stamps",
    "restarts",
    "rolled_up",
    "selector",
    "settle_seconds",
    "size",
    "storage_name",
    "template_hash",
]
