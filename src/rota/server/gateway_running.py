"""The gateway's part for instances, tasks, functions and claims, and for `why`.

It uses a `Client` and `Objects`, so it works on a Rota server's own store and on a Kubernetes cluster alike, and never
imports a registry.
"""

from __future__ import annotations

from collections.abc import Awaitable

from rota.api import Claim, Function, Task
from rota.control.cells.tunnel_messages import elsewhere
from rota.engine.metrics import CONTENT_TYPE
from rota.engine.objects import Objects
from rota.registry.errors import ApiError
from rota.runtime.interface import Runtime
from rota.server.access import (
    ADMIN,
    BLOB_READER,
    BLOB_WRITER,
    CLAIMING,
    EACH,
    INSTANCE_LOG,
    RUNNER,
    Endpoint,
    entering,
    may,
    of_claim,
)
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.blobs import BlobRequests
from rota.server.claims import ClaimRequests
from rota.server.controllers import Running
from rota.server.entering import NO_CONTROLLERS, NO_RUNTIME, Absent, present
from rota.server.exec import exec_
from rota.server.files import FileRequests
from rota.server.function_logs import function_logs
from rota.server.http import Answer, Request, Response
from rota.server.hub_tunnel import Tunnels
from rota.server.logs import logs, task_logs, task_result
from rota.server.runners import stream
from rota.server.tables import Tables
from rota.server.upgrade import Upgrade
from rota.server.why import holder, why

NO_BLOBS = "nothing is kept here: the code of functions goes into ConfigMaps of the cluster, as `rota deploy` has it"


