"""The gateway, `/v1`: what Rota has beside objects. Tokens, backups, atomic batches and the server's own state."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota import __version__
from rota.api import KINDS
from rota.client import LocalBackend, Operation
from rota.engine import Objects, StoreObjects
from rota.engine.metrics import CONTENT_TYPE
from rota.registry import ApiError, DeleteOptions, Registry, WriteOptions
from rota.registry.deciding import PatchType
from rota.registry.errors import bad_request
from rota.registry.options import FieldValidation, Propagation
from rota.runtime.blobs import Blobs
from rota.server import media
from rota.server.audit import Audit, Line
from rota.server.audit import now as audit_now
from rota.server.auth import Token, Tokens, User, allows
from rota.server.blobs import BlobRequests
from rota.server.blobs import streams_body as streams_blob
from rota.server.claims import ClaimRequests
from rota.server.controllers import Controllers
from rota.server.exec import exec_
from rota.server.files import FileRequests, streams_body
from rota.server.function_logs import function_logs
from rota.server.http import Answer, HttpServer, Request, Response, Stream
from rota.server.logs import logs, task_logs, task_result
from rota.server.runners import stream
from rota.server.shedding import Shedding
from rota.server.signed import SignedTokens
from rota.server.tables import Tables
from rota.server.upgrade import Upgrade
from rota.server.why import holder, why
from rota.store import SqliteStore

GROWING = frozenset(("POST", "PUT"))
"""Methods of what takes space."""
BACKUP_CHUNK_BYTES = 256 * 1024
_encode = msgspec.json.Encoder().encode
VERBS = {"create": "create", "update": "update", "patch": "patch", "apply": "patch", "delete": "delete"}


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


class NewToken(msgspec.Struct, rename="camel"):
    name: str
    scope: str
    namespace: str = ""
    expires_seconds: int = 0


class Gateway:
    """The handlers below `/v1`."""

    def __init__(
        self,
        registry: Registry,
        tokens: Tokens,
        audit: Audit,
        home: Path,
        claim_tokens: SignedTokens,
        tables: Tables,
        shedding: Shedding | None = None,
    ) -> None:
        self._shedding = shedding or Shedding()
        self._registry = registry
        self._backend = LocalBackend(registry)
        self._tokens = tokens
        self._audit = audit
        self._home = home
        self._tables = tables
        self._started = time.monotonic()
        self._files = FileRequests(audit)
        self._blobs = BlobRequests(Blobs(home), audit)
        self._claims = ClaimRequests(registry, audit, claim_tokens)
        self._http: HttpServer | None = None
        self.edge = ""
        """Where webhooks come in."""
        self.controllers: Controllers | None = None
        """The controllers of this process, if it has any."""
        self.on_revoked: Callable[[str], None] = lambda token_id: None
        """Told of a token that is no longer good."""

    @property
    def http(self) -> HttpServer | None:
        return self._http

    @http.setter
    def http(self, http: HttpServer) -> None:
        self._http = http
        http.streams_body = lambda target: streams_body(target) or streams_blob(target)

    def __call__(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        parts = request.path.strip("/").split("/")[1:]
        if request.method in GROWING and parts[-1:] not in (["renew"], ["batch"]):
            # A renewal takes no more space than there is: what is held stays held. A batch may delete.
            self._shedding.check(user)
        match [request.method, *parts]:
            case ["GET", "status"]:
                return self._admin(user) or Response(200, _encode(self._status()))
            case ["GET", "tokens"]:
                return self._admin(user) or Response(200, _encode({"tokens": [shown(t) for t in self._tokens.list()]}))
            case ["POST", "tokens"]:
                return self._admin(user) or self._create_token(request, user)
            case ["DELETE", "tokens", token_id]:
                return self._admin(user) or self._revoke_token(token_id, user)
            case ["GET", "why", plural, name]:
                return self._why(user, plural, "", name)
            case ["GET", "why", plural, namespace, name]:
                return self._why(user, plural, namespace, name)
            case ["GET", "stream", namespace, name]:
                return self._stream(user, namespace, name)
            case ["GET", "logs", namespace, name]:
                return self._logs(logs, request, user, namespace, name)
            case ["GET", "tasks", namespace, name, "logs"]:
                return self._logs(task_logs, request, user, namespace, name)
            case ["GET", "tasks", namespace, name, "result"]:
                return self._logs(task_result, request, user, namespace, name)
            case ["GET", "functions", namespace, name, "logs"]:
                serving = self.controllers.serving if self.controllers else None
                return function_logs(serving, self._seen(), request, user, namespace, name)
            case ["GET", "exec", namespace, name]:
                return self._exec(request, user, namespace, name)
            case ["GET" | "PUT" | "DELETE", "instances", namespace, name, "files" | "archive" as what]:
                running = self.controllers
                runtime = running.runtime if running else None
                objects = running.objects if running else StoreObjects(self._registry)
                return self._files(runtime, objects, request, user, namespace, name, what)
            case ["GET" | "HEAD" | "PUT", "blobs", digest]:
                return self._blobs(self._seen(), request, user, digest)
            case ["POST", "pools", namespace, pool, "claims"]:
                return self._claims.open(self.controllers, request, user, namespace, pool)
            case ["GET", "pools", namespace, pool, "claims"]:
                return self._claims.list(self._seen(), user, namespace, pool)
            case ["GET", "claims", namespace, name]:
                return self._claims.get(self._seen(), user, namespace, name)
            case ["POST", "claims", namespace, name, "renew"]:
                return self._claims.renew(self._seen(), user, namespace, name)
            case ["DELETE", "claims", namespace, name]:
                return self._claims.release(self.controllers, self._seen(), user, namespace, name)
            case ["GET", "metrics"]:
                return self._admin(user) or Response(200, self._metrics(), CONTENT_TYPE)
            case ["GET", "backup"]:
                return self._admin(user) or Stream(self._backup(), "application/vnd.sqlite3")
            case ["POST", "batch"]:
                return self._batch(request, user)
        raise ApiError(404, "NotFound", "the server could not find the requested resource")

    @staticmethod
    def _admin(user: User) -> None:
        if user.scope != "admin":
            raise ApiError(403, "Forbidden", f'User "{user.name}" may not do this: it takes a token of scope admin')

    def _status(self) -> dict[str, Any]:
        store = self._registry.store
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptimeSeconds": int(time.monotonic() - self._started),
            "revision": store.revision,
            "objects": sum(store.count(f"{kind.bucket}/") for kind in KINDS.values()),
            "connections": len(self._http.connections) if self._http else 0,
            "home": str(self._home),
            "edge": self.edge,
            "disk": self._shedding.status(),
        }

    def _seen(self) -> Objects:
        return self.controllers.objects if self.controllers else StoreObjects(self._registry)

    def _metrics(self) -> bytes:
        return (self.controllers.metrics.render() if self.controllers else b"") + self._tables.render()

    def _logs(self, of: Callable[..., Answer], request: Request, user: User, namespace: str, name: str) -> Answer:
        running = self.controllers
        runtime, objects = (running.runtime, running.objects) if running else (None, StoreObjects(self._registry))
        return of(runtime, objects, request, user, namespace, name)

    def _stream(self, user: User, namespace: str, name: str) -> Upgrade:
        if self.controllers is None:
            raise ApiError(503, "ServiceUnavailable", "nothing runs in this server: it has no controllers")
        return stream(self.controllers.runners, self.controllers.objects, user, namespace, name)

    def _exec(self, request: Request, user: User, namespace: str, name: str) -> Upgrade:
        running = self.controllers
        runtime, objects = (running.runtime, running.objects) if running else (None, StoreObjects(self._registry))
        return exec_(runtime, objects, self._audit, request, user, namespace, name)

    def _why(self, user: User, plural: str, namespace: str, name: str) -> Response:
        elsewhere = "" if self.controllers else holder(self._registry)
        return why(self.controllers, user, plural, namespace, name, elsewhere=elsewhere)

    # Tokens.

    def _create_token(self, request: Request, user: User) -> Response:
        asked = _typed(request, NewToken)
        try:
            secret, token = self._tokens.create(
                asked.name,
                asked.scope,
                namespace=asked.namespace,
                expires_seconds=asked.expires_seconds,
            )
        except ValueError as error:
            raise bad_request(str(error)) from None
        self._audit.write(
            Line(audit_now(), user.name, user.scope, "create", "tokens", token.namespace, token.id, "", 201)
        )
        return Response(201, _encode({**shown(token), "token": secret}))

    def _revoke_token(self, token_id: str, user: User) -> Response:
        if not self._tokens.revoke(token_id):
            raise ApiError(
                404, "NotFound", f'token "{token_id}" not found', details={"name": token_id, "kind": "tokens"}
            )
        self._audit.write(Line(audit_now(), user.name, user.scope, "delete", "tokens", "", token_id, "", 200))
        self.on_revoked(token_id)
        return Response(200, _encode({"kind": "Status", "apiVersion": "v1", "status": "Success"}))

    # Backup.

    async def _backup(self) -> AsyncIterator[bytes]:
        store = self._registry.store
        if not isinstance(store, SqliteStore):
            raise bad_request("this server has its objects in memory only: there is nothing to back up")
        with tempfile.TemporaryDirectory(dir=self._home) as folder:
            path = Path(folder) / "backup.db"
            await store.backup(path)
            with path.open("rb") as file:
                while chunk := file.read(BACKUP_CHUNK_BYTES):
                    yield chunk

    # Atomic batches.

    async def _batch(self, request: Request, user: User) -> Answer:
        try:
            operations = [self._operation(o, user) for o in _typed(request, Batch).operations]
            if any(o.verb != "delete" for o in operations):
                self._shedding.check(user)
            answers = await self._backend.batch(operations)
        except ApiError as error:
            return Response(error.code, _encode(error.status()))
        for o, answer in zip(operations, answers, strict=True):
            name = o.name or msgspec.json.decode(answer.value)["metadata"]["name"]
            dry_run = o.delete.dry_run if o.verb == "delete" else o.options.dry_run
            line = Line(
                audit_now(),
                user.name,
                user.scope,
                VERBS[o.verb],
                o.kind.bucket,
                o.namespace,
                name,
                o.subresource,
                200,
                answer.revision,
                dry_run,
            )
            self._audit.write(line)
        return Response(200, b'{"objects":[%b]}' % b",".join(answer.value for answer in answers))

    @staticmethod
    def _operation(o: Batched, user: User) -> Operation:
        kind = KINDS.get(o.kind)
        if kind is None or kind.api_version != o.api_version:
            raise bad_request(f"no {o.verb} of {o.api_version} {o.kind}")
        if o.subresource not in ("", *kind.parts):
            raise bad_request(f"{kind.bucket} have no {o.subresource} that is written in a batch")
        if not allows(user, VERBS[o.verb], kind, o.namespace if kind.namespaced else "", o.name, o.subresource):
            raise ApiError(
                403, "Forbidden", f'User "{user.name}" cannot {VERBS[o.verb]} {kind.bucket} in "{o.namespace}"'
            )
        restricted = user.scope != "admin"
        options = WriteOptions(o.manager, o.dry_run, o.field_validation, o.force, restricted, user.name)
        conditions = o.preconditions
        delete = DeleteOptions(
            o.propagation_policy,
            conditions.get("uid"),
            conditions.get("resourceVersion"),
            o.dry_run,
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


def shown(token: Token) -> dict[str, Any]:
    """A token without its hash."""
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope,
        "namespace": token.namespace,
        "created": token.created,
        "expires": token.expires,
    }


def _typed(request: Request, type_: type[Any]) -> Any:
    try:
        return msgspec.convert(media.decoded(request.body, request.headers.get("content-type", "")), type_)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None
