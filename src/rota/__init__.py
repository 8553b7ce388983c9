"""Rota: a local-first scheduling control plane."""

from rota.client import Client
from rota.registry import ApiError

__all__ = ["ApiError", "Client", "__version__"]
__version__ = "0.1.0"
