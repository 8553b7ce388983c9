"""The decisions of the gateway, and the table of endpoints that names one for each of them.

- An endpoint without a decision cannot be written down, and what is not in the table is not served.
- A decision is made before anything of a request is looked at but its path and its credential.
- Objects have the decision `auth.allows`, whichever way they are reached: by their own URL, by `/v1`, or in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rota.api import Claim, Instance, Kind
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.registry.errors import forbidden
from rota.server.auth import User, allows
from rota.server.entering import authorise, claim_of

NOT_FOUND = "the server could not find the requested resource"
BLOB_WRITERS = ("admin", "deployer")


class Asking(NamedTuple):
    """Who asks, and for what."""

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
    """Who is let in. `check` raises ApiError for everybody else."""

    name: str
    check: Callable[[Asking], None]


def may(verb: str, *kinds: Kind) -> Decision:
    """Those whose scope allows this of an object, as by its own URL."""

    def check(asking: Asking) -> None:
        for kind in kinds:
            if not allows(asking.user, verb, kind, asking.namespace, asking.name):
                raise _denied(asking, verb, kind)

    return Decision(f"{verb} {','.join(kind.plural for kind in kinds)}", check)


def of_claim(verb: str) -> Decision:
    """Those whose scope allows it, and who has the claim itself, for as long as it has an instance."""

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


def _check_entering(asking: Asking) -> None:
    authorise(asking.user, asking.objects, asking.namespace, asking.name)


def _check_log(asking: Asking) -> None:
    if asking.user.scope == "claim":
        _check_entering(asking)
    elif not allows(asking.user, "get", Instance.api, asking.namespace, asking.name):
        raise forbidden(Instance.api, asking.name, f'User "{asking.user.name}" cannot get it')


def _check_runner(asking: Asking) -> None:
    user = asking.user
    if user.scope != "worker" or (user.namespace, user.name) != (asking.namespace, asking.name):
        raise ApiError(403, "Forbidden", f'User "{user.name}" is not the worker {asking.namespace}/{asking.name}')


def _check_blob_writer(asking: Asking) -> None:
    if asking.user.scope not in BLOB_WRITERS:
        raise ApiError(
            403, "Forbidden", f'User "{asking.user.name}" may not put blobs: it takes a token of scope deployer'
        )


def _check_blob_reader(asking: Asking) -> None:
    user = asking.user
    if user.scope in BLOB_WRITERS:
        return
    instance = get(asking.objects, Instance, user.name, user.namespace) if user.scope == "worker" else None
    if instance is None or instance.metadata.uid != user.token_id:
        raise ApiError(403, "Forbidden", f'User "{user.name}" may not read {asking.where["digest"]}')


ADMIN = Decision("admin", _check_admin)
ENTERING = Decision("exec instances, or who holds the instance", _check_entering)
INSTANCE_LOG = Decision("get instances, or who holds the instance", _check_log)
RUNNER = Decision("the instance's own runner", _check_runner)
BLOB_WRITER = Decision("deployers", _check_blob_writer)
BLOB_READER = Decision("deployers, and runners of what refers to it", _check_blob_reader)
"""Which blobs a runner gets is decided where they are read: it follows from the Functions of its namespace."""
EACH = Decision("each object for itself", lambda asking: None)
"""The endpoint names several objects, or one by words of its own: it asks `auth.allows` for each."""


class Endpoint(NamedTuple):
    """One way in."""

    method: str
    pattern: str
    """The path, with the parts that differ in braces."""
    decision: Decision
    act: str
    """As the audit trail has it: a verb, and what it is done to, `create instances.rota.dev/exec`."""
    handler: Callable[..., Any]
    takes_space: bool = True
    """Whether what it writes is refused while the disk is short. A batch decides for each of its parts."""

    def match(self, method: str, parts: list[str]) -> dict[str, str] | None:
        """What a path has in the place of each brace; None if it is not this endpoint's."""
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
        """The endpoint of a request. Raises ApiError if there is none."""
        parts = path.strip("/").split("/")
        for one in self._by_first.get((method, parts[1] if len(parts) > 1 else ""), ()):
            if (found := one.match(method, parts)) is not None:
                return one, found
        raise ApiError(404, "NotFound", NOT_FOUND)


def _denied(asking: Asking, verb: str, kind: Kind) -> ApiError:
    message = f'User "{asking.user.name}" cannot {verb} {kind.plural} in "{asking.namespace}"'
    return forbidden(kind, asking.name, message)
