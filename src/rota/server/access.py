"""The authorization of the gateway: decisions, and the table of endpoints that names one for each.

- Every endpoint has a decision, and a path that is not in the table is not served.
- A decision is made from the path and the credential, before the rest of a request is read.
- Access to objects is decided by `auth.allows` in all cases: by their own URL, by `/v1`, or in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rota.api import Claim, Instance, Kind, WorkerPool
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError, forbidden
from rota.server.auth import User, allows, moves_blobs
from rota.server.entering import authorise, claim_of

NOT_FOUND = "the server could not find the requested resource"


class Asking(NamedTuple):
    """The user and the subject of a request."""

    user: User
    objects: Objects
    where: dict[str, str]
    """The parts of the path that the endpoint names: `namespace`, `name` and others."""

    @property
    def namespace(self) -> str:
        return self.where.get("namespace", "")

    @property
    def name(self) -> str:
        return self.where.get("name", "")


class Decision(NamedTuple):
    """A check of who may use an endpoint. `check` raises ApiError for all others."""

    name: str
    check: Callable[[Asking], None]
    goes_in: bool = False
    """True for access to the inside of an instance. The request is cut when its credential ends, even before its
    answer."""


def may(verb: str, kind: Kind, part: str = "") -> Decision:
    """Admit users who may use this verb on an object, or on a part of it, at the object's own URL."""

    def check(asking: Asking) -> None:
        if not allows(asking.user, verb, kind, asking.namespace, asking.name, part):
            raise _denied(asking, verb, kind, part)

    return Decision(f"{verb} {kind.plural}{f'/{part}' if part else ''}", check)


def of_claim(verb: str) -> Decision:
    """Admit users who may use this verb on the Claim, and the claim's own token while the claim has an instance."""

    def check(asking: Asking) -> None:
        user = asking.user
        if user.scope != "claim":
            if not allows(user, verb, Claim.api, asking.namespace, asking.name):
                raise _denied(asking, verb, Claim.api)
        elif (user.namespace, user.name) != (asking.namespace, asking.name):
            raise forbidden(Claim.api, asking.name, f'the token of "{user.name}" is for that claim alone')
        else:
            claim_of(user, asking.objects)

    return Decision(f"{verb} claims, or the claim's own token", check)


def _check_admin(asking: Asking) -> None:
    if asking.user.scope != "admin":
        message = f'User "{asking.user.name}" may not do this: it takes a token of scope admin'
        raise ApiError(403, "Forbidden", message)


def entering(verb: str, part: str) -> Decision:
    """Admit users who may use this part of an instance, such as exec, and the instance's holder."""

    def check(asking: Asking) -> None:
        authorise(asking.user, asking.objects, asking.namespace, asking.name, verb, part)

    return Decision(f"{verb} instances/{part}, or who holds the instance", check, goes_in=True)


def _check_claiming(asking: Asking) -> None:
    pool = asking.where["pool"]
    if allows(asking.user, "create", WorkerPool.api, asking.namespace, pool, "claims"):
        return
    if not allows(asking.user, "create", Claim.api, asking.namespace):
        raise _denied(asking, "create", Claim.api)


def _check_log(asking: Asking) -> None:
    if asking.user.scope in ("claim", "hub"):
        authorise(asking.user, asking.objects, asking.namespace, asking.name)
    elif not allows(asking.user, "get", Instance.api, asking.namespace, asking.name, "log"):
        raise _denied(asking, "get", Instance.api, "log")


def _check_runner(asking: Asking) -> None:
    user = asking.user
    if user.scope != "worker" or (user.namespace, user.name) != (asking.namespace, asking.name):
        raise ApiError(403, "Forbidden", f'User "{user.name}" is not the worker {asking.namespace}/{asking.name}')


def _check_blob_writer(asking: Asking) -> None:
    if not moves_blobs(asking.user, "update"):
        raise ApiError(
            403, "Forbidden", f'User "{asking.user.name}" may not put blobs: it takes a token of scope deployer'
        )


def _check_blob_reader(asking: Asking) -> None:
    user = asking.user
    if moves_blobs(user, "get"):
        return
    instance = get(asking.objects, Instance, user.name, user.namespace) if user.scope == "worker" else None
    if instance is None or instance.metadata.uid != user.token_id:
        raise ApiError(403, "Forbidden", f'User "{user.name}" may not read {asking.where["digest"]}')


ADMIN = Decision("admin", _check_admin)
CLAIMING = Decision("create workerpools/claims, or claims", _check_claiming)
INSTANCE_LOG = Decision("get instances/log, or who holds the instance", _check_log, goes_in=True)
RUNNER = Decision("the instance's own runner", _check_runner)
BLOB_WRITER = Decision("deployers, and update blobs", _check_blob_writer)
BLOB_READER = Decision("deployers, get blobs, and runners of what refers to it", _check_blob_reader)
"""Admits every runner. Its handler checks whether a Function of the runner's namespace refers to the blob."""
EACH = Decision("each object for itself", lambda asking: None)
"""Admits everybody. The handler calls `auth.allows` for each object that the request names."""


class Endpoint(NamedTuple):
    """One method and path pattern, with its decision and handler."""

    method: str
    pattern: str
    """The path, with the variable parts in braces."""
    decision: Decision
    act: str
    """The act in the audit trail: a verb and a resource, such as `create instances.rota.dev/exec`."""
    handler: Callable[..., Any]
    takes_space: bool = True
    """True if the write is refused while the disk is short. A batch decides for each of its operations."""

    def match(self, method: str, parts: list[str]) -> dict[str, str] | None:
        """Return the variable parts of a path, or None if the endpoint does not match."""
        wanted = self.pattern.strip("/").split("/")
        if method != self.method or len(parts) != len(wanted):
            return None
        found: dict[str, str] = {}
        for each, part in zip(wanted, parts, strict=True):
            if each.startswith("{"):
                found[each[1:-1]] = part
            elif each != part:
                return None
        return found


class Endpoints:
    """A table of endpoints, looked up by method and path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.all = tuple(endpoints)
        self._by_first: dict[tuple[str, str], list[Endpoint]] = {}
        for one in self.all:
            assert isinstance(one.decision, Decision), f"{one.pattern} says nothing of who is let in"
            self._by_first.setdefault((one.method, one.pattern.split("/")[2]), []).append(one)

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """Return the endpoint of a request. Raises ApiError if there is none."""
        parts = path.strip("/").split("/")
        for one in self._by_first.get((method, parts[1] if len(parts) > 1 else ""), ()):
            if (found := one.match(method, parts)) is not None:
                return one, found
        raise ApiError(404, "NotFound", NOT_FOUND)


def _denied(asking: Asking, verb: str, kind: Kind, part: str = "") -> ApiError:
    resource = f"{kind.plural}/{part}" if part else kind.plural
    message = f'User "{asking.user.name}" cannot {verb} {resource} in "{asking.namespace}"'
    return forbidden(kind, asking.name, message)
