"""Reasons for not being ready that stay until somebody acts. `rota plan` keeps objects with one as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rota.api import Function, Instance, Object, Task, TaskSpawner
from rota.control.functions.preparing import FAILURES as PREPARING
from rota.control.instances.reasons import TABLE
from rota.control.spawners.apis import API_NOT_ALLOWED
from rota.runtime.runner.invoker import COMMAND_NOT_FOUND, IMPORT_FAILED, TIMED_OUT

INSTANCE: Final = frozenset(one.name for one in TABLE if one.band in ("quota", "failure") and one.name != "Stopped")
LOADING: Final = frozenset((IMPORT_FAILED, TIMED_OUT, COMMAND_NOT_FOUND))
SPAWNER: Final = frozenset(
    (API_NOT_ALLOWED, "TemplateError", "InvalidTask", "CredentialsRefused", "Forbidden", "NoSuchRepository")
)
PERSISTENT: Final[Mapping[str, frozenset[str]]] = {
    Instance.api.name: INSTANCE,
    Task.api.name: INSTANCE,
    Function.api.name: INSTANCE | PREPARING | LOADING,
    TaskSpawner.api.name: SPAWNER,
}
"""The persistent reasons of each kind. Kinds such as WorkerPool have none: they are as ready as their instances."""


def is_persistent(obj: Object) -> bool:
    """Report whether an object's status says that it will not become ready by itself."""
    state, reason, _ = obj.readiness()
    return state == "Failed" or (state == "Pending" and reason in PERSISTENT.get(obj.api.name, ()))
