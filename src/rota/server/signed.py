"""Tokens of which nothing is kept: one names an object by its uid, and is good for as long as that is there."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from rota.runtime.interface import Subject
from rota.server.auth import HomeDamaged, Scope, User, write_private

KEY_BYTES = 32


class SignedTokens:
    """A token is an object's namespace, name and uid with a signature that only this server can make."""

    def __init__(self, path: Path, scope: Scope) -> None:
        if not path.exists():
            write_private(path, secrets.token_bytes(KEY_BYTES))
        self._key = path.read_bytes()
        if len(self._key) < KEY_BYTES:
            # With a key that is known anybody could make tokens.
            raise HomeDamaged(
                f"{path} is damaged: it has {len(self._key)} of {KEY_BYTES} bytes. Put back a copy of it, or remove it:"
                " tokens of claims and of workers that run are then no longer good"
            )
        self._scope: Scope = scope
        self._prefix = f"rota-{scope}-"

    def of(self, subject: Subject) -> str:
        return f"{self._prefix}{'/'.join(subject)}/{self._signature(subject)}"

    def user(self, secret: str) -> User | None:
        """Whose token this is; None when this server did not make it."""
        if not secret.startswith(self._prefix):
            return None
        parts = secret.removeprefix(self._prefix).split("/")
        if len(parts) != len(Subject._fields) + 1:
            return None
        subject = Subject(*parts[:-1])
        if not hmac.compare_digest(parts[-1].encode(), self._signature(subject).encode()):
            return None
        return User(subject.name, self._scope, subject.namespace, subject.uid)

    def _signature(self, subject: Subject) -> str:
        # The scope is part of it: a token of one is none of another.
        return hmac.digest(self._key, f"{self._scope}:{'/'.join(subject)}".encode(), "sha256").hex()
