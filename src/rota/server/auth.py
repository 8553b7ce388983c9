"""Authentication and authorization: tokens with scopes, or with a Role.

Tokens are random, shown once and stored only as hashes, in a file that only the server's user can read. Short-lived
ones are signed instead, and not stored. One function, `allows`, decides for every request what a scope or a Role
permits.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from rota.api import GROUP, Kind
from rota.api.reviews import REVIEWS
from rota.registry.core_kinds import CREATED_BY_UPDATE
from rota.registry.roles import Rules, allow
from rota.registry.system import CELL_NAMESPACE_PREFIX, SYSTEM_NAMESPACE

Scope = Literal[
    "admin", "deployer", "viewer", "worker", "cell", "join", "function", "role", "claim", "webhook", "hub", ""
]
SCOPES: tuple[Scope, ...] = ("admin", "deployer", "viewer", "worker", "cell", "function")
"""Scopes for which tokens can be made. A claim comes with its own token, and a Role replaces the scope.

`hub` belongs to no token: it stands for a user of the hub who reaches an instance that this cell runs for it.
"""
CALL = "call"
"""The part of a Function for calls at the edge."""
ENTERED = ("exec", "files")
"""The parts of an Instance that lead inside it: users of them act with the rights of its processes."""
READ = frozenset(("get", "list", "watch"))
TOKENS_MAX = 10_000
KNOWN_TOKENS_MAX = 10_000
"""Tokens whose hash is cached."""
BOUNDS = frozenset(("Quota",))
"""Kinds that limit a namespace. Only admins write them: tenants must not change their own limits."""
EXPIRES_SECONDS_MAX = 10 * 366 * 86400
KEY_BYTES = 32
NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT))
BRIEF_SECONDS_MAX = 86400
"""The longest lifetime of a signed token. A longer one needs a stored token, which can be listed."""
BRIEF_PREFIX = "rota-brief-"
ID_RANDOM_DIGITS = 12
ID_MAC_DIGITS = 8
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[-A-Za-z0-9_.@]{1,63}")


class HomeDamaged(OSError):  # noqa: N818
    """A file of the server's home has unexpected content."""


class User(msgspec.Struct, frozen=True):
    """The holder of a credential."""

    name: str
    scope: Scope
    namespace: str = ""
    """The only namespace of the credential; empty for all. A cell has its own."""
    token_id: str = ""
    seconds_left: float = 0.0
    """The remaining lifetime of the credential; 0 if it does not expire."""
    role: str = ""
    """The Role, in its namespace, that decides what the credential allows."""
    rules: Rules = ()
    """The rules of that Role now."""
    maker: str = ""
    """The id of the token that requested this credential, which ends with it."""
    cell: str = ""
    """The uid of its Cell, with which it ends; empty if it belongs to none."""
    namespace_uid: str = ""
    """The uid of its Namespace, with which it ends. Empty if it has none, or if the Namespace did not exist when it was
    made."""

    @property
    def share_key(self) -> str:
        """The key of its share of limited resources. Credentials that one token has requested share with it."""
        return self.maker or self.token_id

    @property
    def role_path(self) -> str:
        """The namespace and name of its Role; empty if it has none."""
        return f"{self.namespace}/{self.role}" if self.role else ""


class Token(msgspec.Struct, omit_defaults=True):
    """A token as it is stored, without its secret."""

    id: str
    name: str
    scope: Scope
    hash: str
    created: int
    namespace: str = ""
    expires: int = 0
    """The end of its lifetime, in seconds since 1970; 0 if it does not expire."""
    role: str = ""
    cell: str = ""
    """The uid of its Cell, with which it ends: a new Cell of the same name has another uid."""
    namespace_uid: str = ""
    """The uid of its Namespace, with which it ends. Empty if the Namespace did not exist when it was made."""


