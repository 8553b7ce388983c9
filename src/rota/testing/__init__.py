"""Tests of your own projects: a whole project in memory, under a virtual clock. A month of cron takes a moment.

    from rota.testing import Project

    def test_the_month():
        with Project("rota.yaml", at="2026-03-01T00:00:00Z") as project:
            project.advance(days=31)
            assert len(project.runs("report.nightly")) == 31

- *The real control plane.* The registry with its rules, `rota deploy` of the project file, and all controllers of a
  server, wired by the same class (`rota.control.leading`), with their queues, leases, locks, retries and scaling.
- *Virtual time.* Time passes only when a test advances it, and everything due is done at its time.
- *Handlers are called in this process*, with the variables of their function. Commands, prompts, and functions without
  code here succeed at once without a result, unless the test has a stand-in for them (`Project.on`).
- *Repeatable.* The same test has the same names, uids and delays on every run.
- *Nothing is left.* No process is started and no socket opened, and no thread or task outlives the `with`.

Handlers are not sandboxed: they may dial, write files and read the machine's clock. Webhooks and trackers are not
simulated, and nothing can be run in a claimed instance.
"""

from rota.manifest import ManifestError
from rota.manifest.deploy import DeployRefused
from rota.testing.async_project import AsyncProject
from rota.testing.performer import Result
from rota.testing.project import Project
from rota.testing.record import Call, Run
from rota.testing.verbs import NotIdle

__all__ = ["AsyncProject", "Call", "DeployRefused", "ManifestError", "NotIdle", "Project", "Result", "Run"]
