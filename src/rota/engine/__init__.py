"""The fixpoint scheduler, and the controller loop built on it.

The scheduler runs nodes, which are ids; what a node is and does is its dispatcher's business.

- *Dependency-driven.* A body ends as `Done`, `Failed`, `RequeueAfter`, or `Blocked` on other ids; a blocked node is
  parked and runs again when one of those advances. Nothing polls.
- *Never twice at once.* A node that is woken while it runs, runs exactly once more. Wakes while it is queued are one.
- *No lost wake-up*, at whatever instant it comes: before, while and after the body runs, while it waits for a slot,
  between its end and its parking.
- *Fair and bounded.* Lanes bound how many nodes run at once, and take turns.
- *Always an outcome.* A body that raises, is cancelled or takes too long has failed; it leaves nothing behind.
- *Whoever waits hears of the end.* A node that ends ready, failed or skipped wakes those that are parked on it.
- *A structural end.* `run` ends when nothing runs, nothing can, and what is parked could never go on: then what waits
  for something that cannot come fails first, and only when there is no such thing, what waits in a circle. No time-out
  is involved.
- *A budget.* On the way to one fixpoint a node is charged for runs after it has ended, and for wakes without progress.
  Retries of a blocked node are free, and so are reruns at the fixpoint of a node that has emitted nothing new. One that
  does not come to rest fails when its budget is spent, and `Result.error` names it. The next `run` has a new budget.
- *For ever.* `serve` has no end and no budget; what is parked is looked at again now and then, should an event be lost.
- *Stingy.* A node that has ended, whose content was not given and that waits for nothing, is forgotten (`serve`); data
  that nobody waits for leaves no trace.

Never: looks into what an id means, decides what a dependency is, retries a body by itself.
"""

from rota.engine.clock import Clock, RealClock, VirtualClock
from rota.engine.loop import ControlLoop, kinds_of
from rota.engine.node import CASCADE, FORCE, NO_CASCADE
from rota.engine.objects import CachedObjects, Objects, StoreObjects
from rota.engine.outcome import (
    DONE,
    Blocked,
    BodyCancelled,
    Done,
    Failed,
    NotConverged,
    Outcome,
    Promise,
    RequeueAfter,
    Status,
)
from rota.engine.reconciler import Context, ObjectReconciler, Reconciler, Watch
from rota.engine.references import Dependency, Graph
from rota.engine.scheduler import Dispatcher, Result, Scheduler, Threads
from rota.engine.view import NodeView, View

__all__ = [
    "CASCADE",
    "DONE",
    "FORCE",
    "NO_CASCADE",
    "Blocked",
    "BodyCancelled",
    "CachedObjects",
    "Clock",
    "Context",
    "ControlLoop",
    "Dependency",
    "Dispatcher",
    "Done",
    "Failed",
    "Graph",
    "NodeView",
    "NotConverged",
    "ObjectReconciler",
    "Objects",
    "Outcome",
    "Promise",
    "RealClock",
    "Reconciler",
    "RequeueAfter",
    "Result",
    "Scheduler",
    "Status",
    "StoreObjects",
    "Threads",
    "View",
    "VirtualClock",
    "Watch",
    "kinds_of",
]