class Tokens:
    """The tokens of one server, in one file.

    What is made or revoked counts at once, and is stored by `save`, which is awaited before anybody is answered.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        rules: Callable[[str, str], Rules] = lambda namespace, role: (),
        cells: Callable[[str], str] = lambda namespace: "",
        namespaces: Callable[[str], str] = lambda namespace: "",
    ) -> None:
        """Read the stored tokens.

        rules       returns the present rules of a Role of a namespace
        cells       returns the uid of the Cell of a namespace
        namespaces  returns the uid of a Namespace by its name; empty: there is none
        """
        self._clock = clock
        self._rules = rules
        self._cells = cells
        self._namespaces = namespaces
        self._brief = BriefTokens(path.with_name("token.key"), path.with_name("revoked.json"), clock)
        self._file = PrivateFile(path, lambda: msgspec.json.encode(list(self._by_hash.values())))
        self._known: dict[str, Token] = {}
        try:
            loaded = msgspec.json.decode(path.read_bytes(), type=list[Token]) if path.exists() else []
        except msgspec.DecodeError as error:
            raise HomeDamaged(
                f"{path} is damaged ({error}); put back a copy of it, or remove it: all tokens must then be made anew"
            ) from None
        self._by_hash = {token.hash: token for token in loaded}
        self._by_id: dict[str, Token] = {}
        """Filled at its first use."""

    def create(
        self,
        name: str,
        scope: Scope,
        *,
        namespace: str = "",
        expires_seconds: int = 0,
        role: str = "",
        cell: str = "",
    ) -> tuple[str, Token]:
        """Create a token. Returns its secret, which is shown once, and its record."""
        self._check(name, scope, namespace, expires_seconds, role)
        return self._keep(name, scope, namespace, expires_seconds, role, cell)

    def _keep(
        self, name: str, scope: Scope, namespace: str, expires_seconds: int, role: str, cell: str
    ) -> tuple[str, Token]:
        if len(self._by_hash) >= TOKENS_MAX:
            self._forget_expired()
        if len(self._by_hash) >= TOKENS_MAX:
            raise ValueError(f"there are {TOKENS_MAX} tokens already; revoke some")
        now = int(self._clock())
        secret = f"rota-{secrets.token_urlsafe(32)}"
        expires = now + expires_seconds if expires_seconds else 0
        place = self._place(scope, namespace)
        token = Token(secrets.token_hex(6), name, scope, _hash(secret), now, namespace, expires, role, cell, place)
        self._by_hash[token.hash] = token
        self._by_id.clear()
        self._file.is_due = True
        return secret, token

    def sign(self, name: str, scope: Scope, *, seconds: int, namespace: str = "", role: str = "") -> tuple[str, Token]:
        """Create a short-lived token, of which nothing is stored."""
        self._check(name, scope, namespace, seconds, role)
        if scope == "cell":
            raise ValueError(
                "a cell's token is kept: it ends when the cell joins again, or is removed; leave out the ttl"
            )
        place = self._place(scope, namespace)
        token = Token("", name, scope, "", int(self._clock()), namespace, role=role, namespace_uid=place)
        return self._brief.sign(token, seconds)

    def _place(self, scope: Scope, namespace: str) -> str:
        """Return the uid of the Namespace with which a new token ends. A cell's ends with its Cell."""
        return self._namespaces(namespace) if namespace and scope not in ("cell", "join") else ""

    def invite(self, name: str, namespace: str, *, seconds: int, cell: str) -> tuple[str, Token]:
        """Create a token with which one cell can join, and do nothing else. Earlier invitations of the cell end.

        `cell` is the uid of the Cell.
        """
        is_earlier = {
            hash_ for hash_, one in self._by_hash.items() if (one.scope, one.namespace) == ("join", namespace)
        }
        self._by_hash = {hash_: one for hash_, one in self._by_hash.items() if hash_ not in is_earlier}
        self._forget_known()
        return self._keep(name, "join", namespace, seconds, "", cell)

    @staticmethod
    def _check(name: str, scope: Scope, namespace: str, expires_seconds: int, role: str) -> None:
        if scope not in (("role",) if role else SCOPES):
            instead = "a token of a Role has no scope beside it" if role else f"there are {', '.join(SCOPES)}"
            raise ValueError(f"no scope {scope!r}; {instead}")
        if role and not namespace:
            raise ValueError("a Role is of one namespace: say which, with -n")
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
        """Revoke a token for all further requests. Returns False if there is none of this id."""
        if self._brief.revoke(token_id):
            return True
        found = next((token for token in self._by_hash.values() if token.id == token_id), None)
        if found is None:
            return False
        del self._by_hash[found.hash]
        self._forget_known()
        self._file.is_due = True
        return True

    def user(self, secret: str) -> User | None:
        """Return the user of a token, or None if it is not valid."""
        user = self._brief.user(secret) if self._brief.is_one(secret) else self._kept(secret)
        if user is not None and user.cell and user.cell != self._cells(user.namespace):
            return None
        if user is not None and user.namespace_uid and user.namespace_uid != self._namespaces(user.namespace):
            return None
        if user is None or not user.role:
            return user
        return msgspec.structs.replace(user, rules=self._rules(user.namespace, user.role))

    def _kept(self, secret: str) -> User | None:
        token = self._known.get(secret)
        if token is None:
            token = self._by_hash.get(_hash(secret))
            if token is None:
                return None
            if len(self._known) >= KNOWN_TOKENS_MAX:
                self._known.clear()
            self._known[secret] = token
        left = self._left(token)
        return None if left is None else _user(token, left)

    def bounded(self, user: User) -> User | None:
        """Limit a credential to the lifetime of the token that requested it. Returns None if that has ended."""
        if not user.maker:
            return user
        if not self._by_id:
            self._by_id = {token.id: token for token in self._by_hash.values()}
        token = self._by_id.get(user.maker)
        left = self._left(token) if token is not None else self._brief.left(user.maker)
        return None if left is None else msgspec.structs.replace(user, seconds_left=left)

    def _left(self, token: Token) -> float | None:
        """Return the remaining seconds of a token: 0 if it does not expire, None if it has expired."""
        if not token.expires:
            return 0.0
        left = token.expires - self._clock()
        return left if left > 0 else None

    def expired(self, secret: str) -> str:
        """Return the id of a token if it has expired. Empty if it has not, or is unknown."""
        if self._brief.is_one(secret):
            return self._brief.former(secret)
        token = self._by_hash.get(_hash(secret))
        return token.id if token is not None and token.expires and token.expires <= self._clock() else ""

    async def save(self) -> None:
        """Store what was made or revoked until now, and is not stored yet. Raises OSError; then the next call does."""
        await self._file.save()
        await self._brief.save()


