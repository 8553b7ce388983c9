"""One async client for every place where Rota's objects are.

Promises: the same verbs, types and refusals on every backend, so that what runs on a laptop's store runs on a
cluster's API server; a cache that misses no change and repeats none.

Never: holds semantics of its own (those are the registry's, or the API server's), retries what may have happened
already.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client.backend import Backend
    from rota.client.cache import Cache, Key, Update
    from rota.client.client import ALL_NAMESPACES, Change, Client, ObjectList, status_body, to_dict
    from rota.client.failures import ConnectionFailed, NoServer
    from rota.client.http import HttpBackend
    from rota.client.local import LocalBackend
    from rota.client.target import KubeconfigError
    from rota.registry import Operation

__all__ = [
    "ALL_NAMESPACES",
    "Backend",
    "Cache",
    "Change",
    "Client",
    "ConnectionFailed",
    "HttpBackend",
    "Key",
    "KubeconfigError",
    "LocalBackend",
    "NoServer",
    "ObjectList",
    "Operation",
    "Update",
    "status_body",
    "to_dict",
]

_MODULES = {
    "backend": ("Backend", "Operation"),
    "cache": ("Cache", "Key", "Update"),
    "client": ("ALL_NAMESPACES", "Change", "Client", "ObjectList", "status_body", "to_dict"),
    "failures": ("ConnectionFailed", "NoServer"),
    "http": ("HttpBackend",),
    "local": ("LocalBackend",),
    "target": ("KubeconfigError",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first used: a runner is started for each worker, and needs none of them."""
    import importlib

    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return found
