"""Rota: a local-first scheduling control plane."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota import sync
    from rota.client import Client
    from rota.client.claims import Box, ClaimLost, CommandFailed, ExecFailed, NoneFree, Result
    from rota.client.jobs import Job, TaskFailed, TaskGone
    from rota.registry import ApiError

__all__ = [
    "ApiError",
    "Box",
    "ClaimLost",
    "Client",
    "CommandFailed",
    "ExecFailed",
    "Job",
    "NoneFree",
    "Result",
    "TaskFailed",
    "TaskGone",
    "__version__",
    "sync",
]
__version__ = "0.1.0"

_MODULES = {
    "ApiError": "rota.registry",
    "Client": "rota.client",
    **dict.fromkeys(("Box", "ClaimLost", "CommandFailed", "ExecFailed", "NoneFree", "Result"), "rota.client.claims"),
    **dict.fromkeys(("Job", "TaskFailed", "TaskGone"), "rota.client.jobs"),
}


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first used: `rota version` needs none of them."""
    import importlib

    if name == "sync":
        return importlib.import_module("rota.sync")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
