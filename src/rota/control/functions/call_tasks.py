"""The Tasks of calls: their labels, and how they are created on a server that refuses a uid or status in a new object.

On such a server a call is recorded in two writes. The first creates its Task with the status in an annotation. The
second writes the status; the leading process repeats it until it is done. So a crash between the two loses nothing, and
the Task controller does not repeat the call.

Anybody who may create Tasks may set the annotation, too, and so create a Task that is over.
"""

from __future__ import annotations

import re

import msgspec

from rota.api import Task
from rota.api.problems import NOT_JSON
from rota.api.task import TaskStatus
from rota.control.instances.names import derived

FUNCTION_LABEL = "rota.dev/function"
"""Label of every Task that calls a function, whoever created it."""
CALL_LABEL = "rota.dev/call"
WAITED_FOR = "waited-for"
"""The value of CALL_LABEL of a synchronous call."""
ENDED = "rota.dev/ended"
"""Annotation: the status of a call that is over, as JSON."""
KEPT_AS = "rota.dev/kept-as"
"""Annotation: the uid under which the log and the result of a call are kept, which is not that of the Task."""
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_status = msgspec.json.Decoder(TaskStatus).decode


def label_of(function: str) -> dict[str, str]:
    return {FUNCTION_LABEL: derived(function)}


def as_created(task: Task) -> Task:
    """Return the Task of a call in the form of the first write: uid and status are in annotations."""
    meta = task.metadata
    marks = {**meta.annotations, ENDED: msgspec.json.encode(task.status).decode(), KEPT_AS: meta.uid}
    return msgspec.structs.replace(task, metadata=msgspec.structs.replace(meta, uid="", annotations=marks), status=None)


def ended_status(task: Task) -> TaskStatus | None:
    """Return the status in the annotation of a call's Task; None: it has none, or an invalid one."""
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
