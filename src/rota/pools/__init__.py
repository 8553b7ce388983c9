"""The ledger of a pool: which request holds which instance, which requests wait, and which is bound next.

Requests of tasks and of claims are treated alike. An executor calls the ledger for every event, carries out the effects
that the ledger leaves in `effects`, and reports the result of each. A request is in one state: waiting, binding, held,
ending. The ledger forgets a request that is over.

- *Nothing waits that could be served.* Every event leaves the bindings that it makes possible, at once.
- *In order.* Higher priority first, then the holder with the fewest instances now, then arrival; first come, first
  served within a holder. A request that has to be bound again keeps its place. No request overtakes the first one.
- *Never twice.* A request is on one instance at most, from the decision until its end is written or its instance is
  gone. An instance has one hold, or several of requests that share it.
- *Not behind a long one.* Requests that share an instance are handed to it before it is free only while runs are short
  and no instance is idle. A request that has not begun is recalled when the one before it turns out to be long, or when
  a request of higher priority waits.
- *Cancelled at any instant.* If a request is cancelled while it is being bound, the binding is ended as soon as it is
  written.
- *Forgets nothing, keeps nothing.* A ledger that is rebuilt from the store, by `hold` and `request`, goes on in the
  same way. Nothing is kept of requests and instances that are gone. A report that is repeated, late, or about something
  unknown changes nothing.

With n requests of h holders waiting, an event costs O(log n + log h). The ledger needs some 230 bytes for each waiting
request, beside the request itself.

Never: looks at a clock, does I/O, decides on its own that a binding has failed, binds an instance that was not opened.
"""

from rota.pools.ledger import Effect, GiveBack, Ledger, Lost, Recall, State
from rota.pools.request import Binding, Request
from rota.pools.units import Opened

__all__ = ["Binding", "Effect", "GiveBack", "Ledger", "Lost", "Opened", "Recall", "Request", "State"]
