"""Who asks, and what they may: tokens with scopes.

Tokens are random, shown once and kept only as hashes, in a file that only the server's user can read. What a scope
allows is one function, `allows`, asked for every request.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from rota.api import Kind
from rota.api.reviews import REVIEWS
from rota.registry.system import SYSTEM_NAMESPACE

Scope = Literal["admin", "deployer", "viewer", "worker", "cell", "function", "claim", "webhook", ""]
SCOPES: tuple[Scope, ...] = ("admin", "deployer", "viewer", "worker", "cell", "function")
"""Those of which tokens can be made. One of a claim comes with the claim."""
READ = frozenset(("get", "list", "watch"))
TOKENS_MAX = 10_000
KNOWN_TOKENS_MAX = 10_000
"""Tokens whose owner is remembered without hashing them again."""
BOUNDS = frozenset(("Quota",))
"""Kinds that say how much a namespace may have: an admin writes them, and not those who are bounded by them."""
CELL_NAMESPACE_PREFIX = "rota-cell-"
EXPIRES_SECONDS_MAX = 10 * 366 * 86400
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[-A-Za-z0-9_.@]{1,63}")


class HomeDamaged(OSError):  # noqa: N818
    """A file of the server's home is not what the server wrote."""


class User(msgspec.Struct, frozen=True):
    """Someone with a credential."""

    name: str
    scope: Scope
    namespace: str = ""
    """The one namespace that the credential is good for; empty: all. Of a cell: its own."""
    token_id: str = ""
    seconds_left: float = 0.0
    """How long the credential is still good; 0: for ever."""
    maker: str = ""
    """The id of the token with which this one was asked for, and with which it ends."""


class Token(msgspec.Struct, omit_defaults=True):
    """A token as it is kept: never the token itself."""

    id: str
    name: str
    scope: Scope
    hash: str
    created: int
    namespace: str = ""
    expires: int = 0
    """When it ends, in seconds since 1970; 0: never."""


