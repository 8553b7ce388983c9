"""The ledger of a pool: who holds which instance, who waits, who gets what next. Tasks and claims alike.

Its user, an executor, calls it for every event and carries out the effects that it leaves in `effects`; then it says
how each went. A request is in one state: waiting, binding, held, ending; one that is over is not known any more.

- *Nothing waits that could be served.* Every event leaves the bindings that it makes possible, at once.
- *In order.* Higher priority first, then the holder with the fewest instances now, then arrival; first come, first
  served within a holder. A request that has to try again keeps its place. Nobody is served before the first in line.
- *Never twice.* A request is on one instance at most, from the decision until its end is written or its instance is
  gone. An instance has one hold, or several of requests that share it.
- *Not behind a long one.* Requests that share an instance are handed to it before it is free only while they are short
  and no instance is idle. What has not begun is recalled when the one before it turns out to be long, or when one of
  higher priority waits.
- *Cancelled at any instant.* A request that is cancelled while it is bound has the binding ended when that is written.
- *Forgets nothing, keeps nothing.* `hold` and `request` make from what is stored a ledger that goes on in the same way.
  Of what has ended no trace is left. What is said again, late, or of something unknown changes nothing.

With n requests of h holders waiting, an event costs O(log n + log h). A waiting request takes some 230 bytes beside
itself.

Never: looks at a clock, does I/O, decides on its own that a binding has failed, gives an instance that was not opened.
"""

from rota.pools.ledger import Effect, GiveBack, Ledger, Lost, Recall, State
from rota.pools.request import Binding, Request
from rota.pools.units import Opened

__all__ = ["Binding", "Effect", "GiveBack", "Ledger", "Lost", "Opened", "Recall", "Request", "State"]
