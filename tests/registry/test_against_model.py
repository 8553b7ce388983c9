"""Random verbs, concurrent writers, watchers, compactions and restarts, against a model simple enough to be right.

The model is a dict of what each object should be. Every answer is compared with it at once; after every step the list,
and two watchers who only ever resume, must agree with it too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rota import ApiError, Client
from rota.api import WorkerPool
from rota.client import Operation
from rota.registry import Registry
from rota.store import MemoryStore, SqliteStore, Store
from tests.amount import amount

KIND = WorkerPool.api
T = TypeVar("T")

names = st.sampled_from(["a", "b", "c", "d"])
counts = st.integers(0, 5)
managers = st.sampled_from(["alice", "bob"])
labels = st.sampled_from(["x", "y", "z"])
finalizers = st.sampled_from(["example.com/one", "example.com/two"])


@dataclass
class Expected:
    """One object, as far as this test cares. `owners` holds, per field, who applied it and who wrote it."""

    replicas: int
    version: int
    uid: str
    generation: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    finalizers: list[str] = field(default_factory=list)
    deleting: bool = False
    owners: dict[str, set[str]] = field(default_factory=dict)
    applied: dict[str, set[str]] = field(default_factory=dict)

    def written(self, name: str, by: str) -> None:
        """`by` changed a field with an update or a patch: it is the only owner then."""
        self.owners[name] = {by}
        for fields in self.applied.values():
            fields.discard(name)


class Watcher:
    """Follows the objects by resuming, again and again, where it was."""

    def __init__(self) -> None:
        self.version = "0"
        self.seen: dict[str, dict[str, Any]] = {}
        self.relists = 0

    async def catch_up(self, client: Client, version: int) -> None:
        while int(self.version) < version:
            try:
                await asyncio.wait_for(self._follow(client, version), 10)
            except ApiError as error:
                if error.code != 410:
                    raise
                self.relists += 1
                listed = await client.list(KIND)
                self.seen = {obj["metadata"]["name"]: obj for obj in listed.items}
                self.version = listed.resource_version

    async def _follow(self, client: Client, version: int) -> None:
        changes = client.watch(KIND, resource_version=self.version)
        try:
            async for change in changes:
                obj = change.object
                assert obj is not None
                name = obj["metadata"]["name"]
                assert int(change.resource_version) > int(self.version), "an event came again, or out of order"
                assert obj["metadata"]["resourceVersion"] == change.resource_version
                assert (change.type == "ADDED") == (name not in self.seen), f"{change.type} of {name}"
                if change.type == "DELETED":
                    del self.seen[name]
                else:
                    self.seen[name] = obj
                self.version = change.resource_version
                if int(self.version) >= version:
                    return
        finally:
            await changes.aclose()  # type: ignore[attr-defined]


class Machine(RuleBasedStateMachine):
    """The verbs as rules. Subclasses say what the store is."""

    path: ClassVar[Path | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory() if type(self).durable else None
        self.objects: dict[str, Expected] = {}
        self.version = 0
        self.watchers = [Watcher(), Watcher()]

    durable: ClassVar[bool] = False

    def run(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(awaitable)

    def new_store(self) -> Store:
        if self.folder is None:
            return MemoryStore()
        return SqliteStore(Path(self.folder.name) / "rota.db")

    async def open(self, store: Store) -> None:
        self.store = store
        self.registry = Registry(store)
        await self.registry.start()
        self.client = Client.local(self.registry, manager="updater")

    @initialize()
    def begin(self) -> None:
        async def go() -> None:
            await self.open(self.new_store())
            self.version = self.store.revision
            for watcher in self.watchers:
                watcher.version = str(self.version)

        self.run(go())

    def teardown(self) -> None:
        async def go() -> None:
            await self.registry.stop()
            await self.store.close()

        if hasattr(self, "registry"):
            self.run(go())
        self.runner.close()
        if self.folder is not None:
            self.folder.cleanup()

    # What the model knows.

    def heard(self, obj: dict[str, Any]) -> int:
        version = int(obj["metadata"]["resourceVersion"])
        assert version > self.version, "versions never go back"
        self.version = version
        return version

    def refused(self, awaitable: Coroutine[Any, Any, Any], code: int) -> None:
        with pytest.raises(ApiError) as refusal:
            self.run(awaitable)
        assert refusal.value.code == code, refusal.value

    def changed(self, name: str, obj: dict[str, Any]) -> None:
        """An accepted change of an object: it may have been the last one that held it."""
        expected = self.objects[name]
        expected.version = self.heard(obj)
        if expected.deleting and not expected.finalizers:
            del self.objects[name]

    # The verbs.

    @rule(name=names, count=counts)
    def create(self, name: str, count: int) -> None:
        body: dict[str, Any] = {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": {"name": name},
            "spec": {"worker": {"type": "shell"}, "replicas": count},
        }
        if name in self.objects:
            self.refused(self.client.create(body), 409)
            return
        made = self.run(self.client.create(body))
        version = self.heard(made)
        owners = {"replicas": {"updater"}, "worker": {"updater"}}
        self.objects[name] = Expected(count, version, made["metadata"]["uid"], owners=owners)

    @rule(name=names, count=counts, stale=st.booleans())
    def update(self, name: str, count: int, stale: bool) -> None:
        expected = self.objects.get(name)
        if expected is None:
            self.refused(self.client.get(KIND, name), 404)
            return
        obj = self.run(self.client.get(KIND, name))
        obj["spec"]["replicas"] = count
        if stale:
            obj["metadata"]["resourceVersion"] = str(expected.version - 1)
            self.refused(self.client.update(obj), 409)
            return
        answer = self.run(self.client.update(obj))
        if count == expected.replicas:
            assert int(answer["metadata"]["resourceVersion"]) == expected.version, "nothing changed, nothing is written"
            return
        expected.replicas, expected.generation = count, expected.generation + 1
        expected.written("replicas", "updater")
        self.changed(name, answer)

    @rule(name=names, label=labels, value=st.sampled_from(["1", "2", None]))
    def merge_patch(self, name: str, label: str, value: str | None) -> None:
        patch = {"metadata": {"labels": {label: value}}}
        expected = self.objects.get(name)
        if expected is None:
            self.refused(self.client.patch(KIND, name, patch), 404)
            return
        before = dict(expected.labels)
        answer = self.run(self.client.patch(KIND, name, patch))
        if value is None:
            expected.labels.pop(label, None)
        else:
            expected.labels[label] = value
        if expected.labels != before:
            if value is None:
                expected.owners.pop(label, None)
                for fields in expected.applied.values():
                    fields.discard(label)
            else:
                expected.written(label, "updater")
            self.changed(name, answer)

    @rule(name=names, guess=counts, count=counts)
    def json_patch(self, name: str, guess: int, count: int) -> None:
        ops = [
            {"op": "test", "path": "/spec/replicas", "value": guess},
            {"op": "replace", "path": "/spec/replicas", "value": count},
        ]
        expected = self.objects.get(name)
        if expected is None or expected.replicas != guess:
            self.refused(self.client.patch(KIND, name, ops, type="json"), 404 if expected is None else 422)
            return
        answer = self.run(self.client.patch(KIND, name, ops, type="json"))
        if count != guess:
            expected.replicas, expected.generation = count, expected.generation + 1
            expected.written("replicas", "updater")
            self.changed(name, answer)

    @rule(
        name=names,
        manager=managers,
        count=st.none() | counts,
        label=labels,
        value=st.sampled_from(["1", "2"]),
        force=st.booleans(),
    )
    def apply(self, name: str, manager: str, count: int | None, label: str, value: str, force: bool) -> None:
        config: dict[str, Any] = {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": {"name": name, "labels": {label: value}},
            "spec": {"worker": {"type": "shell"}},
        }
        if count is not None:
            config["spec"]["replicas"] = count
        declared = {label, "worker"} | ({"replicas"} if count is not None else set())
        expected = self.objects.get(name)
        if expected is None:
            made = self.run(self.client.apply(config, manager=manager, force=force))
            self.objects[name] = new = Expected(
                made["spec"].get("replicas", -1), self.heard(made), made["metadata"]["uid"], labels={label: value}
            )
            new.applied[manager] = declared
            return
        wanted = {label: value} | ({"replicas": count} if count is not None else {})
        has = {**expected.labels, "replicas": expected.replicas}
        contested = [
            f
            for f, v in wanted.items()
            if has.get(f) != v
            and (expected.owners.get(f, set()) | {m for m, fs in expected.applied.items() if f in fs}) - {manager}
        ]
        if contested and not force:
            self.refused(self.client.apply(config, manager=manager), 409)
            return
        answer = self.run(self.client.apply(config, manager=manager, force=force))
        self.applied(expected, manager, declared, wanted, has)
        # An apply that changes nothing but who owns what is a write all the same; the server alone knows.
        if int(answer["metadata"]["resourceVersion"]) != expected.version:
            self.changed(name, answer)

    def applied(
        self, expected: Expected, manager: str, declared: set[str], wanted: dict[str, Any], has: dict[str, Any]
    ) -> None:
        dropped = expected.applied.get(manager, set()) - declared
        for f, v in wanted.items():
            if has.get(f) != v:
                expected.owners.pop(f, None)
                for other, fields in expected.applied.items():
                    if other != manager:
                        fields.discard(f)
            if f == "replicas":
                if expected.replicas != v:
                    expected.replicas, expected.generation = v, expected.generation + 1
            else:
                expected.labels[f] = v
        expected.applied[manager] = declared
        for f in dropped:
            if expected.owners.get(f) or any(f in fields for fields in expected.applied.values()):
                continue
            if f == "replicas":
                if expected.replicas != -1:
                    expected.replicas, expected.generation = -1, expected.generation + 1
            else:
                expected.labels.pop(f, None)

    @rule(name=names, finalizer=finalizers)
    def toggle_finalizer(self, name: str, finalizer: str) -> None:
        expected = self.objects.get(name)
        if expected is None:
            return
        if finalizer in expected.finalizers:
            kept = [f for f in expected.finalizers if f != finalizer]
        else:
            kept = [*expected.finalizers, finalizer]
        patch = {"metadata": {"finalizers": kept}}
        if expected.deleting and len(kept) > len(expected.finalizers):
            self.refused(self.client.patch(KIND, name, patch), 422)
            return
        answer = self.run(self.client.patch(KIND, name, patch))
        expected.finalizers = kept
        self.changed(name, answer)

    @rule(name=names)
    def delete(self, name: str) -> None:
        expected = self.objects.get(name)
        if expected is None:
            self.refused(self.client.delete(KIND, name), 404)
            return
        left = self.run(self.client.delete(KIND, name))
        if not expected.finalizers:
            assert left is None
            del self.objects[name]
            self.version = self.store.revision
        elif not expected.deleting:
            assert left is not None
            expected.deleting, expected.generation = True, expected.generation + 1
            expected.version = self.heard(left)

    @rule(moves=st.lists(st.tuples(names, counts), min_size=2, max_size=12))
    def many_at_once(self, moves: list[tuple[str, int]]) -> None:
        """Concurrent writers: each gets an answer, and the order of versions is the order in which they happened."""

        async def one(name: str, count: int) -> tuple[str, int, dict[str, Any] | None]:
            try:
                return name, count, await self.client.patch(KIND, name, {"spec": {"replicas": count}})
            except ApiError as error:
                if error.code != 404:
                    raise
                return name, count, None

        async def go() -> list[tuple[str, int, dict[str, Any] | None]]:
            return list(await asyncio.gather(*(one(name, count) for name, count in moves)))

        written: dict[int, tuple[str, int]] = {}
        for name, count, answer in self.run(go()):
            assert (answer is None) == (name not in self.objects)
            if answer is not None and int(answer["metadata"]["resourceVersion"]) > self.version:
                written[int(answer["metadata"]["resourceVersion"])] = (name, count)
        for version in sorted(written):
            name, count = written[version]
            expected = self.objects[name]
            assert count != expected.replicas, "what changes nothing is not written"
            expected.replicas, expected.generation, expected.version = count, expected.generation + 1, version
            expected.written("replicas", "updater")
            self.version = version

    @rule(first=names, second=names, count=counts)
    def batch(self, first: str, second: str, count: int) -> None:
        operations = [
            Operation("patch", KIND, "default", name, body={"metadata": {"annotations": {"count": str(self.version)}}})
            for name in (first, second)
        ]
        if first == second and first in self.objects:
            self.refused(self.client.batch(operations), 400)
        elif not {first, second} <= self.objects.keys():
            self.refused(self.client.batch(operations), 404)
        else:
            for name, answer in zip((first, second), self.run(self.client.batch(operations)), strict=True):
                self.changed(name, answer)

    @rule(back=st.integers(0, 5))
    def compact(self, back: int) -> None:
        self.run(self.store.compact(max(self.store.compacted, self.store.revision - back)))

    @rule()
    def restart(self) -> None:
        async def go() -> None:
            await self.registry.stop()
            if self.folder is None:
                await self.open(self.store)
                return
            await self.store.close()
            await self.open(self.new_store())
            assert self.store.revision >= self.version, "revisions never go back"

        self.run(go())

    # What must hold after every step.

    @invariant()
    def the_list_is_what_was_written(self) -> None:
        if hasattr(self, "client"):
            listed = self.run(self.client.list(KIND))
            self.compare({obj["metadata"]["name"]: obj for obj in listed.items})

    @invariant()
    def watchers_that_resume_have_seen_everything_once(self) -> None:
        if hasattr(self, "client"):
            # One of the two resumes only now and then, so that it sometimes finds its history gone.
            watcher = self.watchers[self.version % 4 == 0]
            self.run(watcher.catch_up(self.client, self.version))
            self.compare(watcher.seen)

    def compare(self, found: dict[str, dict[str, Any]]) -> None:
        assert found.keys() == self.objects.keys()
        for name, expected in self.objects.items():
            meta, spec = found[name]["metadata"], found[name]["spec"]
            assert meta["uid"] == expected.uid
            assert int(meta["resourceVersion"]) == expected.version
            assert meta["generation"] == expected.generation
            assert meta.get("labels", {}) == expected.labels
            assert meta.get("finalizers", []) == expected.finalizers
            assert ("deletionTimestamp" in meta) == expected.deleting
            assert spec.get("replicas", -1) == expected.replicas


class OnSqlite(Machine):
    durable = True


@pytest.mark.parametrize("machine", [Machine, OnSqlite], ids=["memory", "sqlite"])
def test_random_use_agrees_with_the_model(machine: type[Machine]) -> None:
    steps = settings(
        max_examples=amount(8, 200),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(machine, settings=steps)
