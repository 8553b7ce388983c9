"""The instances of one owner: which there should be, under which names, of which template; and why one is not ready.

Promises: a pure planner for whatever is made of instances, a pool's workers as well as a city's replicas; names and
hashes that are the same on every plane; one ranked table of reasons for every level.

Never: reads a clock, an object or a file. What is there and what time it is come from the caller, who carries the
actions out.
"""

from rota.control.instances.actions import Action, Counts, Create, Delete, Desired, Drain, Plan, Undrain
from rota.control.instances.backoff import crashes_in_a_row, restart_delay, restarts
from rota.control.instances.crashes import crashing
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
    "crashing",
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
