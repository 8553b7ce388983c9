"""Calls that are over, as Tasks on a server that takes neither a uid nor a status with a new object.

A call is then written in two steps. The first creates its Task, under the call's own name, with the status that it will
have as an annotation. The second writes that status; whoever leads does so, as often as it is missing. So a crash
between the two leaves nothing undone, and the call is never made again by the controller of Tasks.

Whoever may create Tasks may write the annotation, too, and have a Task that says of itself how it ended.
"""

from __future__ import annotations

import re

import msgspec

from rota.api import Task
from rota.api.problems import NOT_JSON
from rota.api.task import TaskStatus

CALL_LABEL = "rota.dev/call"
WAITED_FOR = "waited-for"
"""The value that the label of a call has that somebody waited for."""
ENDED = "rota.dev/ended"
"""Annotation: the status of a call that is over, as JSON."""
KEPT_AS = "rota.dev/kept-as"
"""Annotation: the uid under which the log and the result of a call are kept. Its Task got another one."""
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_status = msgspec.json.Decoder(TaskStatus).decode


def as_created(task: Task) -> Task:
    """Return the Task that is created for a call: without uid and status, with both as annotations."""
    meta = task.metadata
    marks = {**meta.annotations, ENDED: msgspec.json.encode(task.status).decode(), KEPT_AS: meta.uid}
    return msgspec.structs.replace(task, metadata=msgspec.structs.replace(meta, uid="", annotations=marks), status=None)


def ended_status(task: Task) -> TaskStatus | None:
    """Return the status that a Task is to have that was created for a call; None: it is no such Task."""
    said = task.metadata.annotations.get(ENDED)
    if said is None or not _is_call(task):
        return None
    try:
        status = _status(said.encode())
    except NOT_JSON:
        return None
    return status if msgspec.structs.replace(task, status=status).over() else None


def kept_uid(task: Task) -> str:
    """Return the uid under which the log and the result of a Task are kept."""
    said = task.metadata.annotations.get(KEPT_AS, "") if _is_call(task) else ""
    return said if UID.fullmatch(said) else task.metadata.uid


def _is_call(task: Task) -> bool:
    return task.spec.function is not None and task.metadata.labels.get(CALL_LABEL) == WAITED_FOR