class BriefTokens:
    """Short-lived tokens: each has its content, signed by this server. Nothing is stored.

    The id has the expiry and a signature, so that it suffices for a revocation. Revoked ids are stored until they
    expire.
    """

    def __init__(self, key: Path, revoked: Path, clock: Callable[[], float]) -> None:
        self._key = read_key(key)
        self._file = PrivateFile(revoked, lambda: msgspec.json.encode(sorted(self._revoked)))
        self._clock = clock
        try:
            self._revoked: set[str] = set(msgspec.json.decode(revoked.read_bytes(), type=list[str]))
        except FileNotFoundError:
            self._revoked = set()
        except msgspec.DecodeError as error:
            raise HomeDamaged(
                f"{revoked} is damaged ({error}); put back a copy of it, or remove it and {key}: no token that was"
                " made with --ttl is good then"
            ) from None

    def sign(self, token: Token, seconds: int) -> tuple[str, Token]:
        """Return the secret of a token, and the token with its id and expiry."""
        if not 0 < seconds <= BRIEF_SECONDS_MAX:
            raise ValueError(f"a signed token is good for 1 to {BRIEF_SECONDS_MAX} seconds (24h)")
        expires = token.created + seconds
        start = f"{secrets.token_hex(6)}{expires:010x}"
        id_ = f"{start}{self._mac('id', start)[:ID_MAC_DIGITS]}"
        token = msgspec.structs.replace(token, id=id_, expires=expires)
        encoded = base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")
        return f"{BRIEF_PREFIX}{encoded}.{self._mac('token', encoded)}", token

    @staticmethod
    def is_one(secret: str) -> bool:
        return secret.startswith(BRIEF_PREFIX)

    def user(self, secret: str) -> User | None:
        token = self._token(secret)
        if token is None or token.id in self._revoked or token.expires <= self._clock():
            return None
        if token.scope == "join":
            return None  # From an earlier release: a later invitation would not end it.
        return _user(token, token.expires - self._clock())

    def former(self, secret: str) -> str:
        """Return the id of an expired token; empty if it has not expired, or is invalid."""
        token = self._token(secret)
        return token.id if token is not None and token.expires <= self._clock() else ""

    def _token(self, secret: str) -> Token | None:
        encoded, _, mac = secret.removeprefix(BRIEF_PREFIX).rpartition(".")
        # Verified before anything of it is read.
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac("token", encoded).encode()):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)), type=Token)

    def revoke(self, token_id: str) -> bool:
        """Revoke a token by its id. Returns False if it is not one of this server's, or has expired."""
        if not self._is_own(token_id) or self._end(token_id) <= self._clock():
            return False
        self._revoked = {one for one in self._revoked if self._end(one) > self._clock()} | {token_id}
        self._file.is_due = True
        return True

    async def save(self) -> None:
        """Store the revoked ids. Raises OSError."""
        await self._file.save()

    def left(self, token_id: str) -> float | None:
        """Return the remaining seconds of a token by its id; None if it has expired or is not one of this server's."""
        if not self._is_own(token_id) or token_id in self._revoked:
            return None
        left = self._end(token_id) - self._clock()
        return left if left > 0 else None

    def _is_own(self, token_id: str) -> bool:
        start, mac = token_id[:-ID_MAC_DIGITS], token_id[-ID_MAC_DIGITS:]
        own = self._mac("id", start)[:ID_MAC_DIGITS]
        return hmac.compare_digest(mac.encode("utf-8", "replace"), own.encode())

    @staticmethod
    def _end(token_id: str) -> int:
        return int(token_id[ID_RANDOM_DIGITS:-ID_MAC_DIGITS], 16)

    def _mac(self, what: str, text: str) -> str:
        return hmac.digest(self._key, f"{what}:{text}".encode("utf-8", "replace"), "sha256").hex()


