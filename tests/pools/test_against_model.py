"""The ledger against one that is obviously right, whatever is said to them and in whatever order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from rota.pools import Binding, GiveBack, Ledger, Lost, Opened, Recall, Request, State
from tests.amount import amount
from tests.pools.model import Effect, Flight, Model

NUMBERS = 12
IDS = st.integers(0, NUMBERS - 1).map("r{}".format)
KEYS = st.sampled_from(["", "", "main", "other"])
REQUESTS = st.builds(
    Request,
    id=IDS,
    holder=st.sampled_from("abc"),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    arrival=st.integers(0, 9).map(float),
    prefers=KEYS,
    shares=st.sampled_from([True, True, False]),
)
INSTANCES = st.integers(0, 3).map("i{}".format)
OPENED = st.sampled_from([Opened.WHOLE, Opened.WHOLE, Opened.JOBS, Opened.CLOSED])
SECONDS = st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.06, 10.0])


class AgainstModel(RuleBasedStateMachine):
    """Says the same to both, sense and nonsense, and compares all that can be seen."""

    @initialize(depth_max=st.sampled_from([8, 8, 3, 1]), short=st.sampled_from([True, True, False]), busy=st.booleans())
    def begin(self, depth_max: int, short: bool, busy: bool) -> None:
        self.ledger = Ledger(depth_max)
        self.model = Model(depth_max)
        self.flights: list[tuple[Binding, Flight]] = []
        """Bindings whose result was not reported."""
        self.over: list[tuple[Binding, Flight]] = []
        if short:
            self.ledger.ran(0.0)
            self.model.ran(0.0)
        if busy:
            # Two instances that jobs of all holders share: what is told of those that stand behind others is most.
            for number in range(2):
                self.an_instance_is_opened(f"i{number}", Opened.WHOLE, Opened.WHOLE, 8, None)
            for number in range(6):
                self.a_request_comes(Request(f"r{number}", "abc"[number % 3], -(number % 2), float(number), "", True))
            self.same_effects()
            self.all_bindings_are_written()

    def same_effects(self) -> None:
        effects = [shown(each) for each in self.ledger.effects]
        assert effects == self.model.effects
        made = [each for each in self.ledger.effects if isinstance(each, Binding)]
        for binding in made:
            # What was decided in the same event may be over in it, too, but not come again.
            known = self.model.find(binding.request.id)
            assert known is not None and known.flight is not None
            self.flights.append((binding, known.flight))
        self.ledger.effects.clear()
        self.model.effects.clear()

    def draw_flight(self, data: st.DataObject) -> tuple[Binding, Flight]:
        pair = self.flights.pop(data.draw(st.integers(0, len(self.flights) - 1)))
        self.over.append(pair)
        return pair

    def draw_known(self, data: st.DataObject, *states: State) -> str:
        found = [each.request.id for each in self.model.known if each.state in states]
        return data.draw(st.sampled_from(found)) if found else data.draw(IDS)

    @rule(request=REQUESTS)
    def a_request_comes(self, request: Request) -> None:
        assert self.ledger.request(request) is self.model.request(request)

    @rule(requests=st.lists(REQUESTS, min_size=2, max_size=6))
    def several_requests_come(self, requests: list[Request]) -> None:
        for request in requests:
            assert self.ledger.request(request) is self.model.request(request)
            self.same_effects()

    @rule(instance=INSTANCES, claim=REQUESTS, job=REQUESTS)
    def a_job_comes_after_a_claim_that_waits(self, instance: str, claim: Request, job: Request) -> None:
        """An instance that is free for jobs alone is given to none while a claim is before it."""
        for request in (replace(claim, shares=False), replace(job, shares=True)):
            assert self.ledger.request(request) is self.model.request(request)
            self.same_effects()
            self.an_instance_is_opened(instance, Opened.JOBS, Opened.JOBS, 8, None)
            self.same_effects()

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), again=st.booleans())
    def a_request_is_cancelled_before_it_is_bound(self, data: st.DataObject, again: bool) -> None:
        binding, flight = self.draw_flight(data)
        request = binding.request
        assert self.ledger.cancel(request.id) is self.model.cancel(request.id)
        self.same_effects()
        if again:
            assert self.ledger.request(request) is self.model.request(request)
            self.same_effects()
        assert self.ledger.bound(binding) == self.model.bound(flight)

    @rule(request=REQUESTS, instance=INSTANCES)
    def a_claim_comes_and_ends(self, request: Request, instance: str) -> None:
        """An instance that one had for itself is not free before it is said to be."""
        self.an_instance_is_opened(instance, Opened.WHOLE, Opened.WHOLE, 8, None)
        self.a_request_comes(replace(request, shares=False))
        self.same_effects()
        self.all_bindings_are_written()
        self.ledger.ended(request.id)
        self.model.ended(request.id)

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), comes_back=st.booleans())
    def an_instance_goes_before_it_is_bound(self, data: st.DataObject, comes_back: bool) -> None:
        binding, flight = self.draw_flight(data)
        self.an_instance_is_gone(binding.instance)
        self.same_effects()
        if comes_back:
            self.an_instance_is_opened(binding.instance, Opened.WHOLE, Opened.WHOLE, 8, None)
            self.same_effects()
        assert self.ledger.bound(binding) == self.model.bound(flight)

    @rule(data=st.data(), request=REQUESTS)
    def one_runs_for_long_while_another_is_handed_on(self, data: st.DataObject, request: Request) -> None:
        self.a_request_comes(replace(request, shares=True))
        self.same_effects()
        self.one_runs_for_long(data)
        self.same_effects()
        self.all_bindings_are_written()
        self.one_runs_for_long(data)

    @rule(id_=IDS)
    def a_request_is_cancelled(self, id_: str) -> None:
        assert self.ledger.cancel(id_) is self.model.cancel(id_)

    @rule(data=st.data())
    def a_request_that_is_bound_is_cancelled(self, data: st.DataObject) -> None:
        id_ = self.draw_known(data, State.BINDING)
        assert self.ledger.cancel(id_) is self.model.cancel(id_)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def a_binding_is_written(self, data: st.DataObject) -> None:
        binding, flight = self.draw_flight(data)
        assert self.ledger.bound(binding) == self.model.bound(flight)

    @precondition(lambda self: self.flights)
    @rule()
    def all_bindings_are_written(self) -> None:
        for binding, flight in self.flights[:]:
            assert self.ledger.bound(binding) == self.model.bound(flight)
            self.flights.remove((binding, flight))
            self.over.append((binding, flight))
            self.same_effects()

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), taken=st.booleans())
    def a_binding_is_lost(self, data: st.DataObject, taken: bool) -> None:
        binding, flight = self.draw_flight(data)
        self.ledger.lost(binding, instance_taken=taken)
        self.model.lost(flight, instance_taken=taken)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def a_binding_is_refused(self, data: st.DataObject) -> None:
        binding, flight = self.draw_flight(data)
        self.ledger.refused(binding)
        self.model.refused(flight)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def a_result_is_said_again(self, data: st.DataObject) -> None:
        binding, flight = data.draw(st.sampled_from(self.over))
        assert self.ledger.bound(binding) == self.model.bound(flight)
        self.ledger.lost(binding)
        self.ledger.refused(binding)

    @rule(data=st.data(), frees=st.booleans())
    def a_hold_comes_to_its_end(self, data: st.DataObject, frees: bool) -> None:
        id_ = self.draw_known(data, State.HELD)
        assert self.ledger.ending(id_, frees=frees) == self.model.ending(id_, frees=frees)

    @rule(data=st.data())
    def an_end_is_written(self, data: st.DataObject) -> None:
        id_ = self.draw_known(data, State.HELD, State.ENDING)
        self.ledger.ended(id_)
        self.model.ended(id_)

    @rule(data=st.data())
    def an_end_is_not_written(self, data: st.DataObject) -> None:
        id_ = self.draw_known(data, State.ENDING)
        self.ledger.held_again(id_)
        self.model.held_again(id_)

    @rule(id_=IDS)
    def something_is_said_of_any_request(self, id_: str) -> None:
        self.ledger.ended(id_)
        self.model.ended(id_)
        self.ledger.held_again(id_)
        self.model.held_again(id_)

    @rule(
        instance=INSTANCES,
        opened=OPENED,
        reopened=OPENED,
        slots=st.sampled_from([8, 8, 2, 1]),
        last=st.one_of(st.none(), KEYS),
    )
    def an_instance_is_opened(
        self, instance: str, opened: Opened, reopened: Opened, slots: int, last: str | None
    ) -> None:
        self.ledger.open(instance, opened, reopened=reopened, slots=slots, last=last)
        self.model.open(instance, opened, reopened=reopened, slots=slots, last=last)

    @rule(instance=INSTANCES)
    def an_instance_is_gone(self, instance: str) -> None:
        self.ledger.gone(instance)
        self.model.gone(instance)

    @rule(instance=INSTANCES)
    def an_instance_is_taken(self, instance: str) -> None:
        self.ledger.taken(instance)
        self.model.taken(instance)

    @rule(seconds=SECONDS)
    def one_has_run(self, seconds: float) -> None:
        self.ledger.ran(seconds)
        self.model.ran(seconds)

    @rule(data=st.data())
    def one_runs_for_long(self, data: st.DataObject) -> None:
        id_ = self.draw_known(data, State.HELD)
        self.ledger.runs_long(id_)
        self.model.runs_long(id_)

    @rule(data=st.data())
    def one_is_returned(self, data: st.DataObject) -> None:
        id_ = self.draw_known(data, State.HELD)
        instance = self.ledger.instance_of(id_) or data.draw(INSTANCES)
        returned = self.ledger.returned(id_, instance)
        assert (returned and returned.id) == self.model.returned(id_, instance)

    @rule(id_=IDS, instance=INSTANCES)
    def one_is_returned_by_any(self, id_: str, instance: str) -> None:
        returned = self.ledger.returned(id_, instance)
        assert (returned and returned.id) == self.model.returned(id_, instance)

    @rule(request=REQUESTS, instance=INSTANCES)
    def a_hold_is_in_the_store(self, request: Request, instance: str) -> None:
        # What is stored of a request does not change while the request is there.
        known = [each.request for each in self.model.known if each.request.id == request.id]
        request = known[0] if known else request
        assert self.ledger.hold(request, instance) == self.model.hold(request, instance)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def a_binding_is_in_the_store(self, data: st.DataObject) -> None:
        binding, _ = data.draw(st.sampled_from(self.flights))
        request, instance = binding.request, binding.instance
        assert self.ledger.hold(request, instance) == self.model.hold(request, instance)

    @rule(data=st.data(), short=st.booleans())
    def it_is_made_again_from_what_is_stored(self, data: st.DataObject, short: bool) -> None:
        """A new process knows holds that are written, requests that wait, and instances; nothing of bindings."""
        before = self.model
        waiting = [each.request for each in before.known if each.state is State.WAITING]
        holds = list[tuple[Request, str]]()
        for instance in before.instances.values():
            for each in instance.holds:
                if each.state >= State.HELD or (before.wanted(each) and data.draw(st.booleans())):
                    holds.append((each.request, instance.id))
                elif before.wanted(each):
                    waiting.append(each.request)
        # Those whose instance is gone while they were given it, and whose binding was never written.
        known = {request.id for request, _ in holds} | {request.id for request in waiting}
        lost = [one for one in before.known if one.request.id not in known and one.state is State.BINDING]
        waiting += [one.request for one in lost if before.wanted(one)]
        depth_max = before.depth_max
        self.ledger, self.model = Ledger(depth_max), Model(depth_max)
        self.flights, self.over = [], []
        if short:
            self.ledger.ran(0.0)
            self.model.ran(0.0)
        for request, instance_id in holds:
            assert self.ledger.hold(request, instance_id) and self.model.hold(request, instance_id)
        for request in data.draw(st.permutations(waiting)):
            # Said while nothing is open: whoever is first by rank is served first, whatever is said first.
            assert self.ledger.request(request) is self.model.request(request)
        for request, instance_id in holds:
            assert self.ledger.instance_of(request.id) == instance_id
        assert sorted(self.ledger.waiting.in_order()) == sorted(request.id for request in waiting)
        for id_, instance in before.instances.items():
            opened = Opened.CLOSED if any(not one.request.shares for one in instance.holds) else instance.opened
            about = {"reopened": instance.reopened, "slots": instance.slots, "last": instance.last}
            self.ledger.open(id_, opened, **about)  # type: ignore[arg-type]
            self.model.open(id_, opened, **about)  # type: ignore[arg-type]

    @invariant()
    def nothing_waits_that_could_be_served(self) -> None:
        if hasattr(self, "model") and (waiting := self.model.waiting()):
            assert self.model.pick(waiting[0].request) is None
            assert not self.ledger.free

    @invariant()
    def nobody_holds_two_instances(self) -> None:
        if hasattr(self, "ledger"):
            holders = [one for number in range(4) for one in self.ledger.holders_of(f"i{number}")]
            assert len(holders) == len(set(holders))

    @invariant()
    def they_look_the_same(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.same_effects()
        ledger, model = self.ledger, self.model
        order = model.in_order()
        assert list(ledger.waiting.in_order()) == order
        assert [ledger.position(id_) for id_ in order] == list(range(len(order)))
        assert (ledger.depth, ledger.in_flight) == (len(order), len(model.flights))
        assert ledger.free == len(model.free(Opened.WHOLE))
        assert ledger.is_empty == (not model.known and not model.instances)
        waiting = [each.request.holder for each in model.waiting()]
        assert ledger.depths() == {holder: waiting.count(holder) for holder in waiting}
        assert ledger.bounds() == {holder: has for holder in "abc" if (has := model.has(holder))}
        for number in range(NUMBERS):
            known = model.find(f"r{number}")
            assert ledger.state(f"r{number}") is (known and known.state)
            assert ledger.is_recalled(f"r{number}") == (known is not None and known.recalled)
            held = known.on if known is not None and known.state >= State.HELD else None
            assert ledger.instance_of(f"r{number}") == (held and held.id)
        for id_ in {f"i{number}" for number in range(4)}:
            holds = model.instances[id_].holds if id_ in model.instances else []
            assert ledger.holders_of(id_) == [each.request.id for each in holds if each.state >= State.HELD]
            assert ledger.is_used(id_) == bool(holds)
        for binding, flight in self.flights + self.over:
            assert (binding.is_over, binding.is_wanted) == (flight.over, flight.wanted)

    @invariant()
    def no_instance_is_shared_by_those_that_may_not(self) -> None:
        for instance in self.model.instances.values() if hasattr(self, "model") else ():
            assert len(instance.holds) <= 1 or all(each.request.shares for each in instance.holds)

    def teardown(self) -> None:
        """Nothing is left when all has ended."""
        if not hasattr(self, "ledger"):
            return
        ledger = self.ledger
        for number in range(4):
            ledger.gone(f"i{number}")
        # An instance that goes can make another holder the first in line, who is then given one that is still there.
        late = [each for each in ledger.effects if isinstance(each, Binding)]
        for binding in [*(binding for binding, _ in self.flights), *late]:
            ledger.refused(binding)
        for number in range(NUMBERS):
            ledger.cancel(f"r{number}")
            ledger.ended(f"r{number}")
        assert ledger.is_empty
        assert not ledger.waiting.queues and not ledger._unwanted
        assert not ledger._behind.recalled and not ledger._behind.by_priority
        assert not any(ledger._partly._by_holds) and not ledger._partly.count


def shown(effect: object) -> Effect:
    if isinstance(effect, Binding):
        return ("bind", effect.request.id, effect.instance)
    if isinstance(effect, Recall):
        return ("recall", effect.request.id, effect.instance)
    if isinstance(effect, GiveBack):
        return ("give back", effect.request.id, effect.instance)
    assert isinstance(effect, Lost)
    return ("lost", effect.request.id, effect.instance)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=amount(100, 1000), stateful_step_count=60, deadline=None)
