"""Tokens of which nothing is kept: one names an object by its uid, and is good for as long as that is there.

It can also name the token with which it was asked for, and is then good for no longer than that.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path

from rota.runtime.interface import Subject
from rota.server.auth import Scope, User, read_key


class SignedTokens:
    """A token is an object's namespace, name and uid with a signature that only this server can make."""

    def __init__(self, path: Path, scope: Scope) -> None:
        self._key = read_key(path)
        self._scope: Scope = scope
        self._prefix = f"rota-{scope}-"

    def of(self, subject: Subject, maker: str = "") -> str:
        """`maker`: the id of the token with which it is asked for; empty: the user of the server asks."""
        named = (*subject, maker) if maker else subject
        return f"{self._prefix}{'/'.join(named)}/{self._signature(named)}"

    def user(self, secret: str) -> User | None:
        """Whose token this is; None when this server did not make it."""
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
        # The scope is part of it: a token of one is none of another.
        return hmac.digest(self._key, f"{self._scope}:{'/'.join(named)}".encode(), "sha256").hex()
