"""A store, runners and an executor, as a real caller of the ledger would be.

Decisions are written some time after they are made, and their results told some time after that, wrongly, or never.
An exclusive hold is stored with the instance (`assigned`), a shared one with the request (`running on`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rota.pools import Binding, GiveBack, Ledger, Lost, Opened, Recall, Request, State

STRANGER = "stranger"
"""Whoever takes instances without asking the ledger."""


@dataclass
class Instance:
    """An instance in the store, with its runner."""

    id: str
    born: int = 0
    """Which one of its name it is. A binding that was decided for an earlier one is not written."""
    alive: bool = True
    assigned: str = ""
    clean: bool = True
    handed: list[str] = field(default_factory=list)
    running: str = ""
    done: list[str] = field(default_factory=list)
    """Requests whose end the executor has not acknowledged."""

    def has(self, id_: str) -> bool:
        return id_ in self.handed or id_ == self.running or id_ in self.done


@dataclass
class Stored:
    """A request in the store."""

    request: Request
    on: str = ""
    """The instance that it runs on, if it shares it."""
    attempt: int = 1
    cancelled: bool = False


@dataclass
class World:
    ledger: Ledger = field(default_factory=Ledger)
    instances: dict[str, Instance] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=dict)
    decided: list[tuple[Binding, int]] = field(default_factory=list)
    """Bindings that are to be written, and for which one of the instances of that name."""
    written: list[tuple[Binding, str]] = field(default_factory=list)
    """Bindings whose result (bound, lost, refused) has not been told."""
    told: list[Binding] = field(default_factory=list)
    """Bindings whose result has been told, of this ledger."""
    ends: list[tuple[str, str]] = field(default_factory=list)
    """Requests whose end is to be written, and where."""
    recalls: list[Recall] = field(default_factory=list)
    begun: Counter[tuple[str, int]] = field(default_factory=Counter)

    # The executor.

    def take(self) -> None:
        """Take the effects of an event."""
        while effects := list(self.ledger.effects):
            self.ledger.effects.clear()
            made = [each for each in effects if isinstance(each, Binding)]
            if len(made) == 1:
                # Of several, what their holders had when each was decided is not known any more.
                self.check_order(made[0].request)
            self.decided += [(each, self.instances[each.instance].born) for each in made]
            for each in effects:
                if isinstance(each, Recall):
                    self.recalls.append(each)
                elif isinstance(each, GiveBack):
                    self.ends.append((each.request.id, each.instance))
                elif isinstance(each, Lost):
                    self.lose(each)

    def check_order(self, request: Request) -> None:
        """Nobody that waits is before the one that was served."""
        has = self.ledger.bounds()
        key = (-request.priority, has[request.holder] - 1, request.arrival, request.id)
        for id_ in list(self.ledger.waiting.in_order()):
            other = self.stored[id_].request
            had = has.get(other.holder, 0) - (other.holder == request.holder)
            assert key < (-other.priority, had, other.arrival, other.id), f"{id_} was overtaken by {request.id}"

    def lose(self, lost: Lost) -> None:
        """A request has lost its instance: it is tried again, unless it was cancelled."""
        stored = self.stored[lost.request.id]
        if stored.on == lost.instance:
            stored.on, stored.attempt = "", stored.attempt + 1
        if stored.cancelled:
            self.forget(lost.request.id)
        else:
            self.ledger.request(stored.request)

    def write(self, binding: Binding, born: int) -> None:
        self.decided.remove((binding, born))
        request, instance = binding.request, self.instances[binding.instance]
        stored = self.stored.get(request.id)
        is_free = instance.alive and not instance.assigned and instance.born == born
        if stored is None or stored.cancelled:
            result = "refused"
        elif stored.on or self.assigned_to(request.id) or not is_free:
            result = "lost"
        else:
            result = "bound"
            if request.shares:
                stored.on = instance.id
            else:
                instance.assigned = request.id
        self.written.append((binding, result))

    def assigned_to(self, id_: str) -> str:
        return next((each.id for each in self.instances.values() if each.assigned == id_), "")

    def tell(self, binding: Binding, result: str) -> None:
        self.written.remove((binding, result))
        self.told.append(binding)
        if result == "refused":
            self.ledger.refused(binding)
        elif result == "lost":
            self.ledger.lost(binding)
        elif self.ledger.bound(binding):
            self.hand_on(binding.request.id)
        self.take()
        self.look(binding.instance)

    def tell_wrongly(self, binding: Binding, result: str) -> None:
        """The answer to a write did not come through."""
        self.written.remove((binding, result))
        self.told.append(binding)
        self.ledger.lost(binding)
        self.take()

    def tell_again(self, binding: Binding, result: str) -> None:
        """A result comes once more, or another one does: the first counts, and nothing changes."""
        ids = [binding.request.id, *self.ledger.waiting.in_order()]
        before = [self.ledger.state(id_) for id_ in ids], self.ledger.in_flight, self.ledger.bounds()
        if result == "bound":
            self.ledger.bound(binding)
        elif result == "lost":
            self.ledger.lost(binding)
        else:
            self.ledger.refused(binding)
        assert self.ledger.effects == []
        assert before == ([self.ledger.state(id_) for id_ in ids], self.ledger.in_flight, self.ledger.bounds())

    def hand_on(self, id_: str) -> None:
        stored = self.stored[id_]
        if stored.on and not self.instances[stored.on].has(id_):
            self.instances[stored.on].clean = False
            self.instances[stored.on].handed.append(id_)

    def look(self, id_: str) -> None:
        """Bring the ledger to know what is stored of an instance."""
        instance = self.instances[id_]
        if not instance.alive:
            self.ledger.gone(id_)
            self.take()
            self.sweep()
        for stored in [each for each in self.stored.values() if each.on == id_]:
            self.look_at(stored)
        assigned = self.stored.get(instance.assigned)
        if assigned is not None and (assigned.cancelled or not self.ledger.hold(assigned.request, id_)):
            self.end_exclusive(instance.assigned, id_)
        elif instance.assigned and assigned is None and instance.assigned != STRANGER:
            instance.assigned = ""
        self.take()
        for held in self.ledger.holders_of(id_):
            known = self.stored.get(held)
            if known is not None and not known.request.shares and instance.assigned != held:
                self.ledger.taken(id_)
        if instance.alive:
            free = not instance.assigned
            opened = Opened.CLOSED if not free else Opened.WHOLE if instance.clean else Opened.JOBS
            self.ledger.open(id_, opened, reopened=Opened.JOBS, slots=8)
        self.take()

    def sweep(self) -> None:
        """Forget cancelled requests whose instance died before their end was written."""
        for id_, stored in list(self.stored.items()):
            if stored.cancelled and not stored.on and not self.assigned_to(id_) and self.ledger.state(id_) is None:
                self.forget(id_)

    def look_at(self, stored: Stored) -> None:
        """Bring the ledger to know of a stored request that it runs."""
        id_, instance = stored.request.id, self.instances[stored.on]
        if not instance.alive:
            if self.ledger.instance_of(id_) is None and self.ledger.state(id_) is not State.ENDING:
                stored.on, stored.attempt = "", stored.attempt + 1
                if stored.cancelled and self.ledger.state(id_) is None:
                    self.forget(id_)
        elif stored.cancelled:
            if (id_, instance.id) not in self.ends:
                self.ledger.ending(id_, frees=True)
                self.ends.append((id_, instance.id))
        elif self.ledger.hold(stored.request, instance.id) and self.ledger.state(id_) is State.HELD:
            self.hand_on(id_)
        self.take()

    def end_exclusive(self, id_: str, instance: str) -> None:
        if (id_, instance) not in self.ends:
            self.ledger.ending(id_, frees=False)
            self.ends.append((id_, instance))

    def write_end(self, id_: str, instance_id: str) -> None:
        """The end of a hold is written, and that is told."""
        self.ends.remove((id_, instance_id))
        instance, stored = self.instances[instance_id], self.stored.get(id_)
        if instance.assigned == id_:
            instance.assigned = ""
        self.acknowledge(instance, id_)
        if stored is not None and (stored.cancelled or stored.on == instance_id or not stored.request.shares):
            self.forget(id_)
        self.ledger.ended(id_)
        self.take()
        self.look(instance_id)

    def fail_end(self, id_: str, instance_id: str) -> None:
        """The end of an exclusive hold is not written; it is tried again when the instance is looked at."""
        if self.instances[instance_id].assigned == id_:
            self.ends.remove((id_, instance_id))
            self.ledger.held_again(id_)
            self.take()

    def acknowledge(self, instance: Instance, id_: str) -> None:
        """Whatever a runner has of a request, it drops."""
        instance.handed = [each for each in instance.handed if each != id_]
        instance.done = [each for each in instance.done if each != id_]
        if instance.running == id_:
            instance.running = ""

    def forget(self, id_: str) -> None:
        self.stored.pop(id_, None)

    def reset(self, id_: str) -> None:
        """An instance that nobody uses is made clean, for any request."""
        instance = self.instances[id_]
        in_store = instance.assigned or any(each.on == id_ for each in self.stored.values())
        if instance.alive and not instance.clean and not in_store and not self.ledger.is_used(id_):
            instance.clean = True
            self.look(id_)

    def restart(self) -> None:
        """Forget all decisions, and the results that were not reported."""
        self.decided, self.written, self.told, self.ends, self.recalls = [], [], [], [], []
        self.ledger = Ledger()
        self.ledger.ran(0.001)
        for stored in list(self.stored.values()):
            id_ = stored.request.id
            on = stored.on or self.assigned_to(id_)
            if on and self.instances[on].alive and not stored.cancelled:
                assert self.ledger.hold(stored.request, on), "what is stored does not contradict itself"
                self.hand_on(id_)
            elif not on and stored.cancelled:
                self.forget(id_)
        for stored in list(self.stored.values()):
            if not stored.cancelled:
                self.ledger.request(stored.request)
        self.take()
        for id_, instance in self.instances.items():
            self.look(id_)
            for each in instance.done:
                self.report_end(each, id_)

    # Runners.

    def able_to_begin(self) -> list[str]:
        return [each.id for each in self.instances.values() if each.handed and not each.running]

    def busy(self) -> list[str]:
        return [each.id for each in self.instances.values() if each.running]

    def begin(self, id_: str) -> None:
        instance = self.instances[id_]
        if instance.alive and instance.handed and not instance.running:
            instance.running = instance.handed.pop(0)
            assert not instance.assigned, "a request runs where another holds the instance alone"
            self.begun[instance.running, self.stored[instance.running].attempt] += 1

    def finish(self, id_: str) -> None:
        instance = self.instances[id_]
        if instance.running:
            ended, instance.running = instance.running, ""
            instance.done.append(ended)
            self.report_end(ended, id_)

    def report_end(self, id_: str, instance: str) -> None:
        if (id_, instance) not in self.ends:
            self.ledger.ending(id_, frees=True)
            self.ledger.ran(0.001)
            self.ends.append((id_, instance))
            self.take()

    def answer(self, recall: Recall) -> None:
        """A runner returns a request that it has not begun, and that is stored."""
        self.recalls.remove(recall)
        id_ = recall.request.id
        instance, stored = self.instances[recall.instance], self.stored.get(id_)
        if stored is not None and id_ in instance.handed and not stored.cancelled:
            instance.handed.remove(id_)
            stored.on = ""
            assert self.ledger.returned(id_, recall.instance) is not None
            self.take()

    # What others do.

    def come(self, request: Request) -> None:
        self.stored[request.id] = Stored(request)
        self.ledger.request(request)
        self.take()

    def cancel(self, id_: str) -> None:
        """A request is cancelled, wherever it is."""
        stored = self.stored[id_]
        stored.cancelled = True
        state = self.ledger.cancel(id_)
        on = stored.on or self.assigned_to(id_)
        if state is State.HELD:
            assert on, "a hold that is known is stored"
            if stored.request.shares:
                self.ledger.ending(id_, frees=False)
                self.ends.append((id_, on))
            else:
                self.end_exclusive(id_, on)
        elif not on and state is not State.ENDING:
            self.forget(id_)
        self.take()

    def release(self, id_: str) -> None:
        """A claim that has an instance gives it back."""
        if self.ledger.state(id_) is State.HELD and not self.stored[id_].request.shares:
            self.cancel(id_)

    def die(self, id_: str) -> None:
        instance = self.instances[id_]
        instance.alive, instance.assigned, instance.running = False, "", ""
        instance.handed, instance.done = [], []
        self.look(id_)

    def revive(self, id_: str) -> None:
        """A new one comes under the name of one that died, when nothing is stored to run on the old one."""
        instance = self.instances[id_]
        if not instance.alive and not any(each.on == id_ for each in self.stored.values()):
            instance.alive = instance.clean = True
            instance.born += 1
        self.look(id_)

    def settle(self) -> None:
        """All goes well until nothing is under way."""
        for instance in self.instances.values():
            if instance.assigned == STRANGER:
                instance.assigned = ""
        for _ in range(4):
            self.step()

    def step(self) -> None:
        for binding, born in list(self.decided):
            self.write(binding, born)
        for binding, result in list(self.written):
            self.tell(binding, result)
        for recall in list(self.recalls):
            self.answer(recall)
        for id_ in self.instances:
            self.revive(id_)
            self.begin(id_)
            self.finish(id_)
        for each in list(self.ends):
            if each in self.ends:
                self.write_end(*each)
        for id_ in self.instances:
            self.look(id_)
            self.reset(id_)
