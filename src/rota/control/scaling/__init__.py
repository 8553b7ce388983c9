"""The autoscaler of pools: the number of instances that the demand for them needs.

- *Growth at once.* One instance for each holder and each waiting request, and `targetIdle` more. All that are missing
  are added in one step.
- *Shrinking late, and in a batch.* The most that was needed within the last `scaleDownSeconds` stays, so that a load
  that comes and goes finds the same instances.
- *Bounds.* Never fewer than `min`, never more than `max`.
- *Failures do not breed.* A crashing instance has a stand-in only while another one is held; an instance that never
  started has none.
- *A restart loses nothing.* All instances that are there after a restart count as needed until then.

Never: reads a clock or an object; decides which instance goes.
"""

from rota.control.scaling.autoscaler import Autoscaler
from rota.control.scaling.planner import Decision, Load, Peak, decide, initial_history, needed

__all__ = ["Autoscaler", "Decision", "Load", "Peak", "decide", "initial_history", "needed"]
