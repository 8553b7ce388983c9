"""`/v1/pools/NAMESPACE/NAME/claims` and `/v1/claims/NAMESPACE/NAME`: hold an idle Instance alone.

    POST    pools/NS/POOL/claims    claim one; answers when it is there, or 429 with how long to wait
    GET     pools/NS/POOL/claims    the claims of a pool
    GET     claims/NS/NAME          one of them
    POST    claims/NS/NAME/renew    renew its lease
    DELETE  claims/NS/NAME          give the instance back

A repeated request under the same name returns the same claim. The answer has a token for this instance only: to run
commands in it, to read and write its files, to renew the claim and to release it. It ends with the claim. A caller that
hangs up before the answer leaves nothing behind.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, cast

import msgspec

from rota.api import Claim, ConfigMap, Instance, ObjectMeta, Secret, Task, WorkerPool
from rota.api.form import form
from rota.api.model import Ref
from rota.api.parts import EnvVar, ValueFrom
from rota.api.pool import ClaimSpec
from rota.api.problems import NOT_JSON, Problem
from rota.client import Client, Key
from rota.control.claims import lifecycle
from rota.control.claims.holds import ClaimHolds
from rota.control.inputs import host_files, reach
from rota.control.networks import beyond_policy
from rota.control.tasks.waits import wait_of
from rota.control.workers import template_of
from rota.engine.objects import Objects, get
from rota.registry import metadata
from rota.registry.errors import ApiError, bad_request, forbidden, invalid, not_found
from rota.registry.metadata import new_uid
from rota.registry.pacing import Pace
from rota.registry.privileges import RESTRICTED
from rota.runtime.interface import Runtime, Subject
from rota.server import media
from rota.server.audit import Audit, noting
from rota.server.auth import User, allows
from rota.server.controllers import Controllers
from rota.server.entering import claim_of
from rota.server.http import Request, Response
from rota.server.signed_tokens import SignedTokens

NAMED_MAX = 20
"""Pools that a refusal names."""
LISTED_MAX, LISTED_BYTES_MAX = 1000, 4 * 1024 * 1024
"""Claims that one answer lists, and their bytes together. The first is listed however large it is."""
TRIES_MAX = 3
MANAGER = "rota-gateway"
MAKER = "rota.dev/token"
"""Annotation of a claim: the id of the token that requested it."""

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class ClaimBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a request for a claim."""

    name: str = ""
    holder: str = ""
    priority: int = 0
    wait_seconds: int | None = None
    lease_seconds: int | None = None
    images: dict[str, str] = {}
    env: list[EnvVar] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


_asked = msgspec.json.Decoder(ClaimBody)


