"""`/v1/batch`: several writes in one request, on the registry of a Rota server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from rota.api import KINDS
from rota.registry import Answer as Written
from rota.registry import ApiError, DeleteOptions, Operation, Registry, WriteOptions
from rota.registry.errors import bad_request
from rota.registry.options import FieldValidation, PatchType, Propagation
from rota.registry.registry import BATCH_BYTES_MAX, BATCH_OBJECTS_MAX
from rota.server.audit import Audit
from rota.server.auth import User, allows, verbs_of
from rota.server.finishing import finished
from rota.server.http import Response
from rota.server.shedding import Shedding

VERBS = {"create": "create", "update": "update", "patch": "patch", "apply": "patch", "delete": "delete"}
_encode = msgspec.json.Encoder().encode


class Batched(msgspec.Struct, rename="camel"):
    """One operation of a batch, as it is sent."""

    verb: Literal["create", "update", "patch", "apply", "delete"]
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    body: Any = None
    manager: str = "unknown"
    field_validation: FieldValidation = "Warn"
    force: bool = False
    subresource: str = ""
    patch_type: PatchType = "merge"
    propagation_policy: Propagation = ""
    preconditions: dict[str, str] = {}
    dry_run: bool = False


class Batch(msgspec.Struct):
    operations: list[Batched]
    atomic: bool = True
    """False: each operation is authorized, validated and answered by itself."""


class Result(msgspec.Struct, omit_defaults=True):
    """The result of one operation of a batch that is not atomic."""

    code: int
    object: msgspec.Raw = msgspec.Raw()
    status: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


class Batches:
    """Writes batches. Each operation is authorized as a request to the URL of its object would be."""

    def __init__(self, registry: Registry, audit: Audit, shedding: Shedding) -> None:
        self._registry = registry
        self._audit = audit
        self._shedding = shedding

    async def write(self, batch: Batch, user: User) -> Response:
        """Write a batch, in one atomic commit or one by one, and record it in the audit trail.

        The batch is finished even if the client goes away.
        """
        return await finished(self._write(batch, user) if batch.atomic else self._write_each(batch.operations, user))

    async def _write(self, batch: Batch, user: User) -> Response:
        try:
            operations = [self._operation(o, user) for o in batch.operations]
            if any(o.verb != "delete" for o in operations):
                self._shedding.check(user)
        except ApiError as error:
            return Response(error.code, _encode(error.status()))
        try:
            answers = await self._registry.write(operations, caller=user.share_key or user.name)
        except ApiError as error:
            # One operation failed, but all were examined. Each object has one line.
            tried = dict.fromkeys((VERBS[o.verb], o.kind.bucket, o.namespace, o.name) for o in operations)
            for verb, resource, namespace, name in tried:
                self._audit.record(user, verb, resource, namespace, name, code=error.code)
            return Response(error.code, _encode(error.status()))
        for o, answer in zip(operations, answers, strict=True):
            self._record(user, o, answer)
        return Response(200, b'{"objects":[%b]}' % b",".join(answer.value for answer in answers))

    async def _write_each(self, batched: list[Batched], user: User) -> Response:
        if len(batched) > BATCH_OBJECTS_MAX:
            raise bad_request(f"a batch has at most {BATCH_OBJECTS_MAX} operations, not {len(batched)}")
        tried: list[Operation | ApiError] = []

        def decided_on() -> Iterator[Operation | ApiError]:
            # Authorized in turn, because it may depend on the operations before it.
            for one in batched:
                try:
                    operation = self._operation(one, user)
                    if operation.verb != "delete":
                        self._shedding.check(user)
                    tried.append(operation)
                except ApiError as refused:
                    tried.append(refused)
                yield tried[-1]

        share_key = user.share_key or user.name
        answers = await self._registry.write_each(decided_on(), bytes_max=BATCH_BYTES_MAX, caller=share_key)
        results = []
        for o, answer in zip(tried, answers, strict=True):
            if isinstance(o, Operation):
                self._record(user, o, answer)
            if isinstance(answer, ApiError):
                results.append(Result(answer.code, status=answer.status(), warnings=answer.warnings))
            else:
                code = 201 if answer.created else 200
                results.append(Result(code, msgspec.Raw(answer.value), warnings=answer.warnings))
        return Response(200, _encode({"results": results}))

    def _record(self, user: User, o: Operation, answer: Written | ApiError) -> None:
        about = (VERBS[o.verb], o.kind.bucket, o.namespace)
        if isinstance(answer, ApiError):
            self._audit.record(user, *about, o.name, o.subresource, answer.code)
            return
        name = o.name or msgspec.json.decode(answer.value)["metadata"]["name"]
        self._audit.record(user, *about, name, o.subresource, 200, answer.revision, o.dry_run)

    def _operation(self, o: Batched, user: User) -> Operation:
        kind = KINDS.get(o.kind)
        if kind is None or kind.api_version != o.api_version:
            raise ApiError(404, "NotFound", f"no {o.verb} of {o.api_version} {o.kind}")
        if o.subresource not in ("", *kind.parts):
            raise bad_request(f"{kind.bucket} have no {o.subresource} that is written in a batch")
        namespace = o.namespace if kind.namespaced else ""
        is_there = self._registry.store.head(kind.key(namespace, o.name)) is not None
        for verb in verbs_of(VERBS[o.verb], kind, is_apply=o.verb == "apply", is_there=is_there):
            if allows(user, verb, kind, namespace, o.name, o.subresource):
                continue
            self._audit.refused(user, verb, kind.bucket, o.namespace, o.name, o.subresource)
            raise ApiError(403, "Forbidden", f'User "{user.name}" cannot {verb} {kind.bucket} in "{o.namespace}"')
        if o.subresource and o.verb in ("create", "delete"):
            # Both act on whole objects. Permission for a subresource is no permission for the object.
            raise ApiError(405, "MethodNotAllowed", f"no {o.verb} of the {o.subresource} of {kind.bucket}")
        restricted = user.scope != "admin"
        options = WriteOptions(o.manager, o.dry_run, o.field_validation, o.force, restricted, user.name, user.rules)
        conditions = o.preconditions
        delete = DeleteOptions(
            propagation=o.propagation_policy,
            uid=conditions.get("uid"),
            resource_version=conditions.get("resourceVersion"),
            dry_run=o.dry_run,
            restricted=restricted,
        )
        return Operation(
            o.verb,
            kind,
            o.namespace,
            o.name,
            o.body,
            options,
            delete,
            o.subresource,
            o.patch_type,
        )
