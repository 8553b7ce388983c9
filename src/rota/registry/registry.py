"""The registry: all verbs on objects.

A write reads the newest accepted state, decides, and commits, without awaiting in between; so writers in this
process never race. An answer, also a refusal, is given only when the state that it rests on is durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from rota.api import Kind, Namespace, sizes
from rota.api.egress import Policy
from rota.registry import errors, privileges, reading, scaling, versions
from rota.registry.admission import Object
from rota.registry.collector import Collector
from rota.registry.decider import DEFAULT_DELETE, DEFAULT_WRITE, Decider, check_subresource, decided, scope
from rota.registry.decisions import Amended, Change, Decision, Unchanged
from rota.registry.options import (
    Answer,
    DeleteOptions,
    Listing,
    ListOptions,
    Operation,
    PatchType,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)
from rota.registry.pacing import Slices
from rota.store import Conflict, Store, StoreFull, StoreStopped

BATCH_OBJECTS_MAX = 1_000
"""Bound on the objects of one atomic batch."""
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Bound on the memory of the new objects of one batch: their JSON, and `VALUE_BYTES` for each value."""
VALUE_BYTES = 64
BATCH_ROUNDS_MAX = 5
"""Bound on the rounds of a batch. Each decides anew on objects that changed meanwhile; then it is refused."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

# `Registry.list` hides the builtin from annotations in its class.
Batches = AsyncIterator[list[WatchEvent]]
Decisions = list[Decision]
Answers = list[Answer]
Each = list[Answer | errors.ApiError]
Decidable = Operation | errors.ApiError
Parts = list[tuple[int, asyncio.Future[None]]]


class Registry:
    """All verbs on all kinds, on one store. `start` it before use, `stop` it after. The caller closes the store."""

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = time.time, policy: Policy = privileges.NO_POLICY
    ) -> None:
        """`policy`: the network that callers without the admin scope may request at most."""
        self.store = store
        self._policy = policy
        self._clock = clock
        self._second = 0
        self._second_text = ""
        self.decide = Decider(store, self.now, policy)
        """The decisions without the commit, for `batch`."""
        self._collector = Collector(self)

    async def start(self) -> None:
        """Create the default namespace, and resume unfinished deletions."""
        await self.ensure_namespace("default")
        self._collector.start()

    async def stop(self) -> None:
        await self._collector.stop()

    def owned(self, kind: Kind, owner: str) -> Sequence[str]:
        """Return the sorted keys of the objects of a kind that refer to an owner's uid. Needs a started registry."""
        prefix = f"{kind.bucket}/"
        return sorted(key for key in self._collector.dependents(owner) if key.startswith(prefix))

    def now(self) -> str:
        """Return the current time in the form of objects."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._second_text = _time_text(second)
        return self._second_text

    def decide_at(self, moment: float) -> Decider:
        """Return a decider for a future time."""
        text = _time_text(int(moment))
        return Decider(self.store, lambda: text, self._policy)

    # Reading.

    def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        """Return one object, in the version of the kind."""
        entry = self.store.get(kind.key(scope(kind, namespace), name))
        if entry is None:
            raise errors.not_found(kind.storage, name)
        return Answer(versions.shown(kind, entry.value), entry.rev)

    async def list(self, kind: Kind, namespace: str = "", options: ListOptions | None = None) -> Listing:
        """Return a page of the objects of one namespace, or of all if it is empty."""
        return await reading.listing(self.store, kind, scope(kind, namespace), options or ListOptions())

    def watch(self, kind: Kind, namespace: str = "", options: WatchOptions | None = None) -> Batches:
        """Yield changes as they become durable, in batches.

        Raises `ApiError` 410 if the version to begin at is compacted.
        """
        return reading.watching(self.store, kind, scope(kind, namespace), options or WatchOptions())

    # Writing.

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions = DEFAULT_WRITE) -> Answer:
        """Create an object. The registry takes over `obj`."""
        return await self._do(kind, lambda: self.decide.create(kind, namespace, obj, options), options.dry_run)

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Answer:
        """Replace an object, or its status. The registry takes over `obj`."""
        return await self._do(
            kind,
            lambda: self.decide.update(kind, namespace, name, obj, options, subresource=subresource),
            options.dry_run,
        )

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        type_: PatchType = "merge",
        subresource: str = "",
    ) -> Answer:
        """Change an object, its status or its scale by a patch."""
        return await self._do(
            kind,
            lambda: self.decide.patch(kind, namespace, name, patch, options, type_=type_, subresource=subresource),
            options.dry_run,
        )

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Answer:
        """Apply a configuration on the server side. The object is created if it does not exist."""
        return await self._do(
            kind,
            lambda: self.decide.apply(kind, namespace, name, config, options, subresource=subresource),
            options.dry_run,
        )

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DEFAULT_DELETE) -> Answer:
        """Delete an object, or mark it for deletion while it has finalizers."""
        return await self._do(kind, lambda: self.decide.delete(kind, namespace, name, options), options.dry_run)

    async def delete_collection(
        self,
        kind: Kind,
        namespace: str = "",
        options: DeleteOptions = DEFAULT_DELETE,
        select: ListOptions | None = None,
        *,
        deleted: Callable[[str, int], None] = lambda name, revision: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Listing:
        """Delete every object of a list, one by one. Those that are gone meanwhile are skipped.

        `deleted` is called with the name and revision of each. Stops between two when `is_over` returns True.
        """
        found = await self.list(kind, namespace, select)
        for value in found.items:
            if is_over():
                break
            meta = _decode(value)["metadata"]
            try:
                answer = await self.delete(kind, meta.get("namespace", ""), meta["name"], options)
            except errors.ApiError as error:
                if error.code != 404:
                    raise
            else:
                deleted(meta["name"], answer.revision)
        return found

    async def write(self, operations: Sequence[Operation], *, caller: str = "") -> Answers:
        """Write one operation, or several in one atomic commit, each object at most once. `caller`: see `Slices`."""
        if len(operations) == 1:
            (o,) = operations
            if o.verb == "delete_collection":
                found = await self.delete_collection(o.kind, o.namespace, o.delete, o.select)
                return [Answer(b"null", found.revision)]
            return [await self._do(o.kind, lambda: decided(self.decide, o), o.dry_run)]
        dry_runs = {o.dry_run for o in operations}
        if len(dry_runs) > 1:
            raise errors.bad_request("a batch is a dry run as a whole, or not at all")
        decide = [partial(decided, self.decide, o) for o in operations]
        answers = await self.batch(decide, dry_run=True in dry_runs, caller=caller)
        return [_in_version_of(o.kind, answer) for o, answer in zip(operations, answers, strict=True)]

    async def write_each(
        self, operations: Iterable[Decidable | tuple[Decidable, ...]], *, bytes_max: int = 0, caller: str = ""
    ) -> Each:
        """Write each operation by itself, in order. Each is decided on the accepted state of those before it.

        Operations of one slice of time are decided without others in between and go into one commit. An operation
        is taken from the iterable when it is decided; an error in its place is its answer. Beyond `bytes_max` of
        answers (0: unbounded), operations are refused with 413. Of a tuple of operations all are written or none; the
        error of one is the answer to each. `caller`: see `Slices`.
        """
        store = self.store
        answers: Each = []
        parts: Parts = []
        await store.room()
        size = 0
        async with Slices(caller) as slices:
            for operation in operations:
                group = operation if isinstance(operation, tuple) else (operation,)
                for answer in (
                    self._written(group) if not bytes_max or size < bytes_max else [_too_much(bytes_max)] * len(group)
                ):
                    size += len(answer.value) if isinstance(answer, Answer) else 0
                    answers.append(answer)
                if slices.is_over or store.is_full:
                    parts.append((len(answers), store.when_durable(store.accepted)))
                    await slices()
                    if store.is_full:
                        slices.rest()
                        await store.room()
        parts.append((len(answers), store.when_durable(store.accepted)))
        begin = 0
        for end, durable in parts:
            try:
                await durable
            except (StoreFull, StoreStopped) as failed:
                answers[begin:end] = [_not_durable(failed)] * (end - begin)
            begin = end
        return answers

    def _written(self, group: Sequence[Decidable]) -> Each:
        """Decide operations that are written together, and hand them to the store, without waiting for the commit."""
        refused = next((one for one in group if isinstance(one, errors.ApiError)), None)
        if refused is not None:
            return [refused] * len(group)
        together = cast("Sequence[Operation]", group)
        try:
            decisions = [(o, decided(self.decide, o)) for o in together]
            changes = [d for o, d in decisions if not isinstance(d, Unchanged) and not o.dry_run]
            entries = iter(self.store.accept_together([one.write() for one in changes]) if changes else ())
            return [
                _in_version_of(
                    o.kind,
                    _answer_unwritten(d) if isinstance(d, Unchanged) or o.dry_run else self._answer(d, next(entries)),
                )
                for o, d in decisions
            ]
        except errors.ApiError as error:
            refused = error
        except Conflict as lost:
            changed = next((o for o in together if o.kind.key(o.namespace, o.name) == lost.key), together[0])
            refused = errors.conflict(changed.kind, changed.name)
        except (StoreFull, StoreStopped) as failed:
            refused = _not_durable(failed)
        return [refused] * len(together)

    async def batch(
        self, decide: Sequence[Callable[[], Decision]], *, dry_run: bool = False, caller: str = ""
    ) -> Answers:
        """Write several objects in one atomic commit, each at most once.

        Each of `decide` may be called several times: other writes may come in between while a long batch is decided.
        `caller`: see `Slices`.
        """
        if len(decide) > BATCH_OBJECTS_MAX:
            raise errors.bad_request(f"a batch has at most {BATCH_OBJECTS_MAX} objects, not {len(decide)}")
        return await self._do_all(lambda: self._decided(decide, caller), dry_run)

    async def _decided(self, decide: Sequence[Callable[[], Decision]], caller: str) -> Decisions:
        """Return all decisions, each valid for the newest accepted state when this returns."""
        async with Slices(caller) as slices:
            return await self._decided_by_slices(decide, slices)

    async def _decided_by_slices(self, decide: Sequence[Callable[[], Decision]], slices: Slices) -> Decisions:
        found: dict[int, Decision] = {}
        taken = 0
        left: Sequence[int] = range(len(decide))
        for _ in range(BATCH_ROUNDS_MAX):
            accepted = self.store.accepted
            for at in left:
                if slices.is_over:
                    await slices()
                taken -= _memory_bytes(found.pop(at, None))
                found[at] = decide[at]()
                taken += _memory_bytes(found[at])
                if taken > BATCH_BYTES_MAX:
                    message = f"the objects of a batch have at most {BATCH_BYTES_MAX} bytes, and those of this one more"
                    raise errors.ApiError(413, "RequestEntityTooLarge", f"{message}: write them in parts")
            if self.store.accepted != accepted:
                left = [at for at, decision in found.items() if self.decide.is_stale(decision)]
            else:
                left = ()
            if not left:
                return [found[at] for at in range(len(decide))]
        raise errors.too_busy("what the batch changes was changed by others each time that it was decided; try again")

    # Scale.

    def get_scale(self, kind: Kind, namespace: str, name: str) -> Answer:
        """Return the scale subresource of an object."""
        check_subresource(kind, "scale")
        answer = self.get(kind, namespace, name)
        return Answer(_encode(scaling.of(kind, _decode(answer.value))), answer.revision)

    # Committing.

    async def _do(self, kind: Kind, decide: Callable[[], Decision], dry_run: bool) -> Answer:
        return _in_version_of(kind, (await self._do_all(lambda: [decide()], dry_run))[0])

    async def _do_all(self, decide: Callable[[], Decisions | Awaitable[Decisions]], dry_run: bool) -> Answers:
        await self.store.room()
        try:
            decided = decide()
            decisions = decided if isinstance(decided, list) else await decided
            changes = [d for d in decisions if not isinstance(d, Unchanged)]
            if len(changes) > 1 and len({c.key for c in changes}) < len(changes):
                raise errors.bad_request("a batch may change each object only once")
            accepted = self.store.accepted
            if dry_run:
                await self.store.durable(accepted)
                return [_answer_unwritten(d) for d in decisions]
            entries = iter(await self.store.commit([c.write() for c in changes]) if changes else ())
            if len(changes) < len(decisions):
                await self.store.durable(accepted)
        except errors.ApiError:
            # The refusal rests on accepted state: it must not be answered before that state is durable.
            await self._wait_until_durable()
            raise
        except (StoreFull, StoreStopped) as failed:
            raise _not_durable(failed) from None
        except Conflict as lost:
            change = next(c for c in changes if c.key == lost.key)
            name = change.name if isinstance(change, Amended) else change.new["metadata"]["name"]
            raise errors.conflict(change.kind, name) from None
        return [_answer_unwritten(d) if isinstance(d, Unchanged) else self._answer(d, next(entries)) for d in decisions]

    async def _wait_until_durable(self) -> None:
        try:
            await self.store.durable(self.store.accepted)
        except (StoreFull, StoreStopped) as failed:
            raise _not_durable(failed) from None

    @staticmethod
    def _answer(change: Change | Amended, entry: Any) -> Answer:
        if isinstance(change, Amended):
            return Answer(entry.value, entry.rev)
        value = _encode(change.new) if change.gone else entry.value
        return Answer(value, entry.rev, change.warnings, created=change.old is None, gone=change.gone)

    async def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        if self.store.head(Namespace.api.key("", name)) is None:
            obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.create(Namespace.api, "", obj, WriteOptions(manager="rota"))


def _memory_bytes(decision: Decision | None) -> int:
    """Estimate the memory of a decision, most of which is for the values of the object."""
    if not isinstance(decision, Change):
        return 0
    return len(_encode(decision.new)) + VALUE_BYTES * sizes.counted(decision.new, sizes.VALUES_MAX)


def _time_text(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def _in_version_of(kind: Kind, answer: Answer) -> Answer:
    """Return the answer with its object in the version of the kind."""
    if kind.stored is None:
        return answer
    return msgspec.structs.replace(answer, value=versions.shown(kind, answer.value))


def _not_durable(failed: StoreFull | StoreStopped) -> errors.ApiError:
    return errors.disk_full(str(failed)) if isinstance(failed, StoreFull) else errors.unavailable(str(failed))


def _too_much(bytes_max: int) -> errors.ApiError:
    message = f"the answers before this one have {bytes_max} bytes already, and it was not looked at: send it again"
    return errors.ApiError(413, "RequestEntityTooLarge", message)


def _answer_unwritten(decision: Decision) -> Answer:
    """Return the answer of a decision that is not written: the object as it is or would be, at its current version."""
    if isinstance(decision, Unchanged):
        return Answer(decision.value, decision.revision, decision.warnings)
    if isinstance(decision, Amended):
        return Answer(decision.encoded(decision.expect), decision.expect)
    new = decision.new
    if decision.old is not None:
        new["metadata"]["resourceVersion"] = decision.old["metadata"]["resourceVersion"]
    return Answer(_encode(new), decision.expect, decision.warnings, created=decision.old is None, gone=decision.gone)