class ClaimRequests:
    """Answers requests for claims."""

    def __init__(self, client: Client, objects: Objects, audit: Audit, tokens: SignedTokens) -> None:
        """`objects` must have each write of `client` by the time that the write returns."""
        self._client = Client(client.backend, manager=MANAGER)
        self._objects = objects
        self._audit = audit
        self._tokens = tokens

    async def open(
        self, running: Controllers | None, request: Request, user: User, namespace: str, pool: str
    ) -> Response:
        """Claim an instance."""
        with noting(self._audit, user, "create", Claim.api.bucket, namespace) as note:
            asked = _decoded(request)
            note.name = asked.name = asked.name or f"claim-{secrets.token_hex(8)}"
            claim, note.code = await self._claimed(running, asked, user, namespace, pool)
            return Response(note.code, self._answer(claim, maker=user.token_id))

    async def _claimed(
        self, running: Controllers | None, asked: ClaimBody, user: User, namespace: str, name: str
    ) -> tuple[Claim, int]:
        holds = running.claims if running is not None else None
        if running is None or holds is None:
            raise ApiError(503, "ServiceUnavailable", "nobody hands out instances here now: this server does not lead")
        objects = self._objects
        pool = get(objects, WorkerPool, name, namespace)
        if pool is None:
            raise await _no_pool(objects, namespace, name)
        _check(objects, asked, pool, user, running.runtime)
        _check_env(asked, user, namespace)
        for _ in range(TRIES_MAX):
            known = await self._earlier_claim(objects, holds, asked, user, namespace, name)
            if known is not None:
                return known, 200
            claim = _new_claim(asked, user, namespace, name)
            _check_fields(claim)
            may_wait = _may_wait(claim, pool) and not holds.is_full(pool)
            try:
                found = await holds.callers.open(claim, may_wait=may_wait)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                continue  # The same was asked for at the same moment.
            if found is None:
                raise _busy(objects, user, holds, pool, may_wait=False)
            return _bound_or_refused(objects, user, holds, pool, found), 201
        raise ApiError(409, "AlreadyExists", f'claims "{asked.name}" is being made by somebody else')

    @staticmethod
    async def _earlier_claim(
        objects: Objects, holds: ClaimHolds, asked: ClaimBody, user: User, namespace: str, pool: str
    ) -> Claim | None:
        """Return the claim that the same caller requested under the same name before, or None."""
        key = Key(namespace, asked.name)
        claim = get(objects, Claim, asked.name, namespace) or holds.callers.unstored_claim(key)
        if claim is None:
            return None
        # Checked before any wait, so that a request under somebody else's name learns nothing else about the claim.
        if (claim.spec.pool_ref.name, claim.spec.holder) != (pool, _holder(asked, user)):
            raise ApiError(409, "AlreadyExists", f'claims "{asked.name}" is somebody else\'s, or of another pool')
        if not claim.over() and not holds.is_usable(claim):
            claim = await holds.callers.wait_for(claim)
        if claim is None:
            return None
        if (claim.spec.pool_ref.name, claim.spec.holder) != (pool, _holder(asked, user)):
            raise ApiError(409, "AlreadyExists", f'claims "{asked.name}" is somebody else\'s, or of another pool')
        if claim.over():
            raise _ended_error(claim)
        _check_taken(objects, claim, user)
        if differing := _differing(asked, claim):
            message = f'claims "{asked.name}" has another {differing}: leave that out, or ask under another name'
            raise ApiError(409, "AlreadyExists", message)
        return claim

    # One of them.

    def get(self, user: User, namespace: str, name: str) -> Response:
        return Response(200, self._answer(self._found(user, namespace, name)))

    async def list(self, namespace: str, pool: str) -> Response:
        if get(self._objects, WorkerPool, pool, namespace) is None:
            raise await _no_pool(self._objects, namespace, pool)
        found = cast(
            "Sequence[Claim]",
            await self._objects.select(Claim.api, namespace, lambda one: one.spec.pool_ref.name == pool),
        )
        found = sorted(found, key=lambda one: (str(one.metadata.creation_timestamp), one.metadata.name))
        shown: list[bytes] = []
        size = 0
        async with Pace() as pace:
            for one in found[:LISTED_MAX]:
                await pace()
                value = _encode(_whole(one))
                size += len(value)
                if shown and size > LISTED_BYTES_MAX:
                    break
                shown.append(value)
        return Response(200, b'{"claims":[%b],"remaining":%d}' % (b",".join(shown), len(found) - len(shown)))

    async def renew(self, user: User, namespace: str, name: str) -> Response:
        with noting(self._audit, user, "update", Claim.api.bucket, namespace, name, "renew") as note:
            claim = self._found(user, namespace, name)
            if claim.over():
                raise _ended_error(claim)
            now = datetime.now(UTC)
            patch = {"metadata": {"uid": claim.metadata.uid}, "spec": {"renewTime": now.isoformat()}}
            written: Claim = await self._client.patch(Claim, name, patch, namespace=namespace)
            # The controller of claims writes the same to the status in a moment.
            expires = lifecycle.expiry(written, now.timestamp())
            if written.status is not None and expires is not None:
                status = msgspec.structs.replace(written.status, expires_at=expires)
                written = msgspec.structs.replace(written, status=status)
            note.code = 200
            return Response(200, self._answer(written))

    async def release(self, running: Controllers | None, user: User, namespace: str, name: str) -> Response:
        """Give an instance back. A repeated request changes nothing."""
        with noting(self._audit, user, "delete", Claim.api.bucket, namespace, name) as note:
            claim = self._found(user, namespace, name)
            holds = running.claims if running is not None else None
            if not claim.over():
                claim = await self._released(holds, claim)
            note.code = 200
            return Response(200, self._answer(claim))

    async def release_all(self, running: Controllers | None, token_id: str) -> None:
        """Release the claims of a token that is no longer valid."""
        holds = running.claims if running is not None else None
        every: list[Any] = list(self._objects.list(Claim.api))
        found = [one for one in every if one.metadata.annotations.get(MAKER) == token_id and not one.over()]
        for claim in found:
            try:
                await self._released(holds, claim)
            except ApiError as error:
                # No credential for this claim is left, so nobody renews it, and its lease ends.
                log.warning("the claim %s of a revoked token cannot be released: %s", claim.metadata.name, error)

    async def _released(self, holds: ClaimHolds | None, claim: Claim) -> Claim:
        meta, kind = claim.metadata, cast(Any, Claim)
        for _ in range(TRIES_MAX):
            if holds is None or claim.status is None or claim.status.phase != "Bound":
                break
            ended = lifecycle.over(claim.status, "Released", datetime.now(UTC).timestamp())
            try:
                return await holds.end(claim, ended)
            except ApiError as error:
                if error.code not in (409, 422):
                    raise
            # The claim was renewed meanwhile, or has lost its instance.
            claim = await self._client.get(kind, meta.name, namespace=meta.namespace)
            if claim.over() or claim.metadata.uid != meta.uid:
                return claim
        patch = {"metadata": {"uid": meta.uid}, "spec": {"release": True}}
        released: Claim = await self._client.patch(kind, meta.name, patch, namespace=meta.namespace)
        return released

    def _found(self, user: User, namespace: str, name: str) -> Claim:
        if user.scope == "claim":
            # Checked again: the claim may have ended since the request was authorized.
            return claim_of(user, self._objects)
        claim = get(self._objects, Claim, name, namespace)
        if claim is None:
            raise not_found(Claim.api, name)
        return claim

    def _answer(self, claim: Claim, *, maker: str | None = None) -> bytes:
        """Encode a claim. With a `maker`, add a token that is valid as long as that of the maker."""
        meta = claim.metadata
        body: dict[str, Any] = {"claim": _whole(claim)}
        if maker is not None:
            body["token"] = self._tokens.of(Subject(meta.namespace, meta.name, meta.uid), maker)
        return _encode(body)