class RunningPart:
    """Answers requests about what runs, here or in a cell of this hub."""

    def __init__(
        self,
        objects: Objects,
        audit: Audit,
        claims: ClaimRequests,
        blobs: BlobRequests | None,
        tunnels: Tunnels,
        tables: Tables,
        running: Running,
    ) -> None:
        """`running` returns the controllers of this process, or None. Without `blobs` it stores no blobs."""
        self._objects = objects
        self._audit = audit
        self._claims = claims
        self._blobs = blobs
        self._tunnels = tunnels
        self._tables = tables
        self._running = running
        self._files = FileRequests(audit)

    @property
    def _runtime(self) -> Runtime | Absent:
        running = self._running()
        if running is None:
            return NO_CONTROLLERS
        return running.runtime or NO_RUNTIME

    def metrics(self, request: Request, user: User) -> Response:
        running = self._running()
        own = running.metrics.render() if running is not None else b""
        return Response(200, own + self._tunnels.counting.render(self._objects) + self._tables.render(), CONTENT_TYPE)

    def why(self, request: Request, user: User, plural: str, name: str, namespace: str = "") -> Awaitable[Answer]:
        running = self._running()
        elsewhere = "" if running is not None else holder(self._objects)
        return why(running, user, plural, namespace, name, elsewhere=elsewhere)

    def stream(self, request: Request, user: User, namespace: str, name: str) -> Upgrade:
        running = self._running()
        if running is None:
            raise ApiError(503, "ServiceUnavailable", "nothing runs in this server: it has no controllers")
        return stream(running.runners, self._objects, user, namespace, name, request.headers)

    def logs(self, request: Request, user: User, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        if (instance := elsewhere(self._objects, namespace, name)) is not None:
            return self._tunnels.answer(self._objects, request, user, instance, "logs")
        return logs(self._runtime, self._objects, request, user, namespace, name)

    def task_logs(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        return task_logs(self._runtime, self._objects, request, namespace, name)

    def task_result(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        return task_result(self._runtime, self._objects, namespace, name)

    def function_logs(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        running = self._running()
        if running is None or running.serving is None:
            raise (NO_CONTROLLERS if running is None else NO_RUNTIME).refusal()
        return function_logs(running.serving, self._objects, request, namespace, name)

    def run_command(self, request: Request, user: User, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        if (instance := elsewhere(self._objects, namespace, name)) is not None:
            return self._tunnels.answer(self._objects, request, user, instance, "exec")
        return exec_(self._runtime, self._objects, self._audit, request, user, namespace, name)

    def files(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        what = request.path.rstrip("/").rpartition("/")[2]
        if (instance := elsewhere(self._objects, namespace, name)) is not None:
            return self._tunnels.answer(self._objects, request, user, instance, what)
        return self._files(self._runtime, self._objects, request, user, namespace, name, what)

    def blob(self, request: Request, user: User, digest: str) -> Awaitable[Answer]:
        if self._blobs is None:
            raise ApiError(501, "NotImplemented", NO_BLOBS)
        return self._blobs(self._objects, request, user, digest)

    def open_claim(self, request: Request, user: User, namespace: str, pool: str) -> Awaitable[Answer]:
        present(self._runtime)
        return self._claims.open(self._running(), request, user, namespace, pool)

    def list_claims(self, request: Request, user: User, namespace: str, pool: str) -> Awaitable[Answer]:
        return self._claims.list(namespace, pool)

    def get_claim(self, request: Request, user: User, namespace: str, name: str) -> Answer:
        return self._claims.get(user, namespace, name)

    def renew_claim(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        return self._claims.renew(user, namespace, name)

    def release_claim(self, request: Request, user: User, namespace: str, name: str) -> Awaitable[Answer]:
        return self._claims.release(self._running(), user, namespace, name)

    endpoints = (
        Endpoint("GET", "/v1/metrics", ADMIN, "get metrics", metrics),
        Endpoint("GET", "/v1/why/{plural}/{name}", EACH, "get why", why),
        Endpoint("GET", "/v1/why/{plural}/{namespace}/{name}", EACH, "get why", why),
        Endpoint("GET", "/v1/stream/{namespace}/{name}", RUNNER, "create instances.rota.dev/stream", stream),
        Endpoint(
            "GET",
            "/v1/exec/{namespace}/{name}",
            entering("create", "exec"),
            "create instances.rota.dev/exec",
            run_command,
        ),
        Endpoint(
            "GET",
            "/v1/instances/{namespace}/{name}/files",
            entering("get", "files"),
            "get instances.rota.dev/files",
            files,
        ),
        Endpoint(
            "PUT",
            "/v1/instances/{namespace}/{name}/files",
            entering("update", "files"),
            "update instances.rota.dev/files",
            files,
        ),
        Endpoint(
            "DELETE",
            "/v1/instances/{namespace}/{name}/files",
            entering("delete", "files"),
            "delete instances.rota.dev/files",
            files,
        ),
        Endpoint(
            "GET",
            "/v1/instances/{namespace}/{name}/archive",
            entering("get", "files"),
            "get instances.rota.dev/archive",
            files,
        ),
        Endpoint(
            "PUT",
            "/v1/instances/{namespace}/{name}/archive",
            entering("update", "files"),
            "update instances.rota.dev/archive",
            files,
        ),
        Endpoint(
            "DELETE",
            "/v1/instances/{namespace}/{name}/archive",
            entering("delete", "files"),
            "delete instances.rota.dev/archive",
            files,
        ),
        Endpoint("GET", "/v1/logs/{namespace}/{name}", INSTANCE_LOG, "get instances.rota.dev/logs", logs),
        Endpoint(
            "GET",
            "/v1/tasks/{namespace}/{name}/logs",
            may("get", Task.api, "log"),
            "get tasks.rota.dev/logs",
            task_logs,
        ),
        Endpoint(
            "GET",
            "/v1/tasks/{namespace}/{name}/result",
            may("get", Task.api, "result"),
            "get tasks.rota.dev/result",
            task_result,
        ),
        Endpoint(
            "GET",
            "/v1/functions/{namespace}/{name}/logs",
            may("get", Function.api, "log"),
            "get functions.rota.dev/logs",
            function_logs,
        ),
        Endpoint("GET", "/v1/blobs/{digest}", BLOB_READER, "get blobs", blob),
        Endpoint("HEAD", "/v1/blobs/{digest}", BLOB_READER, "get blobs", blob),
        Endpoint("PUT", "/v1/blobs/{digest}", BLOB_WRITER, "update blobs", blob),
        Endpoint(
            "POST",
            "/v1/pools/{namespace}/{pool}/claims",
            CLAIMING,
            "create claims.rota.dev",
            open_claim,
        ),
        Endpoint(
            "GET",
            "/v1/pools/{namespace}/{pool}/claims",
            may("list", Claim.api),
            "list claims.rota.dev",
            list_claims,
        ),
        Endpoint("GET", "/v1/claims/{namespace}/{name}", of_claim("get"), "get claims.rota.dev", get_claim),
        Endpoint(
            "POST",
            "/v1/claims/{namespace}/{name}/renew",
            of_claim("update"),
            "update claims.rota.dev/renew",
            renew_claim,
            takes_space=False,
        ),
        Endpoint(
            "DELETE",
            "/v1/claims/{namespace}/{name}",
            of_claim("delete"),
            "delete claims.rota.dev",
            release_claim,
        ),
    )
