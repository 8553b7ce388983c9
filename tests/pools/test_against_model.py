"""The queue against one that is obviously right, whatever is said to them and in whatever order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rota.pools import Binding, Offer, Queue, Request
from tests.amount import amount
from tests.pools.making import pair, pairs
from tests.pools.model import Model, Pair

FEATURES = st.frozensets(st.sampled_from(["big", "gpu"]))
KEYS = st.sampled_from(["", "", "main", "other"])
REQUESTS = st.builds(
    Request,
    id=st.integers(0, 15).map("r{}".format),
    holder=st.sampled_from("abc"),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    arrival=st.integers(0, 9).map(float),
    needs=FEATURES,
    prefers=KEYS,
)
INSTANCES = st.integers(0, 6).map("i{}".format)
OFFERS = st.builds(Offer, id=INSTANCES, provides=FEATURES, last=KEYS, since=st.integers(0, 5).map(float))


class AgainstModel(RuleBasedStateMachine):
    """Says the same to both, sense and nonsense, and compares all that can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.model = Model()
        self.open: dict[str, Binding] = {}
        """By instance, those whose outcome has not been told."""
        self.answered: list[Binding] = []

    def opened(self, bindings: list[Binding], expected: list[Pair]) -> None:
        assert pairs(bindings) == expected
        for binding in bindings:
            assert binding.instance not in self.open, "an instance is in two bindings"
            self.open[binding.instance] = binding

    def one(self, binding: Binding | None) -> list[Binding]:
        return [] if binding is None else [binding]

    def as_known(self, request: Request) -> Request:
        held = [each for each, _ in self.model.bound] + [flight.request for flight in self.model.flights]
        return next((each for each in held + self.model.waiting if each.id == request.id), request)

    def draw_open(self, data: st.DataObject) -> Binding:
        binding = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        self.answered.append(binding)
        return binding

    @rule(request=REQUESTS)
    def a_request_comes(self, request: Request) -> None:
        self.opened(self.one(self.queue.add(request)), self.model.add(request))

    @rule(offer=OFFERS)
    def an_instance_is_offered(self, offer: Offer) -> None:
        self.opened(self.one(self.queue.offer(offer)), self.model.offer(offer))

    @rule(instance=INSTANCES)
    def an_instance_is_withdrawn(self, instance: str) -> None:
        self.queue.withdraw(instance)
        self.model.withdraw(instance)

    @rule(instance=INSTANCES)
    def a_hold_ends(self, instance: str) -> None:
        ended = self.queue.released(instance)
        assert (ended and ended.id) == self.model.released(instance)

    @rule(request=REQUESTS)
    def a_request_is_cancelled(self, request: Request) -> None:
        assert self.queue.cancel(request.id) == self.model.cancel(request.id)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def a_binding_in_flight_is_cancelled(self, data: st.DataObject) -> None:
        request = self.open[data.draw(st.sampled_from(sorted(self.open)))].request.id
        assert self.queue.cancel(request) == self.model.cancel(request)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def a_binding_is_confirmed(self, data: st.DataObject) -> None:
        binding = self.draw_open(data)
        assert self.queue.confirmed(binding) == self.model.confirmed(binding.instance)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), taken=st.booleans())
    def a_race_is_lost(self, data: st.DataObject, taken: bool) -> None:
        binding = self.draw_open(data)
        self.opened(self.queue.lost(binding, instance_taken=taken), self.model.lost(binding.instance, taken=taken))

    @precondition(lambda self: self.answered)
    @rule(data=st.data(), taken=st.booleans())
    def an_outcome_is_told_again(self, data: st.DataObject, taken: bool) -> None:
        binding = data.draw(st.sampled_from(self.answered))
        held = (binding.request, binding.instance) in self.model.bound
        assert self.queue.lost(binding, instance_taken=taken) == []
        assert held or not self.queue.confirmed(binding)

    @rule(
        bound=st.lists(st.tuples(REQUESTS, INSTANCES), max_size=2),
        waiting=st.lists(REQUESTS, max_size=2, unique_by=lambda request: request.id),
        free=st.lists(OFFERS, max_size=2, unique_by=lambda offer: offer.id),
    )
    def something_stored_is_heard_of(
        self, bound: list[tuple[Request, str]], waiting: list[Request], free: list[Offer]
    ) -> None:
        # What is stored of a request does not change while the request is there.
        bound = [(self.as_known(request), instance) for request, instance in bound]
        found = self.queue.restore(bound=bound, waiting=waiting, free=free)
        bindings, surplus = self.model.restore(bound, waiting, free)
        assert [(request.id, instance) for request, instance in found.surplus] == surplus
        flying = {flight.instance: flight for flight in self.model.flights}
        new = set(pairs(found.bindings))
        for instance, binding in list(self.open.items()):
            if instance not in flying or flying[instance].request is not binding.request or pair(binding) in new:
                # Carried out, as it turns out, or void: either way it will not be told of any more.
                self.answered.append(self.open.pop(instance))
        self.opened(found.bindings, bindings)

    @rule(data=st.data())
    def it_is_made_anew_from_what_is_stored(self, data: st.DataObject) -> None:
        """The outcomes of what was in flight are in the store, whoever was told of them."""
        bound, free = list(self.model.bound), [place[2] for place in self.model.free]
        waiting = list(self.model.waiting)
        for flight in self.model.flights:
            fate = data.draw(st.sampled_from(["landed", "not yet", "taken"])) if flight.wanted else "taken"
            if fate == "landed":
                bound.append((flight.request, flight.instance))
            elif flight.wanted:
                waiting.append(flight.request)
            if fate == "not yet" and flight.offer is not None:
                free.append(flight.offer)
        facts = [data.draw(st.permutations(each)) for each in (bound, waiting, free)]
        self.queue, self.model = Queue(), Model()
        self.open, self.answered = {}, []
        found = self.queue.restore(bound=facts[0], waiting=facts[1], free=facts[2])  # type: ignore[arg-type]
        bindings, surplus = self.model.restore(bound, waiting, free)
        assert (found.surplus, surplus) == ([], [])
        self.opened(found.bindings, bindings)

    @precondition(lambda self: not self.open)
    @rule()
    def it_is_made_anew_and_goes_on_as_if_it_had_not_been(self) -> None:
        """With nothing in flight, the model knows nothing of the restart."""
        self.model.free.sort(key=lambda place: (place[2].since, place[2].id))
        self.model.free = [(place[0], number, place[2]) for number, place in enumerate(self.model.free)]
        self.model.number = len(self.model.free)
        self.queue, self.answered = Queue(), []
        found = self.queue.restore(
            bound=self.model.bound, waiting=self.model.waiting, free=[place[2] for place in self.model.free]
        )
        assert found == ([], [])

    @invariant()
    def they_look_the_same(self) -> None:
        view, model = self.queue.view, self.model
        order = model.in_turn()
        assert view.waiting() == order
        assert [view.position(id_) for id_ in order] == list(range(len(order)))
        assert (view.depth, view.free) == (len(order), len(model.free))
        assert (view.in_flight, view.bound) == (len(model.flights), len(model.bound))
        for holder in "abc":
            assert view.bound_of(holder) == model.has(holder)
            assert view.depth_of(holder) == sum(request.holder == holder for request in model.waiting)
        assert view.depths() == {holder: depth for holder in "abc" if (depth := view.depth_of(holder))}
        assert view.bounds() == {holder: has for holder in "abc" if (has := view.bound_of(holder))}
        needs = [request.needs for request in model.waiting]
        assert view.unmet() == {each: needs.count(each) for each in needs}
        for request, instance in model.bound:
            assert view.instance_of(request.id) == instance
            assert view.request_of(instance) == request

        for flight in model.flights:
            assert view.request_of(flight.instance) is None

    @invariant()
    def none_is_held_twice(self) -> None:
        instances = [instance for _, instance in self.model.bound] + list(self.open)
        assert len(instances) == len(set(instances))
        requests = [request.id for request, _ in self.model.bound]
        assert len(requests) == len(set(requests))


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=amount(30, 500), stateful_step_count=50, deadline=None)