def _whole(claim: Claim) -> dict[str, Any]:
    return {"apiVersion": claim.api.api_version, "kind": claim.api.name, **_shown(claim)}


def _shown(claim: Claim) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(claim)
    shown["metadata"].pop("managedFields", None)
    return shown


def _decoded(request: Request) -> ClaimBody:
    if not request.body:
        return ClaimBody()
    try:
        if request.headers.get("content-type", "application/json").startswith("application/json"):
            return _asked.decode(request.body)
        return msgspec.convert(media.decoded(request.body, request.headers["content-type"]), ClaimBody)
    except NOT_JSON as error:
        raise bad_request(f"a claim is asked for with a JSON object: {error}") from None


def _holder(asked: ClaimBody, user: User) -> str:
    """Return the holder of a claim. Only an admin can name somebody else."""
    if asked.holder and asked.holder != user.name and user.scope != "admin":
        raise bad_request(f'holder: it is "{user.name}", as the token says; leave it out')
    return asked.holder or user.name


def _new_claim(asked: ClaimBody, user: User, namespace: str, pool: str) -> Claim:
    spec = ClaimSpec(
        pool_ref=Ref(name=pool),
        holder=_holder(asked, user),
        priority=asked.priority,
        wait_seconds=asked.wait_seconds,
        images=asked.images,
        env=asked.env,
        labels=asked.labels,
        annotations=asked.annotations,
    )
    if asked.lease_seconds is not None:
        spec = msgspec.structs.replace(spec, lease_seconds=asked.lease_seconds)
    # The client waits for the answer. If it goes away, nobody would use the instance.
    marks = {lifecycle.ATTENDED: "true"}
    if user.scope != "admin":
        marks[RESTRICTED] = "true"
    if user.token_id:
        marks[MAKER] = user.token_id
    return Claim(metadata=ObjectMeta(name=asked.name, namespace=namespace, uid=new_uid(), annotations=marks), spec=spec)


