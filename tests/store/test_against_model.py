"""Any sequence of operations, restarts and compactions included, against a dict and a list."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rota.store import Conflict, Gone, MemoryStore, SqliteStore, Store, Watch, Write
from tests.amount import amount
from tests.store.acts import read, told, value

T = TypeVar("T")
Told = tuple[int, str, bytes, bool, bytes | None, int]

BUCKETS = ("tasks", "taskspawners")
PREFIXES = st.sampled_from(["tasks/", "tasks/x/", "tasks//", "taskspawners/", "taskspawners/x/"])
KEYS = st.builds("{}/{}/{}".format, st.sampled_from(BUCKETS), st.sampled_from(["", "x", "y"]), st.integers(0, 3))
RING_EVENTS = 6


class AgainstModel(RuleBasedStateMachine):
    """The model keeps every state that ever was: `states[r]` is all objects, with their revisions, at revision r."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.store = self.open()
        self.states: list[dict[str, tuple[bytes, int]]] = [{}]
        self.events: list[Told] = []
        self.compacted = 0
        self.watches: list[tuple[Watch, str, int]] = []

    def open(self) -> Store:
        return SqliteStore(Path(self.folder.name) / "store.db", ring_events_max=RING_EVENTS)

    def run_in_loop(self, work: Coroutine[None, None, T]) -> T:
        return self.loop.run_until_complete(work)

    def apply(self, key: str, content: bytes, delete: bool) -> None:
        state = dict(self.states[-1])
        before, before_rev = state.get(key, (None, 0))
        self.events.append((len(self.states), key, content, delete, before, before_rev))
        if delete:
            del state[key]
        else:
            state[key] = (content, len(self.states))
        self.states.append(state)

    @rule(
        writes=st.lists(st.tuples(KEYS, st.sampled_from(["any", "right", "none", "wrong"]), st.booleans()), max_size=4),
        text=st.text("ab", max_size=3),
    )
    def commit(self, writes: list[tuple[str, str, bool]], text: str) -> None:
        content = text.encode()
        ahead, state = len(self.states), dict(self.states[-1])
        asked: list[Write] = []
        possible = True
        for offset, (key, mood, delete) in enumerate(writes):
            actual = state.get(key, (b"", 0))[1]
            expect = {"any": None, "right": actual, "none": 0, "wrong": actual + 1}[mood]
            asked.append(Write(key, expect, value(text), delete))
            possible = possible and expect in (None, actual) and not (delete and not actual)
            state[key] = (content, 0 if delete else ahead + offset)

        async def ask() -> bool:
            try:
                entries = await self.store.commit(asked)
            except Conflict:
                return False
            assert [(entry.key, entry.value) for entry in entries] == [(key, content) for key, _, _ in writes]
            return True

        assert self.run_in_loop(ask()) == possible
        if possible:
            for key, _, delete in writes:
                self.apply(key, content, delete)

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        now = self.states[-1]
        assert self.store.revision == len(self.states) - 1
        assert self.store.compacted == self.compacted
        for bucket in BUCKETS:
            listed = [(entry.key, (entry.value, entry.rev)) for entry in self.store.list(f"{bucket}/").entries]
            assert listed == sorted((key, state) for key, state in now.items() if key.startswith(f"{bucket}/"))

    @rule(prefix=PREFIXES, back=st.integers(0, 10), limit=st.integers(0, 3), after=st.one_of(st.just(""), KEYS))
    def list_the_past(self, prefix: str, back: int, limit: int, after: str) -> None:
        revision = max(self.store.revision - back, 0)
        matching = sorted(key for key in self.states[revision] if key.startswith(prefix) and key > after)
        try:
            page = self.store.list(prefix, after=after, limit=limit, revision=revision)
        except Gone:
            assert revision < self.compacted or back >= RING_EVENTS - 1
            return
        if revision == 0:
            return  # which asks for now
        expected = matching[:limit] if limit else matching
        assert [(entry.key, (entry.value, entry.rev)) for entry in page.entries] == [
            (key, self.states[revision][key]) for key in expected
        ]
        assert (page.revision, page.remaining) == (revision, len(matching) - len(expected))
        assert page.more == (page.remaining > 0)
        assert self.store.count(prefix) == sum(key.startswith(prefix) for key in self.states[-1])

    @rule(prefix=PREFIXES, back=st.integers(0, 30))
    def watch(self, prefix: str, back: int) -> None:
        since = max(self.store.revision - back, 0)
        try:
            self.watches.append((self.store.watch(prefix, since), prefix, since))
        except Gone:
            assert since < self.compacted

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def read_a_watch(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.watches) - 1))
        watch, prefix, since = self.watches[at]
        expected = [event for event in self.events[since:] if event[1].startswith(prefix)]
        try:
            assert told(self.run_in_loop(read(watch, len(expected)))) == expected
        except Gone:
            assert since < self.compacted or isinstance(self.store, MemoryStore)
            del self.watches[at]
            return
        assert since <= watch.position <= self.store.revision
        self.watches[at] = (watch, prefix, watch.position)

    @rule(back=st.integers(0, 12))
    def compact(self, back: int) -> None:
        revision = max(self.store.revision - back, 0)
        self.run_in_loop(self.store.compact(revision))
        self.compacted = max(self.compacted, revision)

    @rule()
    def restart(self) -> None:
        self.run_in_loop(self.store.close())
        self.watches = []
        self.store = self.open()

    def teardown(self) -> None:
        self.run_in_loop(self.store.close())
        self.loop.close()
        self.folder.cleanup()


class MemoryAgainstModel(AgainstModel):
    def open(self) -> Store:
        return MemoryStore(ring_events_max=RING_EVENTS)

    @precondition(lambda self: False)
    @rule()
    def restart(self) -> None:
        """It would forget everything."""


TestSqliteAgainstModel = AgainstModel.TestCase
TestSqliteAgainstModel.settings = settings(max_examples=amount(30, 200), stateful_step_count=40, deadline=None)
TestMemoryAgainstModel = MemoryAgainstModel.TestCase
TestMemoryAgainstModel.settings = settings(max_examples=amount(30, 200), stateful_step_count=40, deadline=None)
