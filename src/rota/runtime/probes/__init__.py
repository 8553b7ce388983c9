"""Readiness and liveness probes of the containers that run on this host.

- *Ready* after one passed probe, until as many in a row have failed as the threshold says.
- *Alive* until as many in a row have failed. The caller restarts the container then; a new run is probed from the
  beginning.
- *Not its fault.* A probe that Rota could not make (no descriptor, no keeper) counts neither as passed nor as failed.
- *One at a time* for a container, and a bounded number over all, shared fairly by namespaces. Between two probes there
  is only a timer. Starts are spread, and drift apart.
- *Quiet.* Listeners are called when a verdict changes, not after each probe.

Never: dials another host than the instance itself, follows a redirect, restarts anything.
"""

from rota.runtime.probes.attempt import RunCommand
from rota.runtime.probes.probes import Probes
from rota.runtime.probes.state import PASSED, ProbeState, Result, Role, Verdict, failed, unknown

__all__ = ["PASSED", "ProbeState", "Probes", "Result", "Role", "RunCommand", "Verdict", "failed", "unknown"]
