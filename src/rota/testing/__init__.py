"""Tests of your own projects: a whole project in memory, under a clock that jumps. A month of cron takes a moment.

    from rota.testing import Project

    def test_the_month():
        with Project("rota.yaml", at="2026-03-01T00:00:00Z") as project:
            project.advance(days=31)
            assert len(project.runs("report.nightly")) == 31

What is real: the registry with its admission, defaults and rules; `rota deploy` of the project file; and all
controllers of a server, wired as a server wires them (`rota.control.leading`): schedules, tasks, claims, functions and
pools, with their queues, leases, locks, retries and scaling.

What is replaced: time, which passes when a test says so; the runtime, whose instances only seem to run; and the
runners of workers. Python handlers are imported from where the project has their code, and called in this process, with
the variables of their function. Commands, prompts, and functions whose code is not here are done by what the test puts
in their place (`Project.on`), and otherwise succeed at once, with no result.

Never: starts a process, opens a socket, waits, or leaves a thread or task behind. What a handler does by itself it
does in earnest: it may dial, write files, and ask the machine for the time.

Webhooks and trackers are not listened to, and nothing can be run in what a claim holds.
"""

from rota.manifest import ManifestError
from rota.manifest.deploy import DeployRefused
from rota.testing.async_project import AsyncProject
from rota.testing.performer import Result
from rota.testing.project import Project
from rota.testing.record import Call, Run
from rota.testing.verbs import NotIdle

__all__ = ["AsyncProject", "Call", "DeployRefused", "ManifestError", "NotIdle", "Project", "Result", "Run"]
