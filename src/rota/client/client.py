"""The typed client: one interface on every backend.

A kind is named by its class (`WorkerPool`), and then objects are instances of it; or by its descriptor
(`WorkerPool.api`), and then they are plain JSON dicts. Arguments are never changed; results belong to the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from rota.api import KINDS, Kind
from rota.api import Object as TypedObject
from rota.api.core import MICRO_TIMES
from rota.api.decoding import decoded
from rota.api.served import OTHER_VERSIONS
from rota.client.backend import Backend, Object, Written
from rota.client.http import HttpBackend
from rota.client.target import DEFAULT_NAMESPACE, PathLike
from rota.registry import Answer, DeleteOptions, Listing, ListOptions, Operation, WatchEvent, WatchOptions, WriteOptions
from rota.registry.errors import bad_request
from rota.registry.options import FieldValidation, PatchType, Propagation

if TYPE_CHECKING:
    from rota.api import Task
    from rota.client.claims import ClaimContext
    from rota.client.jobs import Job, Jobs
    from rota.registry import Registry

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
O = TypeVar("O", bound="TypedObject | Object")  # noqa: E741

ALL_NAMESPACES = ""


class KindOf(Protocol[R_co]):
    """Names a kind and the form of its objects: a class (then instances of it), or a descriptor (then dicts)."""

    @property
    def api(self) -> Kind: ...

    def decode(self, value: bytes) -> R_co: ...


class ObjectList(msgspec.Struct, Generic[R], frozen=True):
    """A page of a list."""

    items: list[R]
    resource_version: str
    """The version of the snapshot: watch from here."""
    continue_: str = ""
    """The start of the next page; empty on the last one."""
    remaining: int | None = None
    """The number of objects after this page; None if it is unknown."""


class Change(msgspec.Struct, Generic[R], frozen=True):
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: R | None
    """The object; None in a bookmark."""
    resource_version: str


class Client:
    """All verbs on all kinds. `manager` is the name under which this client owns fields.

    Without a backend it is a client of the local server, and connects when it is first used.
    """

    def __init__(
        self, backend: Backend | None = None, *, manager: str = "rota-client", namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        self.backend: Backend = HttpBackend.connect() if backend is None else backend
        self.manager = manager
        self.namespace = namespace
        self._jobs: dict[str, Jobs] = {}

    @classmethod
    def local(cls, registry: Registry, *, manager: str = "rota-client", namespace: str = DEFAULT_NAMESPACE) -> Client:
        """Return a client of a registry in this process."""
        from rota.client.local import LocalBackend

        return cls(LocalBackend(registry), manager=manager, namespace=namespace)

    @classmethod
    def connect(
        cls,
        *,
        home: PathLike | None = None,
        kubeconfig: PathLike | None = None,
        context: str | None = None,
        manager: str = "rota-client",
        namespace: str | None = None,
    ) -> Client:
        """Return a client of the server in a home, or of a context of a kubeconfig; by default of the local server.

        The namespace is the context's unless one is given. The client connects when it is first used, and raises
        `NoServer` then if there is none.
        """
        backend = HttpBackend.connect(home=home, kubeconfig=kubeconfig, context=context)
        return cls(backend, manager=manager, namespace=namespace or backend.target.namespace)

    @property
    def atomic(self) -> bool:
        """True if `batch` works on this backend, or if that is not known yet."""
        return self.backend.atomic

    @property
    def in_process(self) -> bool:
        """True if the client writes to a registry of this process."""
        return self.backend.registry is not None

    async def close(self) -> None:
        for jobs in self._jobs.values():
            await jobs.close()
        await self.backend.close()

    # Reading.

    async def get(self, kind: KindOf[R], name: str, *, namespace: str | None = None) -> R:
        """Return one object."""
        answer = await self.backend.get(kind.api, self._namespace_for(kind.api, namespace), name)
        return kind.decode(answer.value)

    async def list(
        self,
        kind: KindOf[R],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
        resource_version: str = "",
        match: Literal["", "Exact", "NotOlderThan"] = "",
    ) -> ObjectList[R]:
        """Return a page of objects. `namespace=ALL_NAMESPACES` lists those of all namespaces."""
        options = ListOptions(labels, fields, limit, continue_, resource_version, match)
        return _listed(kind, await self.backend.list(kind.api, self._namespace_for(kind.api, namespace), options))

    async def watch(
        self,
        kind: KindOf[R],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        bookmarks: bool = False,
        send_initial_events: bool | None = None,
    ) -> AsyncIterator[Change[R]]:
        """Yield changes from a version on, or from the present state. Raises ApiError 410 if that version is no longer
        kept."""
        options = WatchOptions(labels, fields, resource_version, bookmarks, send_initial_events)
        batches = self.backend.watch(kind.api, self._namespace_for(kind.api, namespace), options)
        try:
            async for batch in batches:
                for event in batch:
                    yield _changed(kind, event)
        finally:
            await _close(batches)

    # Writing.

    async def create(
        self,
        obj: O,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> O:
        """Create an object."""
        kind, body = _body(obj)
        options = WriteOptions(self.manager, dry_run, field_validation)
        where = (kind, self._namespace_of(kind, body, namespace))
        return _decoded_like(obj, await self._write(Operation("create", *where, body=body, options=options)))

    async def update(
        self,
        obj: O,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> O:
        """Replace an object. Raises ApiError 409 if it has changed since it was read."""
        _check_whole(obj)
        kind, body = _body(obj)
        options = WriteOptions(self.manager, dry_run, field_validation)
        where = (kind, self._namespace_of(kind, body, None), _name(body))
        return _decoded_like(
            obj, await self._write(Operation("update", *where, body, options, subresource=subresource))
        )

    async def update_status(self, obj: O) -> O:
        """Replace the status of an object, and nothing else."""
        if not isinstance(obj, TypedObject):
            return await self.update(obj, subresource="status")
        _check_whole(obj)
        kind, meta = obj.api, obj.metadata
        where = (kind, meta.namespace if kind.namespaced else "", meta.name)
        options = WriteOptions(self.manager)
        written = Operation("update", *where, status_body(obj), options, subresource="status")
        return _decoded_like(obj, await self._write(written))

    async def patch(
        self,
        kind: KindOf[R],
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # noqa: A002
        subresource: str = "",
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> R:
        """Change an object by a merge patch, a JSON patch, or (core kinds) a strategic merge patch."""
        options = WriteOptions(self.manager, dry_run, field_validation)
        where = (kind.api, self._namespace_for(kind.api, namespace), name)
        written = Operation("patch", *where, patch, options, subresource=subresource, patch_type=type)
        return kind.decode((await self._write(written)).value)

    async def apply(
        self,
        obj: O,
        *,
        namespace: str | None = None,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
        manager: str = "",
    ) -> O:
        """Declare the fields that this client wants the object to have. It is created if it does not exist."""
        kind, body = _body(obj)
        options = WriteOptions(manager or self.manager, dry_run, field_validation, force)
        where = (kind, self._namespace_of(kind, body, namespace), _name(body))
        return _decoded_like(obj, await self._write(Operation("apply", *where, body, options, subresource=subresource)))

    async def delete(
        self,
        kind: KindOf[R],
        name: str,
        *,
        namespace: str | None = None,
        propagation: Propagation = "",
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> R | None:
        """Delete an object. Returns it while finalizers, or its end, keep it, else None.

        `grace_seconds` is for Pods of a cluster, which take time to end.
        """
        options = DeleteOptions(
            propagation, uid or None, resource_version or None, dry_run, grace_seconds=grace_seconds
        )
        answer = await self._write(
            Operation("delete", kind.api, self._namespace_for(kind.api, namespace), name, delete=options)
        )
        return None if answer.gone else kind.decode(answer.value)

    async def delete_collection(
        self,
        kind: KindOf[Any],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        propagation: Propagation = "",
    ) -> None:
        """Delete all selected objects."""
        options, select = DeleteOptions(propagation), ListOptions(labels, fields)
        where = (kind.api, self._namespace_for(kind.api, namespace))
        await self._write(Operation("delete_collection", *where, delete=options, select=select))

    # Scale.

    async def get_scale(self, kind: KindOf[Any], name: str, *, namespace: str | None = None) -> int:
        """Return the number of replicas that an object asks for."""
        answer = await self.backend.get(kind.api, self._namespace_for(kind.api, namespace), name, subresource="scale")
        replicas: int = msgspec.json.decode(answer.value)["spec"].get("replicas", 0)
        return replicas

    async def set_scale(self, kind: KindOf[Any], name: str, replicas: int, *, namespace: str | None = None) -> None:
        """Change the number of replicas that an object asks for."""
        patch = {"spec": {"replicas": replicas}}
        options = WriteOptions(self.manager)
        where = (kind.api, self._namespace_for(kind.api, namespace), name)
        await self._write(Operation("patch", *where, patch, options, subresource="scale"))

    # Several at once.

    async def batch(self, operations: Sequence[Operation], *, typed: bool = False) -> Sequence[Any]:
        """Write several operations in one atomic commit, all or none. Each object occurs at most once.

        Returns JSON, or with `typed` typed objects, which are shared and must not be changed.
        """
        answers = await self._all_or_none(self._named(operations))
        if not typed:
            return [msgspec.json.decode(answer.value) for answer in answers]
        return [decoded(o.kind, answer.value) for o, answer in zip(operations, answers, strict=True)]

    async def write_each(self, operations: Sequence[Operation]) -> Written:
        """Write each operation by itself, in order. An error of one leaves the others alone.

        Returns for each its answer, whose `value` is the object as JSON, or an `ApiError`. Takes as few commits and
        requests as possible.
        """
        return await self.backend.write(self._named(operations), atomic=False)

    async def submit(self, tasks: Sequence[Task | Object], *, namespace: str | None = None) -> Sequence[Job]:
        """Create tasks in as few requests and commits as possible. `await job` returns the result of a task.

        Each is created by itself: a job that was refused has the error in its `error`. A task without a name gets one.
        """
        from rota.client.jobs import Jobs

        where = self.namespace if namespace is None else namespace
        if where not in self._jobs:
            self._jobs[where] = Jobs(self, where)
        return await self._jobs[where].submit(tasks)

    async def _write(self, operation: Operation) -> Answer:
        (answer,) = await self._all_or_none((operation,))
        return answer

    async def _all_or_none(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        # Errors are raised, so the result has none.
        return cast("Sequence[Answer]", await self.backend.write(operations))

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]:
        """Validate operations that `batch` is to write at a later time, so that the write itself takes little time.

        The write is refused if what the validation relied on has changed. Only for a registry in this process.
        """
        from rota.client.local import prepared

        if self.backend.registry is None:
            raise bad_request("what is to be written later can be prepared in the process of the registry only")
        return prepared(self.backend.registry, self._named(operations), at)

    def _named(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        return [
            msgspec.structs.replace(o, options=msgspec.structs.replace(o.options, manager=self.manager))
            if o.options.manager == "unknown"
            else o
            for o in operations
        ]

    # Instances.

    def claim(
        self,
        pool: str,
        *,
        namespace: str | None = None,
        name: str = "",
        lease_seconds: float | None = None,
        wait_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        images: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> ClaimContext:
        """Return a context manager that holds an idle instance of a pool: `async with client.claim("boxes") as box:
        ...`.

        The same name returns the same claim. `lease_seconds` is how long the instance stays held if this process dies;
        `wait_seconds` how long to wait for a free one, by default as long as the pool says. Then NoneFree is raised.
        """
        from rota.client.claims.context import ClaimContext
        from rota.client.claims.gateway import ClaimRequest, Gateway, whole_seconds

        if not isinstance(self.backend, HttpBackend):
            raise bad_request("a server hands instances out, and this is a client of a registry in this process")
        wanted = ClaimRequest(
            name=name,
            priority=priority,
            wait_seconds=whole_seconds("wait_seconds", wait_seconds),
            lease_seconds=whole_seconds("lease_seconds", lease_seconds),
            images=dict(images or {}),
            env=[{"name": variable, "value": value} for variable, value in (env or {}).items()],
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        )
        # A connection of its own, so that it can be released even if this client is closed, or never is.
        own = HttpBackend(self.backend.target)
        return ClaimContext(Gateway(own, self.namespace if namespace is None else namespace), pool, wanted)

    # Where an object is.

    def _namespace_for(self, kind: Kind, namespace: str | None) -> str:
        if not kind.namespaced:
            return ""
        return self.namespace if namespace is None else namespace

    def _namespace_of(self, kind: Kind, body: Object, namespace: str | None) -> str:
        if not kind.namespaced:
            return ""
        meta = body.get("metadata")
        own = meta.get("namespace") if isinstance(meta, dict) else None
        return namespace or (own if isinstance(own, str) else None) or self.namespace


def to_dict(obj: TypedObject) -> Object:
    """Return a typed object as JSON, with its apiVersion and kind."""
    body: Object = msgspec.to_builtins(obj)
    for path in MICRO_TIMES.get(obj.api.name, ()):
        _write_micros(body, path)
    return {"apiVersion": obj.api.api_version, "kind": obj.api.name, **body}


def status_body(obj: TypedObject) -> Object:
    """Return the body of a write of an object's status."""
    kind, meta = obj.api, obj.metadata
    named = {"name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
    if kind.namespaced:
        named["namespace"] = meta.namespace
    status = msgspec.to_builtins(getattr(obj, "status", None))
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": named, "status": status}


def _write_micros(body: Object, path: tuple[str, ...]) -> None:
    """Write the fraction of a second, even if it is zero."""
    *steps, last = path
    for step in steps:
        body = body.get(step) or {}
    time = body.get(last)
    if time and "." not in time:
        body[last] = f"{time[:19]}.000000{time[19:]}"


def _body(obj: TypedObject | Object) -> tuple[Kind, Object]:
    if isinstance(obj, TypedObject):
        return obj.api, to_dict(obj)
    name = str(obj.get("kind"))
    kind = OTHER_VERSIONS.get((str(obj.get("apiVersion")), name)) or KINDS.get(name) or _used(name)
    if kind is None:
        raise bad_request(f"no kind {name!r}; known are {', '.join(sorted(KINDS))}")
    return kind, obj


def _used(name: str) -> Kind | None:
    from rota.api.cluster import USED

    return USED.get(name)


def _check_whole(obj: TypedObject | Object) -> None:
    """Raise ApiError for a type that knows only a part of its object: the rest would be lost."""
    if isinstance(obj, TypedObject) and not obj.api.served:
        raise bad_request(f"a {obj.api.name} has fields that its type does not know, and would lose them: patch it")


def _name(body: Object) -> str:
    meta = body.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not name or not isinstance(name, str):
        raise bad_request(f"{body.get('kind')}: metadata.name is required")
    return name


def _decoded_like(obj: O, answer: Answer) -> O:
    decoded: Any = type(obj).decode(answer.value) if isinstance(obj, TypedObject) else msgspec.json.decode(answer.value)
    form: O = decoded
    return form


def _listed(kind: KindOf[R], listing: Listing) -> ObjectList[R]:
    items = [kind.decode(value) for value in listing.items]
    return ObjectList(items, str(listing.revision), listing.continue_, listing.remaining)


def _changed(kind: KindOf[R], event: WatchEvent) -> Change[R]:
    obj = None if event.type == "BOOKMARK" else kind.decode(event.object)
    return Change(event.type, obj, str(event.revision))  # type: ignore[arg-type]


async def _close(iterator: AsyncIterator[Any]) -> None:
    """Close an async generator now, not when it is collected."""
    closing = getattr(iterator, "aclose", None)
    if closing is not None:
        await closing()
