"""Rota: a local-first scheduling control plane."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client import Client
    from rota.registry import ApiError

__all__ = ["ApiError", "Client", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What is exported, imported when it is first used: `rota version` needs none of it."""
    if name == "Client":
        from rota.client import Client

        return Client
    if name == "ApiError":
        from rota.registry import ApiError

        return ApiError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
