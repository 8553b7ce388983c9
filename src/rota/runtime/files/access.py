"""The files of one container of an Instance, for whoever may ask."""

from __future__ import annotations

from rota.runtime.files.model import Files
from rota.runtime.files.program import Program
from rota.runtime.files.shell import Tools
from rota.runtime.interface import HasFiles, Subject


def files_of(runtime: HasFiles, subject: Subject, container: str) -> Files:
    """The files of a container that runs. Raises NotRunning."""
    reach = runtime.reach(subject, container)
    if reach.python:
        return Program(runtime, subject, container, reach)
    return Tools(runtime, subject, container)
