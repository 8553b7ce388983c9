"""The service accounts of cells, for a hub whose objects are on a Kubernetes cluster.

Each cell has an account in its own namespace, which may read that namespace and instance types, and nothing else. Its
tokens are bound to an empty Secret and end when that is deleted. An invitation is a token for another audience, so the
API server itself does not accept it.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec

from rota.api.problems import NOT_JSON
from rota.client.http import HttpBackend
from rota.control.cells.names import cell_namespace
from rota.engine.clock import Clock
from rota.registry import ApiError
from rota.registry.errors import too_busy
from rota.registry.system import CELL_NAMESPACE_PREFIX
from rota.server.shares import Seats

ACCOUNT = "rota-cell"
"""The name of the account, its role and its binding in the namespace of each cell."""
CREDENTIAL = "rota-cell-credential"
"""The Secret to which the tokens of a cell are bound."""
INVITATION = "rota-cell-invitation-last"
"""The Secret to which an invitation is bound. A cell has one, so that a later invitation replaces an earlier one."""
INVITED = "rota.dev/join"
"""The audience of an invitation."""
TOKEN_SECONDS = 30 * 24 * 3600
"""The requested lifetime. A cluster may grant less."""
RENEW_PART = 0.5
"""The part of its lifetime after which a token is renewed."""
REVIEW_SECONDS = 10.0
"""Seconds for which the review of a token is cached. A revoked token may be accepted for that long."""
REVIEWS_MAX = 4096
"""Cached reviews. Only those of valid tokens are cached, so that invalid tokens displace none."""
REVIEWED_AT_ONCE_MAX = 4
REVIEWED_AT_ONCE_RESERVED = 4
"""Reviews at once, with additional ones for tokens that were valid before. Further reviews wait; the cells that their
tokens name take turns."""
REVIEW_WAIT_SECONDS_MAX = 10.0
TOKEN_BYTES_MAX = 8 * 1024

READ = ["get", "list", "watch"]
RULES = [
    {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": READ},
    {"apiGroups": ["rota.dev"], "resources": ["workloaddeployments", "workspaces"], "verbs": READ},
]
RULES_OF_ALL = [{"apiGroups": ["rota.dev"], "resources": ["instancetypes"], "verbs": READ}]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE_GROUP = "rbac.authorization.k8s.io"

_encode = msgspec.json.encode


class Given(NamedTuple):
    """A token, and the number of seconds after which it is to be renewed."""

    token: str
    renew_seconds: float


class Accounts:
    """The accounts of all cells, managed through an API server."""

    def __init__(self, backend: HttpBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._reviews: OrderedDict[str, tuple[float, str]] = OrderedDict()
        """The end of the caching time and the user, by the digest of a token and its audience."""
        self._seats = Seats(REVIEWED_AT_ONCE_MAX, REVIEWED_AT_ONCE_RESERVED, REVIEW_WAIT_SECONDS_MAX)
        self._admitted: dict[str, str] = {}
        """The uid of the Secret that binds a cell's tokens now, by cell that this process admitted."""

    async def prepare(self, cell: str) -> None:
        """Create the account of a cell with its rights. Its namespace must exist."""
        namespace = cell_namespace(cell)
        own = f"/namespaces/{namespace}"
        subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
        await self._make(f"/api/v1{own}/serviceaccounts", ACCOUNT, automountServiceAccountToken=False)
        await self._make(f"{RBAC}{own}/roles", ACCOUNT, rules=RULES)
        await self._make(f"{RBAC}{own}/rolebindings", ACCOUNT, subjects=subjects, roleRef=_role("Role"))
        await self._make(f"{RBAC}/clusterroles", ACCOUNT, rules=RULES_OF_ALL)
        await self._make(f"{RBAC}/clusterrolebindings", namespace, subjects=subjects, roleRef=_role("ClusterRole"))

    async def remove(self, cell: str) -> None:
        """Remove the account of a cell, which ends its tokens. The rest is deleted with its namespace."""
        namespace = cell_namespace(cell)
        await self._delete(f"/api/v1/namespaces/{namespace}/secrets/{CREDENTIAL}")
        await self._delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}")
        await self._delete(f"{RBAC}/clusterrolebindings/{cell_namespace(cell)}")

    async def invite(self, cell: str, seconds: int) -> str:
        """Return an invitation, with which a cell can join once. An earlier invitation ends."""
        secrets = f"/api/v1/namespaces/{cell_namespace(cell)}/secrets"
        await self._delete(f"{secrets}/{INVITATION}")
        uid = await self._make(secrets, INVITATION)
        return (await self._token(cell, INVITATION, uid, seconds, INVITED)).token

    async def check_invited(self, cell: str, token: str) -> None:
        """Raise 401 unless a token is an invitation of a cell."""
        if await self._cell_of(token, INVITED) != cell:
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def redeem(self, cell: str, token: str) -> None:
        """Use up an invitation of a cell. Raises 401 if it was used before."""
        self._reviews.pop(_known_by(token, INVITED), None)
        name, uid = _bound_to(token)
        if name != INVITATION:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        body = _encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
        try:
            path = f"/api/v1/namespaces/{cell_namespace(cell)}/secrets/{name}"
            await self._backend.raw("DELETE", path, body, JSON)
        except ApiError as error:
            if error.is_overtaken:
                raise ApiError(401, "Unauthorized", "Unauthorized") from None
            raise

    async def admit(self, cell: str) -> Given:
        """Return a new token of a cell. Its earlier tokens end."""
        secrets = f"/api/v1/namespaces/{cell_namespace(cell)}/secrets"
        await self._delete(f"{secrets}/{CREDENTIAL}")
        # From here on no earlier token is accepted, even if a review of it is cached, here or by the API server.
        self._admitted[cell] = await self._make(secrets, CREDENTIAL)
        return await self.renew(cell)

    async def renew(self, cell: str) -> Given:
        """Return another token of a cell that has joined."""
        namespace = cell_namespace(cell)
        found = await self._backend.raw("GET", f"/api/v1/namespaces/{namespace}/secrets/{CREDENTIAL}")
        uid = msgspec.json.decode(found.body)["metadata"]["uid"]
        return await self._token(cell, CREDENTIAL, uid, TOKEN_SECONDS)

    async def cell_of(self, token: str) -> str | None:
        """Return the cell of a token, or None. Raises 429 while too many reviews are under way."""
        cell = await self._cell_of(token, "")
        if cell is None or self._admitted.get(cell) in (None, _bound_to(token)[1]):
            return cell
        return None

    async def _cell_of(self, token: str, audience: str) -> str | None:
        # A token that does not claim to be a cell's is not reviewed.
        claimed = _cell_named(str(_claims(token).get("sub", ""))) if len(token) <= TOKEN_BYTES_MAX else None
        if claimed is None:
            return None
        known, now = _known_by(token, audience), self._clock.now()
        until, user = self._reviews.get(known, (now, ""))
        if until <= now:
            user = await self._review_in_turn(token, audience, claimed, was_good=bool(user))
            self._reviews.pop(known, None)
            if user:
                self._reviews[known] = (now + REVIEW_SECONDS, user)
            while len(self._reviews) > REVIEWS_MAX:
                self._reviews.popitem(last=False)
        return _cell_named(user)

    async def _review_in_turn(self, token: str, audience: str, claimed: str, *, was_good: bool) -> str:
        try:
            await self._seats.enter(claimed, may_use_reserve=was_good)
        except TimeoutError:
            raise too_busy("too many tokens are waiting to be looked at; try again later") from None
        try:
            return await self._review(token, audience)
        finally:
            self._seats.leave()

    async def _review(self, token: str, audience: str) -> str:
        """Return the user of a token by asking the API server; empty if the token is invalid."""
        spec: dict[str, Any] = {"token": token, **({"audiences": [audience]} if audience else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await self._backend.raw("POST", "/apis/authentication.k8s.io/v1/tokenreviews", _encode(body), JSON)
        status = msgspec.json.decode(answer.body).get("status") or {}
        if not status.get("authenticated") or (audience and audience not in status.get("audiences", ())):
            return ""
        return str((status.get("user") or {}).get("username", ""))

    async def _token(self, cell: str, secret: str, uid: str, seconds: int, audience: str = "") -> Given:
        bound = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": uid}
        spec: dict[str, Any] = {"expirationSeconds": seconds, "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{cell_namespace(cell)}/serviceaccounts/{ACCOUNT}/token"
        answer = msgspec.json.decode((await self._backend.raw("POST", path, _encode(body), JSON)).body)
        return Given(answer["status"]["token"], answer["spec"]["expirationSeconds"] * RENEW_PART)

    async def _make(self, path: str, name: str, **body: Any) -> str:
        """Create an object, or find the one of that name. Returns its uid."""
        try:
            made = await self._backend.raw("POST", path, _encode({"metadata": {"name": name}, **body}), JSON)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            made = await self._backend.raw("GET", f"{path}/{name}")
        return str(msgspec.json.decode(made.body)["metadata"]["uid"])

    async def _delete(self, path: str) -> None:
        try:
            await self._backend.raw("DELETE", path)
        except ApiError as error:
            if error.code != 404:
                raise


JSON = {"Content-Type": "application/json"}


def _role(kind: str) -> dict[str, str]:
    return {"apiGroup": ROLE_GROUP, "kind": kind, "name": ACCOUNT}


def _cell_named(user: str) -> str | None:
    """Return the cell of a service account, or None."""
    match user.split(":"):
        case ["system", "serviceaccount", namespace, name] if name == ACCOUNT:
            is_of_cell = namespace.startswith(CELL_NAMESPACE_PREFIX)
            return namespace.removeprefix(CELL_NAMESPACE_PREFIX) if is_of_cell else None
    return None


def _known_by(token: str, audience: str) -> str:
    return hashlib.sha256(f"{audience}\n{token}".encode()).hexdigest()


def _bound_to(token: str) -> tuple[str, str]:
    """Return the name and uid of the Secret that a token is bound to. The API server has verified the token."""
    try:
        secret = _claims(token)["kubernetes.io"]["secret"]
        return str(secret["name"]), str(secret["uid"])
    except (KeyError, TypeError):
        return "", ""


def _claims(token: str) -> dict[str, Any]:
    """Return the unverified claims of a token; none if it cannot be decoded."""
    try:
        part = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, Any])
    except (IndexError, ValueError, *NOT_JSON):
        return {}
