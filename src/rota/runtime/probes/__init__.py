"""How a container tells that it is ready, and that it is alive.

- *Ready* after one probe that passed, and until so many in a row failed as its threshold says. Ready again after one.
- *Alive* until so many in a row failed. Whoever runs it starts it anew then; a new run is probed from the beginning.
- *Not its fault*: what Rota could not do (no descriptor, no keeper) says nothing of the container, and counts for
  nothing. Neither does a probe that waits for its turn.
- *One at a time* for a container, and a bounded number over all. Between two probes nothing is there but a timer.
  Starts are spread, and drift apart.
- *Quiet*: who listens is told when a verdict is another one, not of every probe.

Never: dials another host than the instance itself, follows a redirect, restarts anything.
"""

from rota.runtime.probes.attempt import RunCommand
from rota.runtime.probes.probes import Probes
from rota.runtime.probes.state import PASSED, ProbeState, Result, Role, Verdict, failed, unknown

__all__ = ["PASSED", "ProbeState", "Probes", "Result", "Role", "RunCommand", "Verdict", "failed", "unknown"]
