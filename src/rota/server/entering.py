"""Authorization for the inside of an Instance: its commands, its files and its log."""

from __future__ import annotations

from typing import NamedTuple

from rota.api import Claim, Instance
from rota.control.cells.tunnel_messages import mirrored
from rota.control.inputs import reach
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError, bad_request, forbidden, not_found
from rota.registry.privileges import is_restricted
from rota.runtime.interface import Runtime, Subject
from rota.server.auth import User, allows


def authorise(
    user: User, objects: Objects, namespace: str, name: str, verb: str = "create", part: str = "exec"
) -> None:
    """Raise ApiError unless a user may enter an instance: one who decides what runs there, or its present holder.

    Entering an instance that is not isolated gives access to the host, and is for admins.
    """
    instance = get(objects, Instance, name, namespace)
    if user.scope == "hub":
        # The hub has authorized the user, and `tunnel_messages.sought` the request.
        if instance is None or instance.metadata.uid != user.token_id or mirrored(objects, instance) is None:
            raise forbidden(Instance.api, name, "it is none that this cell runs for its hub")
    elif user.scope == "claim":
        claim = claim_of(user, objects)
        if instance is None or not _is_held_by(instance, user):
            raise forbidden(Instance.api, name, f'the claim "{user.name}" has another instance')
        if is_restricted(claim.metadata.annotations) and (why := reach(objects, instance)):
            raise forbidden(Instance.api, name, f"it {why}: this takes a claim of an admin's")
    elif not allows(user, verb, Instance.api, namespace, name, part):
        raise forbidden(Instance.api, name, f'User "{user.name}" cannot {verb} resource "instances/{part}" of it')
    elif user.scope != "admin" and instance is not None and (why := reach(objects, instance)):
        raise forbidden(Instance.api, name, f"it {why}: this takes a token of scope admin")


def _is_held_by(instance: Instance, user: User) -> bool:
    """Report whether a user's claim holds an instance, by its assignment, which only the leader of its pool writes."""
    held = instance.spec.assignment
    return held is not None and (held.kind, held.uid) == ("Claim", user.token_id)


class Place(NamedTuple):
    """One container of an Instance."""

    instance: Instance
    subject: Subject
    container: str


def place(objects: Objects, namespace: str, name: str, container: str) -> Place:
    """Return the requested container, by default the first. Raises ApiError."""
    instance = get(objects, Instance, name, namespace)
    if instance is None:
        raise not_found(Instance.api, name)
    names = [one.name for one in instance.spec.containers]
    if container and container not in names:
        raise bad_request(f'no container "{container}" in {name}; there are {", ".join(names)}')
    return Place(instance, Subject(namespace, name, instance.metadata.uid), container or names[0])


class Absent(NamedTuple):
    """The reason why a process makes no instances real."""

    code: int
    reason: str
    message: str

    def refusal(self) -> ApiError:
        return ApiError(self.code, self.reason, self.message)


NO_CONTROLLERS = Absent(503, "ServiceUnavailable", "nothing runs in this server: it was started with --no-controllers")
NO_RUNTIME = Absent(
    501,
    "NotImplemented",
    "nothing runs by this operator: it has no runtime that makes instances real where its objects are",
)


def present(runtime: Runtime | Absent) -> Runtime:
    """Return the runtime. Raises ApiError, with the reason, if there is none."""
    if isinstance(runtime, Absent):
        raise runtime.refusal()
    return runtime


def claim_of(user: User, objects: Objects) -> Claim:
    """Return the claim of a token. Raises ApiError unless it has an instance."""
    claim = get(objects, Claim, user.name, user.namespace)
    status = claim.status if claim is not None else None
    instance = get(objects, Instance, status.instance_name or "", user.namespace) if status is not None else None
    if claim is None or claim.metadata.uid != user.token_id or instance is None or not _is_held_by(instance, user):
        raise ApiError(401, "Unauthorized", f'the claim "{user.name}" is over, and its token with it')
    return claim
