"""The assignment queue of a pool: who waits, what is free, who gets what. Tasks and Claims alike.

Its user feeds a `Queue` events and carries out the bindings that it answers with; then it says how each went.

- *Nothing waits that could be served.* Every event is answered with the bindings that it makes possible, at once. So
  whoever waits is unmet demand.
- *In order.* Higher priority first, then the holder with the fewest instances now, then arrival; first come, first
  served within a holder. Who has to try again keeps its place.
- *None blocks another.* A request goes past those whose needs nothing free satisfies. What it prefers picks among free
  instances only: it never waits for it, nor overtakes by it.
- *Never twice.* A request and an instance are in one binding at a time, from the decision until its outcome is told.
  What is said again, late or of something unknown changes nothing.
- *Cancelled at any instant.* A request that is gone while its binding is carried out is found out when that is
  confirmed: the answer is then that the instance is to be given back.
- *Forgets nothing, keeps nothing.* From what is stored (who holds what, who waits since when, what is free since when)
  `restore` makes a queue that goes on in the same way. Of what has ended no trace is left.

With n requests of h holders waiting, an event costs O(log n + log h), and beyond that O(1) for each kind (requests with
the same needs, instances that provide the same) that fits what the event is about, or that its holder waits for. Kinds
are meant to be few, as images and sizes are. One that waits takes some 160 bytes beside the request itself.

Never: looks at a clock, does I/O, decides on its own that a binding has failed, takes an instance for free that was
not offered.
"""

from rota.pools.queue import Queue, Restored
from rota.pools.request import Arrival, Binding, Offer, Request

__all__ = ["Arrival", "Binding", "Offer", "Queue", "Request", "Restored"]
