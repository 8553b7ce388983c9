"""The backend over HTTP: a Rota server on its Unix socket or over TLS, or any Kubernetes API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from rota.api import Kind
from rota.api.problems import NOT_JSON
from rota.api.sizes import VALUES_MAX, separators
from rota.client import answers, paths
from rota.client.backend import Object, Written
from rota.client.connection import Limits, Response
from rota.client.creates import Creates
from rota.client.failures import BadAnswer, ConnectionCut
from rota.client.pool import Stream
from rota.client.requests import Requests, Sleep
from rota.client.target import PathLike, Target, find
from rota.client.websocket import WebSocket
from rota.registry import Answer, ApiError, Listing, ListOptions, Operation, WatchEvent, WatchOptions
from rota.registry.errors import bad_request, not_atomic

WATCH_SECONDS_MIN = 300
WATCH_SECONDS_MAX = 600
"""Bounds on the seconds after which the server ends a watch. Each gets a random time, so that not all end at once."""
WATCH_GRACE_SECONDS = 30.0
"""Time after which the client ends a watch that the server did not end."""

METHODS: Final[dict[str, str]] = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": "PATCH",
    "delete": "DELETE",
    "delete_collection": "DELETE",
}
HEADERS: Final[dict[str, dict[str, str]]] = {
    "merge": {"Content-Type": "application/merge-patch+json"},
    "json": {"Content-Type": "application/json-patch+json"},
    "strategic": {"Content-Type": "application/strategic-merge-patch+json"},
    "apply": {"Content-Type": "application/apply-patch+yaml"},
}
"""Headers by the type of a patch, and for an apply."""
BATCH = "/v1/batch"
BATCH_OPERATIONS_MAX = 1_000
BATCH_BYTES_MAX = 2 * 1024 * 1024
BATCH_VALUES_MAX = VALUES_MAX - 10
"""Bound on the JSON values of a request that is not atomic, below the server's. A single operation may exceed it."""

Events = list[WatchEvent]

_encode = msgspec.json.Encoder().encode


