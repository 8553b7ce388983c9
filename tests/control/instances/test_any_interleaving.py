"""The planner in a world where anything may happen between any two steps."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from rota.control.instances import DRAINING, Action, Create, is_ready
from tests.amount import amount
from tests.control.instances.making import CRASHING, TEMPLATE, wanting
from tests.control.instances.world import BAD, World

HASHES = st.sampled_from(["one", "two", BAD])
REPLICAS = st.integers(0, 5)
EVENTS = ("start", "start", "crash", "hold", "hold", "release", "gone", "gone", "delete", "end")
LATE_MAX = 8


class Interleavings(RuleBasedStateMachine):
    """Every way in which a plan's actions, failures and changes of mind can follow each other."""

    world: World
    late: list[Action]

    @initialize(
        pooled=st.booleans(), replicas=REPLICAS, unavailable=st.integers(0, 3), ends=st.booleans(), sparse=st.booleans()
    )
    def begin(self, pooled: bool, replicas: int, unavailable: int, ends: bool, sparse: bool) -> None:
        template = replace(TEMPLATE, restart_policy="Never" if ends else "Always")
        desired = wanting(replicas, "one", max_unavailable=unavailable, drain_seconds=30.0, pooled=pooled)
        self.world = World(replace(desired, template=template, sparse=sparse))
        self.late = []
        if pooled or ends:
            # Half of the worlds begin with everything in place.
            self.world.settle()

    def happen(self, event: str, data: st.DataObject, name: str = "") -> None:
        names = sorted(self.world.instances)
        if name not in names:
            if not names:
                return
            name = data.draw(st.sampled_from(names))
        leaving = self.world.instances[name].metadata.deletion_timestamp is not None
        match event:
            case "start" | "hold" | "release" | "delete":
                getattr(self.world, event)(name)
            case "crash":
                self.world.say(name, CRASHING)
            case "end":
                self.world.say(name, CRASHING, phase="Failed")
            case "gone" if leaving:
                self.world.gone(name)

    @rule(event=st.sampled_from(EVENTS), data=st.data())
    def something_happens(self, event: str, data: st.DataObject) -> None:
        self.happen(event, data)

    @rule(data=st.data())
    def a_plan_is_carried_out_with_things_happening_meanwhile(self, data: st.DataObject) -> None:
        for action in self.world.plan().actions:
            fate = data.draw(st.sampled_from(["done", "done", "done", "lost", "late", "meanwhile"]))
            if fate == "meanwhile":
                # What matters most is what happens to the very instance that the action is about.
                name = "" if isinstance(action, Create) else action.name
                self.happen(data.draw(st.sampled_from(EVENTS)), data, name)
            if fate == "late" and len(self.late) < LATE_MAX:
                self.late.append(action)
            elif fate != "lost":
                self.world.carry_out(action)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def an_action_is_carried_out_late(self, data: st.DataObject) -> None:
        self.world.carry_out(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))), late=True)

    @rule(seconds=st.sampled_from([0.3, 4.0, 10.0, 16.0, 29.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(rounds=st.integers(1, 4))
    def all_goes_well_for_a_while(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.round()

    @rule(count=st.integers(1, 5))
    def holders_come(self, count: int) -> None:
        for name in sorted(self.world.instances, reverse=True)[:count]:
            self.world.hold(name)

    @rule(hash_=HASHES)
    def the_template_changes(self, hash_: str) -> None:
        self.world.want(template_hash=hash_)

    @rule(replicas=REPLICAS)
    def the_number_changes(self, replicas: int) -> None:
        self.world.want(replicas=replicas)

    @rule(unavailable=st.integers(0, 3), drain=st.sampled_from([0.0, 5.0, 30.0]))
    def the_bounds_change(self, unavailable: int, drain: float) -> None:
        self.world.want(max_unavailable=unavailable, drain_seconds=drain)

    @invariant()
    def the_counts_are_those_of_the_world(self) -> None:
        counts = self.world.plan().counts
        there = self.world.instances.values()
        assert counts.replicas == len(there)
        assert counts.ready == sum(is_ready(one) for one in there)
        assert counts.idle <= counts.ready and counts.available <= counts.ready

    def teardown(self) -> None:
        """From wherever this has come to, it converges, and then nothing is planned."""
        if not hasattr(self, "world"):
            return
        world = self.world
        if world.desired.template_hash == BAD:
            world.settle()
            assert not world.plan().actions, "what cannot become ready is not replaced for ever"
            world.want(template_hash="one")
        world.settle()
        ordinals = sorted(one.spec.ordinal for one in world.instances.values())
        assert len(ordinals) == world.desired.replicas
        assert world.desired.sparse or ordinals == [*range(world.desired.replicas)]
        for one in world.instances.values():
            assert one.spec.template_hash == world.desired.template_hash
            assert is_ready(one) and DRAINING not in one.metadata.annotations
        made = world.plan()
        assert (made.actions, made.again_after, made.reason, made.phase) == ([], None, "Settled", "Ready")


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=amount(40, 2_000), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
