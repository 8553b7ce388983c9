"""The ledger in a world where anything may happen between a decision, its being written and its result."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rota.pools import Opened, Request
from tests.amount import amount
from tests.pools.making import assert_no_trace
from tests.pools.world import STRANGER, Instance, World

SELDOM = st.integers(0, 5).map(lambda number: number == 5)


class Interleavings(RuleBasedStateMachine):
    """Lost races, cancels, deaths and restarts at any instant."""

    @initialize(instances=st.integers(1, 3), short=st.sampled_from([True, True, False]))
    def begin(self, instances: int, short: bool) -> None:
        self.world = World()
        self.came = 0
        if short:
            self.world.ledger.ran(0.001)
        for number in range(instances):
            self.world.instances[f"i{number}"] = Instance(f"i{number}")
            self.world.look(f"i{number}")

    def draw(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.world.instances)))

    @rule(
        holder=st.sampled_from("abc"),
        priority=st.sampled_from([0, 0, 0, 1]),
        shares=st.sampled_from([True, True, False]),
        count=st.integers(1, 6),
    )
    def requests_come(self, holder: str, priority: int, shares: bool, count: int) -> None:
        for _ in range(count):
            self.came += 1
            self.world.come(Request(f"r{self.came}", holder, priority, float(self.came), "", shares))

    @precondition(lambda self: any(not each.cancelled for each in self.world.stored.values()))
    @rule(data=st.data())
    def a_request_is_cancelled(self, data: st.DataObject) -> None:
        ids = [id_ for id_, each in self.world.stored.items() if not each.cancelled]
        self.world.cancel(data.draw(st.sampled_from(ids)))

    @precondition(lambda self: self.world.decided)
    @rule(data=st.data())
    def a_binding_is_written(self, data: st.DataObject) -> None:
        self.world.write(*data.draw(st.sampled_from(self.world.decided)))

    @precondition(lambda self: self.world.written)
    @rule(data=st.data())
    def a_result_is_told(self, data: st.DataObject) -> None:
        self.world.tell(*data.draw(st.sampled_from(self.world.written)))

    @precondition(lambda self: self.world.decided or self.world.written)
    @rule()
    def all_are_written_and_told(self) -> None:
        for binding, born in list(self.world.decided):
            self.world.write(binding, born)
        for binding, result in list(self.world.written):
            self.world.tell(binding, result)

    @precondition(lambda self: self.world.written)
    @rule(data=st.data())
    def a_result_is_told_wrongly(self, data: st.DataObject) -> None:
        self.world.tell_wrongly(*data.draw(st.sampled_from(self.world.written)))

    @precondition(lambda self: self.world.told)
    @rule(data=st.data(), result=st.sampled_from(["bound", "lost", "refused"]))
    def a_result_is_told_again(self, data: st.DataObject, result: str) -> None:
        self.world.tell_again(data.draw(st.sampled_from(self.world.told)), result)

    @precondition(lambda self: self.world.ends)
    @rule(data=st.data())
    def an_end_is_written(self, data: st.DataObject) -> None:
        self.world.write_end(*data.draw(st.sampled_from(self.world.ends)))

    @precondition(lambda self: self.world.ends)
    @rule(data=st.data())
    def an_end_is_not_written(self, data: st.DataObject) -> None:
        self.world.fail_end(*data.draw(st.sampled_from(self.world.ends)))

    @precondition(lambda self: self.world.recalls)
    @rule(data=st.data())
    def a_recall_is_answered(self, data: st.DataObject) -> None:
        self.world.answer(data.draw(st.sampled_from(self.world.recalls)))

    @precondition(lambda self: self.world.able_to_begin())
    @rule(data=st.data())
    def a_runner_begins(self, data: st.DataObject) -> None:
        self.world.begin(data.draw(st.sampled_from(self.world.able_to_begin())))

    @precondition(lambda self: self.world.busy())
    @rule(data=st.data())
    def a_runner_ends(self, data: st.DataObject) -> None:
        self.world.finish(data.draw(st.sampled_from(self.world.busy())))

    @precondition(lambda self: self.world.busy())
    @rule(data=st.data())
    def one_runs_for_long(self, data: st.DataObject) -> None:
        instance = self.world.instances[data.draw(st.sampled_from(self.world.busy()))]
        self.world.ledger.runs_long(instance.running)
        self.world.take()

    @rule(data=st.data(), happens=SELDOM)
    def somebody_else_takes_an_instance(self, data: st.DataObject, happens: bool) -> None:
        instance = self.world.instances[self.draw(data)]
        in_use = any(each.on == instance.id for each in self.world.stored.values())
        if happens and instance.alive and not instance.assigned and not in_use:
            instance.assigned = STRANGER

    @rule(data=st.data(), happens=SELDOM)
    def an_instance_dies(self, data: st.DataObject, happens: bool) -> None:
        if happens:
            self.world.die(self.draw(data))

    @precondition(lambda self: not all(each.alive for each in self.world.instances.values()))
    @rule(data=st.data())
    def an_instance_is_there_again(self, data: st.DataObject) -> None:
        self.world.revive(self.draw(data))

    @rule(data=st.data())
    def an_instance_is_looked_at(self, data: st.DataObject) -> None:
        self.world.look(self.draw(data))

    @precondition(lambda self: not all(each.clean for each in self.world.instances.values()))
    @rule(data=st.data())
    def an_instance_is_reset(self, data: st.DataObject) -> None:
        self.world.reset(self.draw(data))

    @rule(happens=SELDOM)
    def the_executor_is_restarted(self, happens: bool) -> None:
        if happens:
            self.world.restart()

    @invariant()
    def nothing_waits_that_could_be_served(self) -> None:
        if hasattr(self, "world"):
            ledger = self.world.ledger
            assert not (ledger.depth and ledger.free), "an instance is free, and somebody waits"

    @invariant()
    def nothing_runs_twice(self) -> None:
        if not hasattr(self, "world"):
            return
        assert all(count == 1 for count in self.world.begun.values())
        at = [id_ for each in self.world.instances.values() for id_ in {*each.handed, each.running, *each.done} - {""}]
        assert len(at) == len(set(at)), "two runners have the same request"
        assigned = [each.assigned for each in self.world.instances.values() if each.assigned not in ("", STRANGER)]
        assert len(assigned) == len(set(assigned)), "a request holds two instances"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.settle()
        for _ in range(2 * len(world.stored) + 2):
            for id_ in list(world.stored):
                world.release(id_)
            world.settle()
            self.nothing_runs_twice()
        assert not world.stored, "everyone gets an instance in the end"
        assert all(not each.assigned for each in world.instances.values()), "an instance is held by nobody"
        assert_no_trace(world.ledger)
        assert world.ledger.free == len(world.instances)
        assert all(unit.opened is Opened.WHOLE for unit in world.ledger._units.values())


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=amount(60, 600), stateful_step_count=50, deadline=None)
