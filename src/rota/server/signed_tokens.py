"""Signed tokens of objects. They are not stored: each names an object by its uid, and is valid as long as that exists.

A token can also name the token that requested it, and then ends with that.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path

from rota.runtime.interface import Subject
from rota.server.auth import Scope, User, read_key


class SignedTokens:
    """Tokens with an object's namespace, name and uid, signed by this server."""

    def __init__(self, path: Path, scope: Scope) -> None:
        self._key = read_key(path)
        self._scope: Scope = scope
        self._prefix = f"rota-{scope}-"

    def of(self, subject: Subject, maker: str = "") -> str:
        """Return a token. `maker` is the id of the token that requests it; empty for the server's own user."""
        named = (*subject, maker) if maker else subject
        return f"{self._prefix}{'/'.join(named)}/{self._signature(named)}"

    def user(self, secret: str) -> User | None:
        """Return the user of a token; None if this server did not make it."""
        if not secret.startswith(self._prefix):
            return None
        *named, signature = secret.removeprefix(self._prefix).split("/")
        if len(named) - len(Subject._fields) not in (0, 1):
            return None
        if not hmac.compare_digest(signature.encode(), self._signature(named).encode()):
            return None
        subject = Subject(*named[: len(Subject._fields)])
        maker = "".join(named[len(Subject._fields) :])
        return User(subject.name, self._scope, subject.namespace, subject.uid, maker=maker)

    def _signature(self, named: Sequence[str]) -> str:
        # Signed with the scope, so that a token of one scope is not valid for another.
        return hmac.digest(self._key, f"{self._scope}:{'/'.join(named)}".encode(), "sha256").hex()
