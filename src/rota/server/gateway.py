"""The gateway, `/v1`: what Rota has beside objects. Tokens, backups, batches and the server's own state."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota import __version__
from rota.api import KINDS, Claim, Function, Role, Task
from rota.control.cells.reaching import elsewhere
from rota.engine import Objects, StoreObjects
from rota.engine.metrics import CONTENT_TYPE
from rota.registry import Answer as Written
from rota.registry import ApiError, DeleteOptions, Operation, Registry, WriteOptions
from rota.registry.errors import bad_request
from rota.registry.options import FieldValidation, PatchType, Propagation
from rota.registry.registry import BATCH_BYTES_MAX, BATCH_OBJECTS_MAX
from rota.runtime.blobs import Blobs
from rota.runtime.interface import Runtime
from rota.server import media
from rota.server.access import (
    ADMIN,
    BLOB_READER,
    BLOB_WRITER,
    CLAIMING,
    EACH,
    INSTANCE_LOG,
    NOT_FOUND,
    RUNNER,
    Asking,
    Endpoint,
    Endpoints,
    entering,
    may,
    of_claim,
)
from rota.server.audit import Audit
from rota.server.auth import Token, Tokens, User, allows, verbs_of
from rota.server.blobs import BlobRequests
from rota.server.blobs import streams_body as streams_blob
from rota.server.cells import CellRequests, of_cell
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
from rota.server.tunnel import Tunnels
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
    atomic: bool = True
    """False: each operation is allowed, decided and answered by itself."""


class Result(msgspec.Struct, omit_defaults=True):
    """What came of one operation of a batch that is not atomic."""

    code: int
    object: msgspec.Raw = msgspec.Raw()
    status: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


class NewToken(msgspec.Struct, rename="camel"):
    name: str
    scope: str = ""
    namespace: str = ""
    expires_seconds: int = 0
    role: str = ""
    ttl_seconds: int = 0
    """Of one that is signed, and not kept."""


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
        self._tokens = tokens
        self._audit = audit
        self._home = home
        self._tables = tables
        self._started = time.monotonic()
        self._files = FileRequests(audit)
        self._blobs = BlobRequests(Blobs(home), audit)
        self._claims = ClaimRequests(registry, audit, claim_tokens)
        self.cells = CellRequests(tokens, audit, home / "ca.crt")
        self._tunnels = Tunnels(audit)
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
        endpoint, where = self.check(request, user)
        self._audit.begin(user, request.method, request.path)
        answer: Answer | Awaitable[Answer] = endpoint.handler(self, request, user, **where)
        return answer

    def check(self, request: Request, user: User) -> tuple[Endpoint, dict[str, str]]:
        """Refuse what somebody may not do. Returns what is asked for."""
        endpoint, where = ENDPOINTS.find(request.method, request.path)
        try:
            endpoint.decision.check(Asking(user, self._seen(), where))
        except ApiError as error:
            self._refused(endpoint, user, where, error)
            raise
        if request.method in GROWING and endpoint.takes_space:
            self._shedding.check(user)
        return endpoint, where

    @staticmethod
    def goes_in(request: Request) -> bool:
        """Whether a request is for what is in an instance."""
        return ENDPOINTS.find(request.method, request.path)[0].decision.goes_in

    def _refused(self, endpoint: Endpoint, user: User, where: dict[str, str], error: ApiError) -> None:
        verb, _, what = endpoint.act.partition(" ")
        resource, _, part = what.partition("/")
        name = where.get("name") or where.get("pool") or where.get("digest") or where.get("token_id", "")
        self._audit.refused(user, verb, resource, where.get("namespace", ""), name, part, error.code)

    # What it is made of.

    def status(self, request: Request, user: User) -> Response:
        return Response(200, _encode(self._status()))

    def metrics(self, request: Request, user: User) -> Response:
        return Response(200, self._metrics(), CONTENT_TYPE)

    def why(self, request: Request, user: User, plural: str, name: str, namespace: str = "") -> Response:
        elsewhere = "" if self.controllers else holder(self._registry)
        return why(self.controllers, user, plural, namespace, name, elsewhere=elsewhere)

    def stream(self, request: Request, user: User, namespace: str, name: str) -> Upgrade:
        if self.controllers is None:
            raise ApiError(503, "ServiceUnavailable", "nothing runs in this server: it has no controllers")
        return stream(self.controllers.runners, self.controllers.objects, user, namespace, name, request.headers)

    def logs(self, request: Request, user: User, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        if (instance := elsewhere(self._seen(), namespace, name)) is not None:
            return self._tunnels.answer(self._seen(), request, user, instance, "logs")
        return logs(self._runtime, self._seen(), request, user, namespace, name)

    def task_logs(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        return task_logs(self._runtime, self._seen(), request, namespace, name)

    def task_result(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        return task_result(self._runtime, self._seen(), namespace, name)

    def function_logs(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        serving = self.controllers.serving if self.controllers else None
        return function_logs(serving, self._seen(), request, namespace, name)

    def exec(self, request: Request, user: User, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        if (instance := elsewhere(self._seen(), namespace, name)) is not None:
            return self._tunnels.answer(self._seen(), request, user, instance, "exec")
        return exec_(self._runtime, self._seen(), self._audit, request, user, namespace, name)

    def files(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        what = request.path.rstrip("/").rpartition("/")[2]
        if (instance := elsewhere(self._seen(), namespace, name)) is not None:
            return self._tunnels.answer(self._seen(), request, user, instance, what)
        return self._files(self._runtime, self._seen(), request, user, namespace, name, what)

    def blob(self, request: Request, user: User, digest: str) -> Awaitable[Answer]:
        return self._blobs(self._seen(), request, user, digest)

    def open_claim(self, request: Request, user: User, namespace: str, pool: str) -> Awaitable[Answer]:
        return self._claims.open(self.controllers, request, user, namespace, pool)

    def list_claims(self, request: Request, user: User, namespace: str, pool: str) -> Answer:
        return self._claims.list(self._seen(), namespace, pool)

    def get_claim(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        return self._claims.get(self._seen(), user, namespace, name)

    def renew_claim(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        return self._claims.renew(self._seen(), user, namespace, name)

    def release_claim(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        return self._claims.release(self.controllers, self._seen(), user, namespace, name)

    def invite_cell(self, request: Request, user: User, name: str) -> Answer:
        return self.cells.invite(self._seen(), user, name)

    def join_cell(self, request: Request, user: User, name: str) -> Answer:
        answer = self.cells.join(self._seen(), request, user, name, self._end_token)
        if self.controllers is not None and self.controllers.reports is not None:
            self.controllers.reports.forget(name)
        return answer

    def cell_report(self, request: Request, user: User, name: str) -> Awaitable[Answer]:
        return self.cells.report(self.controllers, request, user, name)

    def cell_reach(self, request: Request, user: User, name: str) -> Upgrade:
        return self._tunnels.control(self._seen(), request, name)

    def cell_session(self, request: Request, user: User, name: str, session: str) -> Upgrade:
        return self._tunnels.session(request, name, session)

    def reached(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        """In a cell: answer what its hub asks about an instance, on behalf of somebody there."""
        self._audit.check()
        return self(request, user)

    def link(self, request: Request, user: User, act: str) -> Answer:
        """Cut this cell off from its hub, or heal that: to see what then happens."""
        link = self.controllers.link if self.controllers is not None else None
        if link is None:
            raise ApiError(404, "NotFound", "this server is no cell of a hub")
        if act not in ("cut", "heal"):
            raise ApiError(404, "NotFound", NOT_FOUND)
        link.cut() if act == "cut" else link.heal()
        self._audit.record(user, "update", "cells.rota.dev", "", act, "link", 200)
        return Response(200, _encode({"isCut": link.is_cut}))

    @property
    def _runtime(self) -> Runtime | None:
        return self.controllers.runtime if self.controllers else None

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
        own = self.controllers.metrics.render() if self.controllers else b""
        return own + self._tunnels.counting.render(self._seen()) + self._tables.render()

    # Tokens.

    def list_tokens(self, request: Request, user: User) -> Response:
        return Response(200, _encode({"tokens": [shown(t) for t in self._tokens.list()]}))

    def create_token(self, request: Request, user: User) -> Response:
        asked = _typed(request, NewToken)
        scope: Any = asked.scope or ("role" if asked.role else "")
        if asked.role and not self._has_role(asked.namespace, asked.role):
            raise bad_request(f'there is no Role "{asked.role}" in "{asked.namespace}": make it first')
        about: dict[str, Any] = {"namespace": asked.namespace, "role": asked.role}
        try:
            if asked.ttl_seconds and asked.expires_seconds:
                raise ValueError("a token has ttlSeconds or expiresSeconds, and not both")
            if asked.ttl_seconds:
                secret, token = self._tokens.sign(asked.name, scope, seconds=asked.ttl_seconds, **about)
            else:
                secret, token = self._tokens.create(asked.name, scope, expires_seconds=asked.expires_seconds, **about)
        except ValueError as error:
            raise bad_request(str(error)) from None
        self._audit.record(user, "create", "tokens", token.namespace, token.id, "", 201)
        return Response(201, _encode({**shown(token), "token": secret}))

    def _has_role(self, namespace: str, name: str) -> bool:
        return self._registry.store.get(Role.api.key(namespace, name)) is not None

    async def revoke_token(self, request: Request, user: User, token_id: str) -> Response:
        if not self._end_token(token_id):
            raise ApiError(
                404, "NotFound", f'token "{token_id}" not found', details={"name": token_id, "kind": "tokens"}
            )
        self._audit.record(user, "delete", "tokens", "", token_id, "", 200)
        await self._claims.release_all(self.controllers, self._seen(), token_id)
        return Response(200, _encode({"kind": "Status", "apiVersion": "v1", "status": "Success"}))

    def _end_token(self, token_id: str) -> bool:
        """End a token, and the watches that were opened with it. False when there is none of this id."""
        if not self._tokens.revoke(token_id):
            return False
        self.on_revoked(token_id)
        return True

    # Backup.

    def backup(self, request: Request, user: User) -> Stream:
        # Before anything of it is sent: it has everything, also the Secrets.
        self._audit.record(user, "get", "backup", code=200)
        return Stream(self._backup(), "application/vnd.sqlite3")

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

    # Batches.

    async def batch(self, request: Request, user: User) -> Answer:
        batch = _typed(request, Batch)
        if not batch.atomic:
            return await self._write_each(batch.operations, user)
        try:
            operations = [self._operation(o, user) for o in batch.operations]
            if any(o.verb != "delete" for o in operations):
                self._shedding.check(user)
        except ApiError as error:
            return Response(error.code, _encode(error.status()))
        try:
            answers = await self._registry.write(operations)
        except ApiError as error:
            # Whichever of them failed, the others were looked at, too. Each object has one line.
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
            # Allowed when it is its turn: what the operations before it have done is there by then.
            for one in batched:
                try:
                    operation = self._operation(one, user)
                    if operation.verb != "delete":
                        self._shedding.check(user)
                    tried.append(operation)
                except ApiError as refused:
                    tried.append(refused)
                yield tried[-1]

        answers = await self._registry.write_each(decided_on(), bytes_max=BATCH_BYTES_MAX)
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
        restricted = user.scope != "admin"
        options = WriteOptions(o.manager, o.dry_run, o.field_validation, o.force, restricted, user.name, user.rules)
        conditions = o.preconditions
        delete = DeleteOptions(
            o.propagation_policy,
            conditions.get("uid"),
            conditions.get("resourceVersion"),
            o.dry_run,
            restricted,
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


ENDPOINTS = Endpoints(
    (
        Endpoint("GET", "/v1/status", ADMIN, "get status", Gateway.status),
        Endpoint("GET", "/v1/metrics", ADMIN, "get metrics", Gateway.metrics),
        Endpoint("GET", "/v1/backup", ADMIN, "get backup", Gateway.backup),
        Endpoint("GET", "/v1/tokens", ADMIN, "list tokens", Gateway.list_tokens),
        Endpoint("POST", "/v1/tokens", ADMIN, "create tokens", Gateway.create_token),
        Endpoint("DELETE", "/v1/tokens/{token_id}", ADMIN, "delete tokens", Gateway.revoke_token),
        Endpoint("POST", "/v1/cells/{name}/invite", ADMIN, "create cells.rota.dev/join", Gateway.invite_cell),
        Endpoint("POST", "/v1/cells/{name}/join", of_cell("join"), "create cells.rota.dev/join", Gateway.join_cell),
        Endpoint(
            "POST",
            "/v1/cells/{name}/report",
            of_cell("cell"),
            "create cells.rota.dev/report",
            Gateway.cell_report,
            takes_space=False,
        ),
        Endpoint("GET", "/v1/cells/{name}/reach", of_cell("cell"), "create cells.rota.dev/reach", Gateway.cell_reach),
        Endpoint(
            "GET",
            "/v1/cells/{name}/reach/{session}",
            of_cell("cell"),
            "create cells.rota.dev/reach",
            Gateway.cell_session,
        ),
        Endpoint("POST", "/v1/link/{act}", ADMIN, "update cells.rota.dev/link", Gateway.link, takes_space=False),
        Endpoint("POST", "/v1/batch", EACH, "create batch", Gateway.batch, takes_space=False),
        Endpoint("GET", "/v1/why/{plural}/{name}", EACH, "get why", Gateway.why),
        Endpoint("GET", "/v1/why/{plural}/{namespace}/{name}", EACH, "get why", Gateway.why),
        Endpoint("GET", "/v1/stream/{namespace}/{name}", RUNNER, "create instances.rota.dev/stream", Gateway.stream),
        Endpoint(
            "GET",
            "/v1/exec/{namespace}/{name}",
            entering("create", "exec"),
            "create instances.rota.dev/exec",
            Gateway.exec,
        ),
        Endpoint(
            "GET",
            "/v1/instances/{namespace}/{name}/files",
            entering("get", "files"),
            "get instances.rota.dev/files",
            Gateway.files,
        ),
        Endpoint(
            "PUT",
            "/v1/instances/{namespace}/{name}/files",
            entering("update", "files"),
            "update instances.rota.dev/files",
            Gateway.files,
        ),
        Endpoint(
            "DELETE",
            "/v1/instances/{namespace}/{name}/files",
            entering("delete", "files"),
            "delete instances.rota.dev/files",
            Gateway.files,
        ),
        Endpoint(
            "GET",
            "/v1/instances/{namespace}/{name}/archive",
            entering("get", "files"),
            "get instances.rota.dev/archive",
            Gateway.files,
        ),
        Endpoint(
            "PUT",
            "/v1/instances/{namespace}/{name}/archive",
            entering("update", "files"),
            "update instances.rota.dev/archive",
            Gateway.files,
        ),
        Endpoint(
            "DELETE",
            "/v1/instances/{namespace}/{name}/archive",
            entering("delete", "files"),
            "delete instances.rota.dev/archive",
            Gateway.files,
        ),
        Endpoint("GET", "/v1/logs/{namespace}/{name}", INSTANCE_LOG, "get instances.rota.dev/logs", Gateway.logs),
        Endpoint(
            "GET",
            "/v1/tasks/{namespace}/{name}/logs",
            may("get", Task.api, "log"),
            "get tasks.rota.dev/logs",
            Gateway.task_logs,
        ),
        Endpoint(
            "GET",
            "/v1/tasks/{namespace}/{name}/result",
            may("get", Task.api, "result"),
            "get tasks.rota.dev/result",
            Gateway.task_result,
        ),
        Endpoint(
            "GET",
            "/v1/functions/{namespace}/{name}/logs",
            may("get", Function.api, "log"),
            "get functions.rota.dev/logs",
            Gateway.function_logs,
        ),
        Endpoint("GET", "/v1/blobs/{digest}", BLOB_READER, "get blobs", Gateway.blob),
        Endpoint("HEAD", "/v1/blobs/{digest}", BLOB_READER, "get blobs", Gateway.blob),
        Endpoint("PUT", "/v1/blobs/{digest}", BLOB_WRITER, "update blobs", Gateway.blob),
        Endpoint(
            "POST",
            "/v1/pools/{namespace}/{pool}/claims",
            CLAIMING,
            "create claims.rota.dev",
            Gateway.open_claim,
        ),
        Endpoint(
            "GET",
            "/v1/pools/{namespace}/{pool}/claims",
            may("list", Claim.api),
            "list claims.rota.dev",
            Gateway.list_claims,
        ),
        Endpoint("GET", "/v1/claims/{namespace}/{name}", of_claim("get"), "get claims.rota.dev", Gateway.get_claim),
        Endpoint(
            "POST",
            "/v1/claims/{namespace}/{name}/renew",
            of_claim("update"),
            "update claims.rota.dev/renew",
            Gateway.renew_claim,
            takes_space=False,
        ),
        Endpoint(
            "DELETE",
            "/v1/claims/{namespace}/{name}",
            of_claim("delete"),
            "delete claims.rota.dev",
            Gateway.release_claim,
        ),
    )
)
"""Everything below `/v1`, and who is let in."""


def shown(token: Token) -> dict[str, Any]:
    """A token without its hash."""
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope,
        "role": token.role,
        "namespace": token.namespace,
        "created": token.created,
        "expires": token.expires,
    }


def _typed(request: Request, type_: type[Any]) -> Any:
    try:
        return msgspec.convert(media.decoded(request.body, request.headers.get("content-type", "")), type_)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None
