"""The queue in a world where anything may happen between a decision, its being carried out and its being told of."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rota.pools import Request
from tests.amount import amount
from tests.pools.world import STRANGER, Instance, World

FEATURES = st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"gpu"})])


class Interleavings(RuleBasedStateMachine):
    """Lost races, cancels, deaths and restarts at any instant."""

    world: World
    came: int

    @initialize(provides=st.lists(FEATURES, min_size=1, max_size=4))
    def begin(self, provides: list[frozenset[str]]) -> None:
        self.world = World()
        self.came = 0
        for number, each in enumerate([*provides, frozenset({"gpu"})]):
            self.world.instances[f"i{number}"] = Instance(f"i{number}", each)
            self.world.look(f"i{number}")

    @rule(holder=st.sampled_from("abc"), priority=st.sampled_from([0, 0, 0, 1]), needs=FEATURES)
    def a_request_comes(self, holder: str, priority: int, needs: frozenset[str]) -> None:
        self.came += 1
        self.world.now += 1.0
        self.world.come(Request(f"r{self.came}", holder, priority, self.world.now, needs))

    @precondition(lambda self: self.world.requests)
    @rule(data=st.data())
    def a_request_is_over(self, data: st.DataObject) -> None:
        self.world.over(data.draw(st.sampled_from(sorted(self.world.requests))))

    @precondition(lambda self: self.world.decided)
    @rule(data=st.data())
    def a_binding_is_carried_out(self, data: st.DataObject) -> None:
        self.world.carry_out(data.draw(st.sampled_from(self.world.decided)))

    @precondition(lambda self: self.world.carried_out)
    @rule(data=st.data())
    def an_outcome_is_told(self, data: st.DataObject) -> None:
        self.world.tell(*data.draw(st.sampled_from(self.world.carried_out)))

    @precondition(lambda self: self.world.carried_out)
    @rule(data=st.data())
    def an_outcome_is_told_wrongly(self, data: st.DataObject) -> None:
        self.world.tell_wrongly(*data.draw(st.sampled_from(self.world.carried_out)))

    @rule(data=st.data())
    def somebody_else_takes_an_instance(self, data: st.DataObject) -> None:
        instance = self.world.instances[data.draw(st.sampled_from(sorted(self.world.instances)))]
        if instance.ready and not instance.assigned:
            instance.assigned = STRANGER

    @rule(data=st.data())
    def an_instance_dies(self, data: st.DataObject) -> None:
        self.world.die(data.draw(st.sampled_from(sorted(self.world.instances))))

    @rule(data=st.data())
    def an_instance_is_there_again(self, data: st.DataObject) -> None:
        self.world.revive(data.draw(st.sampled_from(sorted(self.world.instances))))

    @rule(data=st.data())
    def an_instance_is_looked_at(self, data: st.DataObject) -> None:
        self.world.look(data.draw(st.sampled_from(sorted(self.world.instances))))

    @rule()
    def the_caller_is_restarted(self) -> None:
        self.world.restart()

    @invariant()
    def who_was_told_that_it_has_an_instance_has_it_alone(self) -> None:
        for request, instance in self.world.told.items():
            assert self.world.instances[instance].assigned == request
            assert self.world.queue.view.instance_of(request) == instance

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.settle()
        left = len(world.requests)
        for _ in range(left):
            if not world.requests:
                break
            assert world.told, "somebody waits, nothing is under way, and nobody has anything"
            for request in list(world.told):
                world.over(request)
            world.settle()
        assert not world.requests, "everyone gets an instance in the end"
        assert all(not instance.assigned for instance in world.instances.values()), "an instance was leaked"
        view = world.queue.view
        assert (view.depth, view.in_flight, view.bound, view.free) == (0, 0, 0, len(world.instances))


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=amount(60, 1_500), stateful_step_count=50, deadline=None)