class HttpBackend:
    """An API server as a backend. It connects when it is first used. `rota.client.requests` defines what is retried."""

    registry = None
    atomic: bool = True
    """True unless `version` has found that the server is not a Rota. Before that, `write` of several operations may
    still be refused."""

    def __init__(self, target: Target, *, limits: Limits | None = None, sleep: Sleep = asyncio.sleep) -> None:
        self.target = target
        self._limits = limits or Limits()
        self._requests = Requests(target, self._limits, sleep=sleep)
        self._creates = Creates(self._write, self._write_together)
        self._version: Object | None = None

    @classmethod
    def connect(
        cls, *, home: PathLike | None = None, kubeconfig: PathLike | None = None, context: str | None = None
    ) -> HttpBackend:
        """Return a backend for the server that `rota.client.target.find` finds."""
        return cls(find(home, kubeconfig, context))

    # Reading.

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        return answers.answer(await self._requests.request("GET", paths.item(kind, namespace, name, subresource)))

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        path = paths.with_query(paths.collection(kind, namespace), paths.list_query(options))
        return answers.listing(kind, await self._requests.request("GET", path))

    async def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> AsyncIterator[Events]:
        seconds = random.randint(WATCH_SECONDS_MIN, WATCH_SECONDS_MAX)
        path = paths.with_query(paths.collection(kind, namespace), paths.watch_query(options, seconds))
        async with self._requests.stream("GET", path, patience_seconds=seconds + WATCH_GRACE_SECONDS) as stream:
            lines = Lines(self._limits.line_bytes, self.target.endpoint.url)
            while piece := await stream.piece():
                batch: Events = []
                try:
                    for line in lines.split(piece):
                        batch.append(answers.event(line))
                except ApiError:
                    if batch:
                        yield batch
                    raise
                if batch:
                    yield batch
            lines.end()

    # Writing.

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if not atomic:
            return await self._write_each(operations)
        if len(operations) == 1:
            (operation,) = operations
            together = operation.verb == "create" and self.atomic
            return [await (self._creates.write(operation) if together else self._write(operation))]
        await self.version()
        if not self.atomic:
            raise not_atomic()
        body = _encode({"operations": [_operation(o) for o in operations]})
        return answers.batched(operations, await self._requests.request("POST", BATCH, body))

    async def _write_each(self, operations: Sequence[Operation]) -> Written:
        await self.version()
        if not self.atomic:
            return [await _caught(self._write(o)) for o in operations]
        answered: list[Answer | ApiError] = []
        for some in [*_parts(operations)]:
            body = b'{"atomic":false,"operations":[%b]}' % b",".join(sent for _, sent in some)
            written = [o for o, _ in some]
            try:
                answered += answers.each(written, await self._requests.request("POST", BATCH, body))
            except ApiError as refused:
                answered += [refused] * len(written)
        return answered

    async def _write_together(self, operations: Sequence[Operation]) -> Written:
        """Write operations that are independent of each other."""
        await self.version()
        if self.atomic:
            return await self._write_each(operations)
        return await asyncio.gather(*(_caught(self._write(o)) for o in operations))

    async def _write(self, o: Operation) -> Answer:
        """Send one operation in a request of its own."""
        if (method := METHODS.get(o.verb)) is None:
            raise bad_request(f"{o.verb} can be written in the process of the registry only")
        if o.verb == "create":
            path = paths.creation(o.kind, o.namespace)
        elif o.verb == "delete_collection":
            path = paths.collection(o.kind, o.namespace)
        else:
            path = paths.item(o.kind, o.namespace, o.name, o.subresource)
        if method == "DELETE":
            query, body = paths.list_query(o.select), paths.delete_body(o.delete)
        else:
            query, body = paths.write_query(o.options, applies=o.verb == "apply"), o.body
        sent = _encode(body) if method != "DELETE" or body else b""
        headers = HEADERS.get(o.patch_type if o.verb == "patch" else o.verb)
        response = await self._requests.request(method, paths.with_query(path, query), sent, headers=headers)
        return answers.written(o.verb, response)

    # Beyond objects.

    async def version(self) -> Object:
        """Return the server's version information. It is requested once."""
        if self._version is None:
            response = await self._requests.request("GET", "/version")
            try:
                self._version = msgspec.json.decode(response.body, type=Object)
            except NOT_JSON:
                raise ApiError(502, "BadGateway", f"{self.target.endpoint.url} is no API server") from None
            self.atomic = "rotaVersion" in self._version
        return self._version

    async def raw(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send any request, for example for a Table by another `Accept`. Errors are `ApiError`."""
        return await self._requests.request(method, path, body or b"", headers=headers)

    async def once(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        patience_seconds: float = 0,
    ) -> Response:
        """Send any request once, without a retry even if the server asks for one.

        The answer may take `patience_seconds`.
        """
        return await self._requests.once(method, path, body or b"", headers=headers, patience_seconds=patience_seconds)

    def stream(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        patience_seconds: float = 0,
    ) -> AbstractAsyncContextManager[Stream]:
        """Send any request, and read its answer piece by piece, for example a backup: `async for piece in stream`.

        Between two pieces the server may be silent for `patience_seconds`.
        """
        return self._requests.stream(method, path, body or b"", headers=headers, patience_seconds=patience_seconds)

    async def upload(self, path: str, body: AsyncIterator[bytes], type_: str) -> Response:
        """Send a PUT once, with a body that is made while it is sent."""
        return await self._requests.upload(path, body, type_)

    def websocket(
        self, path: str, *, headers: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[WebSocket]:
        """Open a WebSocket with one of these subprotocols. It is closed at the end of the block."""
        return self._requests.websocket(path, headers=headers, protocols=protocols)

    async def close(self) -> None:
        await self._creates.close()
        await self._requests.close()


class Lines:
    """Splits a stream into lines. Keeps at most one incomplete line."""

    def __init__(self, line_bytes_max: int, place: str) -> None:
        self._line_bytes_max = line_bytes_max
        self._place = place
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def split(self, piece: bytes) -> Iterator[bytes]:
        *complete, rest = piece.split(b"\n")
        for line in complete:
            if self._rest:
                line = b"".join((*self._rest, line))
                self._rest, self._rest_bytes = [], 0
            if line:
                yield line
        if rest:
            self._rest.append(rest)
            self._rest_bytes += len(rest)
            if self._rest_bytes > self._line_bytes_max:
                raise BadAnswer(f"an event from {self._place} is larger than {self._line_bytes_max} bytes")

    def end(self) -> None:
        """Raise ConnectionCut if the stream ended within a line."""
        if self._rest:
            raise ConnectionCut(f"the watch of {self._place} ended within an event")


async def _caught(writing: Awaitable[Answer]) -> Answer | ApiError:
    try:
        return await writing
    except ApiError as refused:
        return refused


def _parts(operations: Sequence[Operation]) -> Iterator[list[tuple[Operation, bytes]]]:
    """Yield the encoded operations of each request."""
    part: list[tuple[Operation, bytes]] = []
    size = values = 0
    for o in operations:
        sent = _encode(_operation(o))
        size += len(sent)
        values += separators(sent) + 1
        if part and (len(part) >= BATCH_OPERATIONS_MAX or size > BATCH_BYTES_MAX or values > BATCH_VALUES_MAX):
            yield part
            part, size, values = [], len(sent), separators(sent) + 1
        part.append((o, sent))
    if part:
        yield part


def _operation(o: Operation) -> Object:
    if o.verb == "delete_collection" or o.verb not in METHODS:
        raise bad_request(f"a batch has no {o.verb}")
    out: Object = {
        "verb": o.verb,
        "apiVersion": o.kind.api_version,
        "kind": o.kind.name,
        "namespace": o.namespace,
        "name": o.name,
        "body": o.body,
        "subresource": o.subresource,
    }
    if o.verb == "delete":
        out["dryRun"] = o.delete.dry_run
        return out | {name: value for name, value in paths.delete_body(o.delete).items() if name not in out}
    out |= {"manager": o.options.manager, "fieldValidation": o.options.field_validation, "dryRun": o.options.dry_run}
    out |= {"patchType": o.patch_type} if o.verb == "patch" else {}
    return out | ({"force": o.options.force} if o.verb == "apply" else {})
