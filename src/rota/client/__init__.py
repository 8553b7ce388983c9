"""One async client for all places of objects: a registry in this process, a Rota server, a Kubernetes API server.

- *One behaviour.* All backends have the same verbs and types, and raise the same errors.
- *No second write.* The client never repeats a write that may have been carried out.
- *A complete cache.* `Cache` reports every change once and in order, also after lost connections and lost history.
- *Bounded.* Connections, streams, heads and answers have limits, so that no server can exhaust this process.

Never: has semantics of its own (those are the registry's, or the API server's).
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