class Tokens:
    """The tokens of one server, in one file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._known: dict[str, Token] = {}
        try:
            loaded = msgspec.json.decode(path.read_bytes(), type=list[Token]) if path.exists() else []
        except msgspec.DecodeError as error:
            raise HomeDamaged(
                f"{path} is damaged ({error}); put back a copy of it, or remove it: all tokens must then be made anew"
            ) from None
        self._by_hash = {token.hash: token for token in loaded}
        self._by_id: dict[str, Token] = {}
        """Made when it is needed."""

    def create(self, name: str, scope: Scope, *, namespace: str = "", expires_seconds: int = 0) -> tuple[str, Token]:
        """A new token: the secret, to be handed out once, and the record of it."""
        if len(self._by_hash) >= TOKENS_MAX:
            self._forget_expired()
        if len(self._by_hash) >= TOKENS_MAX:
            raise ValueError(f"there are {TOKENS_MAX} tokens already; revoke some")
        if scope not in SCOPES:
            raise ValueError(f"no scope {scope!r}; there are {', '.join(SCOPES)}")
        if not NAME.fullmatch(name):
            raise ValueError("a token's name has 1 to 63 letters, digits, '-', '_', '.' or '@'")
        if expires_seconds < 0 or expires_seconds > EXPIRES_SECONDS_MAX:
            raise ValueError(f"a token is good for at most {EXPIRES_SECONDS_MAX} seconds; 0: for ever")
        if scope == "admin" and namespace:
            raise ValueError("an admin's token is for all namespaces; a deployer's can be for one")
        if scope == "cell" and not namespace.startswith(CELL_NAMESPACE_PREFIX):
            raise ValueError(f"a cell's token is for its own namespace, {CELL_NAMESPACE_PREFIX}NAME")
        if namespace and not NAMESPACE.fullmatch(namespace):
            raise ValueError(f"{namespace!r} cannot be a namespace: that has 1 to 63 letters a-z, digits and '-'")
        if namespace == SYSTEM_NAMESPACE:
            raise ValueError(f"{SYSTEM_NAMESPACE} is the server's own: an admin's token reaches it, and no other")
        now = int(self._clock())
        secret = f"rota-{secrets.token_urlsafe(32)}"
        expires = now + expires_seconds if expires_seconds else 0
        token = Token(secrets.token_hex(6), name, scope, _hash(secret), now, namespace, expires)
        self._by_hash[token.hash] = token
        self._by_id.clear()
        self._save()
        return secret, token

    def _forget_expired(self) -> None:
        now = self._clock()
        self._by_hash = {hash_: one for hash_, one in self._by_hash.items() if not one.expires or one.expires > now}
        self._forget_known()

    def _forget_known(self) -> None:
        self._known.clear()
        self._by_id.clear()

    def list(self) -> list[Token]:
        return sorted(self._by_hash.values(), key=lambda token: (token.created, token.id))

    def revoke(self, token_id: str) -> bool:
        """End a token, for every request that comes after. False when there is none of this id."""
        found = next((token for token in self._by_hash.values() if token.id == token_id), None)
        if found is None:
            return False
        del self._by_hash[found.hash]
        self._forget_known()
        self._save()
        return True

    def user(self, secret: str) -> User | None:
        """Whose token this is; None when it is nobody's (any more)."""
        token = self._known.get(secret)
        if token is None:
            token = self._by_hash.get(_hash(secret))
            if token is None:
                return None
            if len(self._known) >= KNOWN_TOKENS_MAX:
                self._known.clear()
            self._known[secret] = token
        left = self._left(token)
        return None if left is None else User(token.name, token.scope, token.namespace, token.id, left)

    def bounded(self, user: User) -> User | None:
        """Somebody whose credential was asked for with a token, for as long as that is good; None when it is not."""
        if not user.maker:
            return user
        if not self._by_id:
            self._by_id = {token.id: token for token in self._by_hash.values()}
        token = self._by_id.get(user.maker)
        left = self._left(token) if token is not None else None
        return None if left is None else msgspec.structs.replace(user, seconds_left=left)

    def _left(self, token: Token) -> float | None:
        """The seconds for which a token is good; 0: for ever; None: it is not."""
        if not token.expires:
            return 0.0
        left = token.expires - self._clock()
        return left if left > 0 else None

    def expired(self, secret: str) -> str:
        """The id of a token that was good once; empty if it is none of those that are kept."""
        token = self._by_hash.get(_hash(secret))
        return token.id if token is not None and token.expires and token.expires <= self._clock() else ""

    def _save(self) -> None:
        write_private(self._path, msgspec.json.encode(list(self._by_hash.values())))


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a plain hash cannot be reversed by guessing.
    return hashlib.sha256(secret.encode()).hexdigest()


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that nobody else may read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def allows(user: User, verb: str, kind: Kind, namespace: str, name: str = "", subresource: str = "") -> bool:
    """Whether a scope may do this to an object, there. `namespace` is empty for all of them, and for cluster kinds."""
    if user.scope == "admin":
        return True
    if kind in REVIEWS:
        return verb == "create"  # Everyone may ask about themselves.
    if SYSTEM_NAMESPACE in (namespace, name if kind.name == "Namespace" else ""):
        return False
    if subresource == "exec":
        # As good as to be what runs there: for those who say what runs there.
        owns = user.scope == "deployer" and namespace and user.namespace in ("", namespace)
        return bool(owns) and verb == "create" and kind.name == "Instance"
    if user.scope == "cell":
        return _cell_allows(user, verb, kind, namespace, name, subresource)
    inside = not user.namespace or namespace == user.namespace
    if kind.name == "Namespace" and user.namespace and verb == "get" and name != user.namespace:
        return False  # Which others there are is not for them to know.
    if user.scope == "viewer":
        return verb in READ and kind.name != "Secret" and (inside or not kind.namespaced)
    if user.scope == "deployer":
        if subresource == "status" and verb not in READ:
            return False  # What is, is for controllers to say.
        if not kind.namespaced:
            return verb in READ or (kind.name == "Namespace" and verb == "create" and not user.namespace)
        return inside and (verb in READ or not (kind.made or kind.name in BOUNDS))
    # Workers have their stream, and function keys their function: neither has objects.
    return False


def sight(user: User, kind: Kind, namespace: str) -> str:
    """A field selector for what somebody sees of a list that they may have; empty: all of it."""
    if user.scope == "admin":
        return ""
    if kind.name == "Namespace":
        return f"metadata.name={user.namespace}" if user.namespace else f"metadata.name!={SYSTEM_NAMESPACE}"
    return f"metadata.namespace!={SYSTEM_NAMESPACE}" if kind.namespaced and not namespace else ""


def _cell_allows(user: User, verb: str, kind: Kind, namespace: str, name: str, subresource: str) -> bool:
    """A cell has its own namespace, reports on its own Cell by its status, and reads what the cluster offers."""
    if kind.namespaced:
        return namespace == user.namespace
    if kind.name == "Cell" and verb in ("update", "patch"):
        return subresource == "status" and name == user.namespace.removeprefix(CELL_NAMESPACE_PREFIX)
    return kind.name in ("Cell", "Location", "InstanceType") and verb in READ
