"""What only an admin may ask for: what reaches beyond an instance's own sandbox, to the host."""

from __future__ import annotations

from typing import Any

from rota.api import Claim, Kind
from rota.registry import errors

FILE_SCHEME = "file://"
FREE = frozenset(("payload",))
"""Fields whose content is somebody else's, and means nothing here."""
RESTRICTED = "rota.dev/restricted"
"""Annotation of a claim whose maker is no admin: it gets nothing that is not isolated."""


def check(kind: Kind, new: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Raises Forbidden when an object asks for more of the host than it did before."""
    had = set(asked_for(old)) if old is not None else set()
    for path, why in asked_for(new).items():
        if path not in had:
            message = f"{path}: {why}; this takes a token of scope admin"
            raise errors.forbidden(kind, new["metadata"].get("name", ""), message)


def own(kind: Kind, new: dict[str, Any], old: dict[str, Any] | None, user: str) -> None:
    """A claim is on the account of who asks for it, and it is written down that this was no admin. In place."""
    if kind is not Claim.api:
        return
    if old is not None:
        if _mark(old) != _mark(new):
            raise errors.forbidden(kind, new["metadata"]["name"], f"metadata.annotations: {RESTRICTED} is the server's")
        return
    if new["spec"].setdefault("holder", user) != user:
        message = f'spec.holder: it is "{user}", as the token says; leave it out'
        raise errors.forbidden(kind, new["metadata"].get("name", ""), message)
    new["metadata"].setdefault("annotations", {})[RESTRICTED] = "true"


def _mark(obj: dict[str, Any]) -> str | None:
    mark: str | None = obj["metadata"].get("annotations", {}).get(RESTRICTED)
    return mark


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
            if key not in FREE:
                _walk(each, f"{path}.{key}", found)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            _walk(each, f"{path}[{i}]", found)