def _check_fields(claim: Claim) -> None:
    """Check the fields of a claim before it waits. Raises ApiError."""
    found: list[Problem] = []
    marks = {"labels": claim.spec.labels, "annotations": claim.spec.annotations}
    metadata.check(marks, found)
    body = {"metadata": {"name": claim.metadata.name}, "spec": msgspec.to_builtins(claim.spec)}
    _, wrong = form(Claim.api).conform(body)
    metadata.check_new(Claim.api, body["metadata"], found)
    if found or wrong:
        raise invalid(Claim.api, claim.metadata.name, [*found, *wrong])


def _differing(asked: ClaimBody, claim: Claim) -> str:
    """Return the field in which a request differs from the existing claim; empty if there is none."""
    spec = claim.spec
    if asked.lease_seconds is not None and asked.lease_seconds != spec.lease_seconds:
        return "leaseSeconds"
    for field in ("images", "env", "labels", "annotations"):
        wanted = getattr(asked, field)
        if wanted and wanted != getattr(spec, field):
            return field
    return ""


def _check(objects: Objects, asked: ClaimBody, pool: WorkerPool, user: User, runtime: Runtime | None) -> None:
    """Check whether a request can ever be granted, before it waits. Raises ApiError."""
    template = template_of(pool)
    if (wrong := lifecycle.unfit(asked.images, asked.labels, asked.annotations, template)) is not None:
        raise bad_request(wrong)
    if user.scope == "admin" or runtime is None:
        return
    isolated, why = runtime.isolates(template.isolation, template.runtime)
    if not isolated:
        message = f"WorkerPool/{pool.metadata.name} is not isolated ({why}): only an admin can claim of it"
        raise ApiError(403, "Forbidden", message)
    if beyond := beyond_policy(template.network, template.egress, runtime.policy):
        raise ApiError(403, "Forbidden", f"WorkerPool/{pool.metadata.name}: {beyond}: only an admin can claim of it")
    if files := host_files(objects, pool.metadata.namespace, template.workspace_ref):
        raise ApiError(403, "Forbidden", f"WorkerPool/{pool.metadata.name} {files}: only an admin can claim of it")


def _check_env(asked: ClaimBody, user: User, namespace: str) -> None:
    """Refuse variables from Secrets and ConfigMaps that the user may not read.

    Users who may create Claims are exempt: they could set the same variables there.
    """
    if allows(user, "create", Claim.api, namespace):
        return
    for one in asked.env:
        source = one.value_from or ValueFrom()
        for kind, ref in ((Secret.api, source.secret_key_ref), (ConfigMap.api, source.config_map_key_ref)):
            if ref is not None and not allows(user, "get", kind, namespace, ref.name):
                raise forbidden(kind, ref.name, f'User "{user.name}" cannot get it, nor have {one.name} read from it')


def _check_taken(objects: Objects, claim: Claim, user: User) -> None:
    """Refuse to give an admin's claim to another user if its instance is not isolated."""
    name = claim.status.instance_name if claim.status is not None else None
    instance = get(objects, Instance, name or "", claim.metadata.namespace)
    if user.scope != "admin" and instance is not None and (why := reach(objects, instance)):
        message = f"Instance/{instance.metadata.name} {why}: only an admin can have it"
        raise ApiError(403, "Forbidden", message)


