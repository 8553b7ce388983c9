"""The fixpoint scheduler, and the controller loop built on it.

The scheduler runs nodes, which are ids; the dispatcher decides what a node is and does.

- *Dependency-driven.* A body ends as `Done`, `Failed`, `RequeueAfter`, or `Blocked` on other ids; a blocked node is
  parked and runs again when one of those advances. Nothing polls.
- *Never twice at once.* A node that is woken while it runs, runs exactly once more. Wakes while it is queued are one.
- *No lost wake-up*, at whatever instant it comes: before, while and after the body runs, while it waits for a slot,
  between its end and its parking.
- *Fair and bounded.* Lanes bound how many nodes run at once, and are served round-robin.
- *Always an outcome.* A body that raises, is cancelled or times out has failed; it leaves nothing behind.
- *Waiters learn of the end.* A node that ends ready, failed or skipped wakes those that are parked on it.
- *A structural end.* When nothing runs and nothing is runnable, parked nodes fail that wait for something that cannot
  come; only if there are none, those that wait in a cycle. `run` ends when neither is left. No time-out is involved.
- *A budget.* On the way to one fixpoint a node is charged for runs after it has ended, and for wakes without progress.
  Retries of a blocked node are free, and so are reruns at the fixpoint of a node that has emitted nothing new. A node
  whose budget is spent fails, and `Result.error` names it. The next `run` has a new budget.
- *Serving.* `serve` has no end and no budget; parked nodes run again now and then, in case an event was lost.
- *Stingy.* A node that has ended, has no known content and waits for nothing is forgotten (`serve`); data
  without waiters leaves no trace.

Never: looks into the meaning of an id, decides what a dependency is, retries a body by itself.
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
from rota.engine.scheduler import Dispatcher, Result, Scheduler
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
    "View",
    "VirtualClock",
    "Watch",
    "kinds_of",
]
