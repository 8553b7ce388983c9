"""The verbs.

Every write is read, decide, commit without a pause in between, on the newest accepted state; so writers in this
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
from rota.registry.deciding import (
    DEFAULT_DELETE,
    DEFAULT_WRITE,
    Amended,
    Change,
    Decider,
    Decision,
    Unchanged,
    check_subresource,
    scope,
)
from rota.registry.operations import decided
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
"""Objects of one atomic batch at most."""
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Of all objects of one batch as they will be: of their text, and `VALUE_BYTES` for each value."""
VALUE_BYTES = 64
BATCH_ROUNDS_MAX = 5
"""How often a batch decides anew on what changed meanwhile, before it is refused as a conflict."""

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
    """All verbs on all kinds, over one store. `start` it before use, `stop` it after; the store is the caller's."""

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = time.time, policy: Policy = privileges.NO_POLICY
    ) -> None:
        """`policy`: the most network that others than admins may ask for."""
        self.store = store
        self._policy = policy
        self._clock = clock
        self._second = 0
        self._second_text = ""
        self.decide = Decider(store, self.now, policy)
        """The decisions alone, for `batch`."""
        self._collector = Collector(self)

    async def start(self) -> None:
        """Make what must always be there, and take up unfinished deletions."""
        await self.ensure_namespace("default")
        self._collector.start()

    async def stop(self) -> None:
        await self._collector.stop()

    def owned(self, kind: Kind, owner: str) -> Sequence[str]:
        """Keys of the objects of a kind that name this uid as their owner, in order. Needs a started registry."""
        prefix = f"{kind.bucket}/"
        return sorted(key for key in self._collector.dependents(owner) if key.startswith(prefix))

    def now(self) -> str:
        """The time, as objects record it."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._second_text = _time_text(second)
        return self._second_text

    def decide_at(self, moment: float) -> Decider:
        """Decisions for a moment to come."""
        text = _time_text(int(moment))
        return Decider(self.store, lambda: text, self._policy)

    # Reading.

    def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        """One object, in the version of the kind."""
        entry = self.store.get(kind.key(scope(kind, namespace), name))
        if entry is None:
            raise errors.not_found(kind.storage, name)
        return Answer(versions.shown(kind, entry.value), entry.rev)

    async def list(self, kind: Kind, namespace: str = "", options: ListOptions | None = None) -> Listing:
        """A page of objects of one namespace, or of all (an empty one)."""
        return await reading.listing(self.store, kind, scope(kind, namespace), options or ListOptions())

    def watch(self, kind: Kind, namespace: str = "", options: WatchOptions | None = None) -> Batches:
        """Changes as they become durable, in batches.

        Raises `ApiError` 410 when the place to begin is no longer kept.
        """
        return reading.watching(self.store, kind, scope(kind, namespace), options or WatchOptions())

    # Writing.

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions = DEFAULT_WRITE) -> Answer:
        """Make an object. `obj` is the callee's from here on."""
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
        """Replace an object, or its status. `obj` is the callee's from here on."""
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
        """Declare the fields that the manager wants an object to have; it is made if it is not there."""
        return await self._do(
            kind,
            lambda: self.decide.apply(kind, namespace, name, config, options, subresource=subresource),
            options.dry_run,
        )

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DEFAULT_DELETE) -> Answer:
        """Delete an object, or mark it for deletion while finalizers hold it."""
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
        """Delete every object of a list; each on its own, those that are gone meanwhile are passed over.

        `deleted` gets the name and the revision of each as soon as it is. It ends between two when it `is_over`.
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

    async def write(self, operations: Sequence[Operation], *, party: str = "") -> Answers:
        """One operation; or several in one atomic commit, all or none, each object at most once. `party`: who asks."""
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
        answers = await self.batch(decide, dry_run=True in dry_runs, party=party)
        return [_shown(o.kind, answer) for o, answer in zip(operations, answers, strict=True)]

    async def write_each(
        self, operations: Iterable[Decidable | tuple[Decidable, ...]], *, bytes_max: int = 0, party: str = ""
    ) -> Each:
        """Write each operation by itself, in order: what comes of one is for those after it as if it were durable.

        Nothing comes in between for a slice of time, and all of that goes into one commit of the store. An operation
        is taken from the iterable when it is decided; an error in its place is its answer. Beyond `bytes_max` of
        answers (0: any number), operations are refused with 413. Of a tuple of operations all are written or none; the
        error of one is the answer to each. `party`: who asks, and takes turns with others.
        """
        store = self.store
        answers: Each = []
        parts: Parts = []
        await store.room()
        size = 0
        async with Slices(party) as slices:
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
        """Decide operations that are written together, and have the store accept them."""
        refused = next((one for one in group if isinstance(one, errors.ApiError)), None)
        if refused is not None:
            return [refused] * len(group)
        together = cast("Sequence[Operation]", group)
        try:
            decisions = [(o, decided(self.decide, o)) for o in together]
            changes = [d for o, d in decisions if not isinstance(d, Unchanged) and not o.dry_run]
            entries = iter(self.store.accept_together([one.write() for one in changes]) if changes else ())
            return [
                _shown(
                    o.kind,
                    _foretold(d) if isinstance(d, Unchanged) or o.dry_run else self._answer(d, next(entries)),
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
        self, decide: Sequence[Callable[[], Decision]], *, dry_run: bool = False, party: str = ""
    ) -> Answers:
        """Several writes in one atomic commit. Each object at most once.

        Each of `decide` may be called several times: deciding a long batch lets other writes come in between. `party`:
        who asks, and takes turns with others.
        """
        if len(decide) > BATCH_OBJECTS_MAX:
            raise errors.bad_request(f"a batch has at most {BATCH_OBJECTS_MAX} objects, not {len(decide)}")
        return await self._do_all(lambda: self._decided(decide, party), dry_run)

    async def _decided(self, decide: Sequence[Callable[[], Decision]], party: str) -> Decisions:
        """All decisions, on the newest accepted state. Nothing comes in between the last look at it and the return."""
        async with Slices(party) as slices:
            return await self._decided_by_slices(decide, slices)

    async def _decided_by_slices(self, decide: Sequence[Callable[[], Decision]], slices: Slices) -> Decisions:
        found: dict[int, Decision] = {}
        taken = 0
        left: Sequence[int] = range(len(decide))
        for _ in range(BATCH_ROUNDS_MAX):
            seen = self.store.accepted
            for at in left:
                if slices.is_over:
                    await slices()
                taken -= _taken(found.pop(at, None))
                found[at] = decide[at]()
                taken += _taken(found[at])
                if taken > BATCH_BYTES_MAX:
                    message = f"the objects of a batch have at most {BATCH_BYTES_MAX} bytes, and those of this one more"
                    raise errors.ApiError(413, "RequestEntityTooLarge", f"{message}: write them in parts")
            if self.store.accepted != seen:
                left = [at for at, decision in found.items() if self.decide.is_stale(decision)]
            else:
                left = ()
            if not left:
                return [found[at] for at in range(len(decide))]
        raise errors.too_busy("what the batch changes was changed by others each time that it was decided; try again")

    # Scale.

    def get_scale(self, kind: Kind, namespace: str, name: str) -> Answer:
        """The scale subresource of an object."""
        check_subresource(kind, "scale")
        answer = self.get(kind, namespace, name)
        return Answer(_encode(scaling.of(kind, _decode(answer.value))), answer.revision)

    # Committing.

    async def _do(self, kind: Kind, decide: Callable[[], Decision], dry_run: bool) -> Answer:
        return _shown(kind, (await self._do_all(lambda: [decide()], dry_run))[0])

    async def _do_all(self, decide: Callable[[], Decisions | Awaitable[Decisions]], dry_run: bool) -> Answers:
        await self.store.room()
        try:
            decided = decide()
            decisions = decided if isinstance(decided, list) else await decided
            changes = [d for d in decisions if not isinstance(d, Unchanged)]
            if len(changes) > 1 and len({c.key for c in changes}) < len(changes):
                raise errors.bad_request("a batch may change each object only once")
            seen = self.store.accepted
            if dry_run:
                await self.store.durable(seen)
                return [_foretold(d) for d in decisions]
            entries = iter(await self.store.commit([c.write() for c in changes]) if changes else ())
            if len(changes) < len(decisions):
                await self.store.durable(seen)
        except errors.ApiError:
            # The refusal rests on accepted state: it must not be heard before that state is safe.
            await self._settled()
            raise
        except (StoreFull, StoreStopped) as failed:
            raise _not_durable(failed) from None
        except Conflict as lost:
            change = next(c for c in changes if c.key == lost.key)
            name = change.name if isinstance(change, Amended) else change.new["metadata"]["name"]
            raise errors.conflict(change.kind, name) from None
        return [_foretold(d) if isinstance(d, Unchanged) else self._answer(d, next(entries)) for d in decisions]

    async def _settled(self) -> None:
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
        """Make a namespace unless it is there."""
        if self.store.head(Namespace.api.key("", name)) is None:
            obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.create(Namespace.api, "", obj, WriteOptions(manager="rota"))


def _taken(decision: Decision | None) -> int:
    """Memory that a decision keeps, in about: most of it is for the values of an object."""
    if not isinstance(decision, Change):
        return 0
    return len(_encode(decision.new)) + VALUE_BYTES * sizes.counted(decision.new, sizes.VALUES_MAX)


def _time_text(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def _shown(kind: Kind, answer: Answer) -> Answer:
    """The answer with its object in the version of the kind."""
    if kind.stored is None:
        return answer
    return msgspec.structs.replace(answer, value=versions.shown(kind, answer.value))


def _not_durable(failed: StoreFull | StoreStopped) -> errors.ApiError:
    return errors.disk_full(str(failed)) if isinstance(failed, StoreFull) else errors.unavailable(str(failed))


def _too_much(bytes_max: int) -> errors.ApiError:
    message = f"the answers before this one have {bytes_max} bytes already, and it was not looked at: send it again"
    return errors.ApiError(413, "RequestEntityTooLarge", message)


def _foretold(decision: Decision) -> Answer:
    """The answer where nothing is written: the object as it is, or as it would be, at the version it has now."""
    if isinstance(decision, Unchanged):
        return Answer(decision.value, decision.revision, decision.warnings)
    if isinstance(decision, Amended):
        return Answer(decision.encoded(decision.expect), decision.expect)
    new = decision.new
    if decision.old is not None:
        new["metadata"]["resourceVersion"] = decision.old["metadata"]["resourceVersion"]
    return Answer(_encode(new), decision.expect, decision.warnings, created=decision.old is None, gone=decision.gone)