def _bound_or_refused(objects: Objects, user: User, holds: ClaimHolds, pool: WorkerPool, claim: Claim) -> Claim:
    reason = claim.status.reason if claim.status is not None else None
    if not claim.over():
        return claim
    if reason in ("WaitTimeout", "QueueFull"):
        raise _busy(objects, user, holds, pool, may_wait=True)
    raise _ended_error(claim)


def _may_wait(claim: Claim, pool: WorkerPool) -> bool:
    """Report whether a claim asks to wait, and could ever get an instance."""
    ready = pool.status.condition("Ready") if pool.status is not None else None
    is_over_budget = ready is not None and ready.reason == "QuotaExceeded"
    is_empty = pool.status is None or not pool.status.ready_replicas
    return lifecycle.wait_seconds(claim, pool) > 0 and not (is_over_budget and is_empty)


def _busy(objects: Objects, user: User, holds: ClaimHolds, pool: WorkerPool, *, may_wait: bool) -> ApiError:
    seconds = max(1, math.ceil(holds.wait_estimate(pool)))
    name = pool.metadata.name
    if holds.is_full(pool):
        why = f"{pool.spec.queue.limit} wait for WorkerPool/{name} already"
    else:
        when = "in time" if may_wait else "at once"
        why = f"no instance of WorkerPool/{name} was free {when}{_hindrance(objects, user, holds, pool)}"
    return ApiError(429, "TooManyRequests", why, details={"retryAfterSeconds": seconds})


def _hindrance(objects: Objects, user: User, holds: ClaimHolds, pool: WorkerPool) -> str:
    """Return why a pool has no free instance, as far as the user may read that, with a command where waiting does not
    help."""
    name, namespace = pool.metadata.name, pool.metadata.namespace
    if not allows(user, "get", WorkerPool.api, namespace, name):
        return ""
    # The present pool, not that of the time when the wait began.
    pool = get(objects, WorkerPool, name, namespace) or pool
    place = f" -n {namespace}" if namespace != "default" else ""
    wait = wait_of(pool, None, objects, holds.executor.holders_of)
    if pool.spec.replicas == 0 and not wait.workers:
        scale = f"`rota scale workerpool/{name} --replicas=1{place}`"
        return f": it has no instances (spec.replicas is 0); {scale} makes one"
    ready = pool.status.condition("Ready") if pool.status is not None else None
    if wait.unready and not wait.holders and ready is not None and ready.status == "False":
        return f": {ready.message or ready.reason}; `rota why workerpool/{name}{place}` tells what to do"
    if not wait.workers:
        return ": it has no instances yet"
    if all(allows(user, "list", kind, namespace) for kind in (Claim.api, Task.api)):
        return f": {wait.workers_message}"
    return f": {len(wait.holders)} of {wait.workers} busy"


def _ended_error(claim: Claim) -> ApiError:
    status = claim.status
    assert status is not None
    why = ": ".join(filter(None, (status.reason, status.message)))
    message = (
        f'claims "{claim.metadata.name}" is over ({status.phase}{f", {why}" if why else ""}): ask under another name'
    )
    return ApiError(409, "ClaimOver", message)


async def _no_pool(objects: Objects, namespace: str, name: str) -> ApiError:
    there = sorted(one.metadata.name for one in await objects.select(WorkerPool.api, namespace, lambda pool: True))
    more = f" and {len(there) - NAMED_MAX} more" if len(there) > NAMED_MAX else ""
    known = f"there are {', '.join(there[:NAMED_MAX])}{more}" if there else "there is none"
    # Comparing a name with thousands of others would block the event loop for long.
    near = get_close_matches(name, there, 1) if len(there) <= NAMED_MAX else []
    hint = f"; did you mean {near[0]}?" if near else ""
    return ApiError(404, "NotFound", f'no WorkerPool "{name}" in namespace "{namespace}"{hint}; {known}')
