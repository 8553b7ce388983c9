"""What only an admin may ask for: what reaches beyond an instance's own sandbox, to the host."""

from __future__ import annotations

from typing import Any

from rota.api import Kind
from rota.registry import errors

FILE_SCHEME = "file://"


def check(kind: Kind, new: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Raises Forbidden when an object asks for more of the host than it did before."""
    had = set(asked_for(old)) if old is not None else set()
    for path, why in asked_for(new).items():
        if path not in had:
            message = f"{path}: {why}; this takes a token of scope admin"
            raise errors.forbidden(kind, new["metadata"].get("name", ""), message)


def asked_for(obj: dict[str, Any]) -> dict[str, str]:
    """The fields of an object that reach the host, and how."""
    found: dict[str, str] = {}
    _walk(obj.get("spec"), "spec", found)
    return found


def _walk(value: Any, path: str, found: dict[str, str]) -> None:
    if isinstance(value, dict):
        if value.get("isolation") == "none":
            found[f"{path}.isolation"] = "without a sandbox it is as powerful as the server"
        for key in ("repo", "url"):
            if isinstance(address := value.get(key), str) and address.startswith(FILE_SCHEME):
                found[f"{path}.{key}"] = "a repository of this host is read with the rights of the server"
        for key, each in value.items():
            _walk(each, f"{path}.{key}", found)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            _walk(each, f"{path}[{i}]", found)