def read_key(path: Path) -> bytes:
    """Return the key that signs this server's tokens, and create it if it does not exist. Raises HomeDamaged.

    Processes that create it at the same time all return the same key.
    """
    if not path.exists():
        _create_private(path, secrets.token_bytes(KEY_BYTES))
    key = path.read_bytes()
    if len(key) < KEY_BYTES:
        # Anybody could make tokens with a short key.
        raise HomeDamaged(
            f"{path} is damaged: it has {len(key)} of {KEY_BYTES} bytes. Put back a copy of it, or remove it:"
            " tokens that were signed with it are then no longer good"
        )
    return key


def _user(token: Token, seconds_left: float) -> User:
    about = (token.name, token.scope, token.namespace, token.id, seconds_left, token.role)
    return User(*about, cell=token.cell, namespace_uid=token.namespace_uid)


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a plain hash cannot be reversed by guessing.
    return hashlib.sha256(secret.encode()).hexdigest()


class PrivateFile:
    """A private file, rewritten in a thread: one write after the other, each with all that is known when it begins."""

    def __init__(self, path: Path, content: Callable[[], bytes]) -> None:
        self._path = path
        self._content = content
        self._lock = asyncio.Lock()
        self._saves: set[asyncio.Task[None]] = set()
        self.is_due = False
        """The content has changed since it was last written."""

    async def save(self) -> None:
        """Return when all that is known now is stored. Cancelled, it is stored all the same. Raises OSError."""
        if self.is_due or self._saves:
            save = asyncio.create_task(self._save())
            self._saves.add(save)
            save.add_done_callback(self._saves.discard)
            await asyncio.shield(save)

    async def _save(self) -> None:
        async with self._lock:
            if not self.is_due:
                return
            self.is_due = False
            try:
                await asyncio.to_thread(write_private, self._path, self._content())
            except BaseException:
                self.is_due = True
                raise


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read, atomically."""
    _write_beside(path, content).rename(path)


def _create_private(path: Path, content: bytes) -> None:
    """Create a file that only its owner may read, atomically. An existing file stays as it is."""
    temporary = _write_beside(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # Another process has been faster.
    finally:
        temporary.unlink()


def _write_beside(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read, under a temporary name of this process. Returns its path."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _write(descriptor, content)
    except OSError:
        temporary.unlink()
        raise
    return temporary


def rewrite_private(path: Path, content: bytes) -> None:
    """Replace a private file. If the disk has no space for a second copy, overwrite the first.

    Only for files that a crash may damage: their readers treat a damaged file as a missing one.
    """
    try:
        write_private(path, content)
    except OSError as error:
        if error.errno not in NO_SPACE or not path.exists():
            raise
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        _write(descriptor, content)


def _write(descriptor: int, content: bytes) -> None:
    """Overwrite an open file with this content, drop the rest, sync it and close it."""
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def allows(user: User, verb: str, kind: Kind, namespace: str, name: str = "", subresource: str = "") -> bool:
    """Report whether a user may do this to an object. `namespace` is empty for all namespaces, and for cluster
    kinds."""
    if user.scope == "admin":
        return True
    if kind in REVIEWS:
        return verb == "create"  # Everyone may review their own rights.
    if SYSTEM_NAMESPACE in (namespace, name if kind.name == "Namespace" else ""):
        return False
    if namespace.startswith(CELL_NAMESPACE_PREFIX) and user.scope != "cell":
        return False  # It has copies of Secrets of all namespaces.
    if user.scope == "role":
        return _role_allows(user, verb, kind, namespace, name, subresource)
    if subresource == CALL:
        keyed = user.scope == "function" and user.namespace in ("", namespace)
        return keyed and verb == "create" and kind.name == "Function"
    if subresource in ENTERED:
        # For users who decide what runs there.
        owns = user.scope == "deployer" and namespace and user.namespace in ("", namespace)
        return bool(owns) and kind.name == "Instance" and (subresource != "exec" or verb == "create")
    if user.scope == "cell":
        return _cell_allows(user, verb, kind, namespace)
    inside = not user.namespace or namespace == user.namespace
    if kind.name == "Namespace" and user.namespace and verb == "get" and name != user.namespace:
        return False  # Other namespaces are hidden from them.
    if user.scope == "viewer":
        return verb in READ and kind.name != "Secret" and (inside or not kind.namespaced)
    if user.scope == "deployer":
        if subresource == "status" and verb not in READ:
            return False  # Controllers write the status.
        if kind.name == "Role":
            return verb in READ and inside  # As on Kubernetes, editors do not grant rights.
        if not kind.namespaced:
            return verb in READ or (kind.name == "Namespace" and verb == "create" and not user.namespace)
        return inside and (verb in READ or not (kind.made or kind.name in BOUNDS))
    # Workers have only their stream, and function keys only their function.
    return False


def verbs_of(verb: str, kind: Kind, *, is_apply: bool, is_there: bool) -> tuple[str, ...]:
    """Return the verbs that a user needs for a write: `create`, too, if the write creates its object."""
    makes = is_apply or (verb == "update" and kind.name in CREATED_BY_UPDATE)
    return (verb, "create") if makes and not is_there else (verb,)


def _role_allows(user: User, verb: str, kind: Kind, namespace: str, name: str, subresource: str) -> bool:
    """Report whether a Role allows something.

    Whatever its rules are, a Role allows at most what a deployer of the namespace may do, and calls and writes of
    Roles.
    """
    own = kind.name == "Namespace" and name == user.namespace and verb == "get"
    if not own and (not kind.namespaced or namespace != user.namespace):
        return False
    if verb == "create" and not subresource:
        name = ""  # As on Kubernetes, a rule with names does not cover `create`.
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    if not allow(user.rules, verb, kind.group, resource, name):
        return False
    if subresource == CALL:
        return verb == "create" and kind.name == "Function"
    if kind.name == "Role":
        return True
    deployer = User(user.name, "deployer", user.namespace)
    return allows(deployer, verb, kind, namespace, name, subresource)


def moves_blobs(user: User, verb: str) -> bool:
    """Report whether a user may read or put code by its digest. Runners are checked elsewhere."""
    if user.scope == "role":
        return allow(user.rules, verb, GROUP, "blobs")
    return user.scope in ("admin", "deployer")


def visible_selector(user: User, kind: Kind, namespace: str) -> str:
    """Return a field selector for the objects that a user sees of a list; empty if all."""
    if user.scope == "admin":
        return ""
    if kind.name == "Namespace":
        return f"metadata.name={user.namespace}" if user.namespace else f"metadata.name!={SYSTEM_NAMESPACE}"
    return f"metadata.namespace!={SYSTEM_NAMESPACE}" if kind.namespaced and not namespace else ""


def _cell_allows(user: User, verb: str, kind: Kind, namespace: str) -> bool:
    """Report whether a cell may read an object: of its own namespace, or an instance type. It may write none."""
    if verb not in READ:
        return False
    return namespace == user.namespace if kind.namespaced else kind.name == "InstanceType"
