"""How many instances a pool has that scales by demand.

- *Growth at once.* As many as are held, and one for each that waits, and `targetIdle` more: by all that is lacking, not
  by one.
- *Shrinking late, and in a batch.* What was needed at any moment of the last `scaleDownSeconds` stays, so that a load
  which comes and goes meets the same instances.
- *Bounds.* Never fewer than `min`, never more than `max`.
- *Failures do not breed.* An instance that keeps crashing has a stand-in only while another one is at work; what never
  came up has none.
- *Forgetting is safe.* After a restart everything that is there counts as needed until then.

Never: reads a clock or an object; decides which instance goes.
"""

from rota.control.scaling.book import Book
from rota.control.scaling.planner import Decision, Load, Peak, began, decide, needed

__all__ = ["Book", "Decision", "Load", "Peak", "began", "decide", "needed"]
