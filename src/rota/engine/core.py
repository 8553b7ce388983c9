"""The state machine of the scheduler, without a loop, threads or I/O: runnable nodes, waits, and the fixpoint.

`take` returns the next node to run and `finish` takes its outcome; `seed`, `arrive`, `status` and `fire` report what
happened meanwhile. The contract is in the package's docstring; `drain` has its end.

*No lost wake-up.* While bodies run, each advance is noted with a number. When a body ends as blocked, the advances
since its start are checked: if one of the ids it would wait for is among them, it runs again instead of being
parked. Nothing is noted while nothing runs, so ids without waiters cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable

from rota.engine.advances import Advances
from rota.engine.budget import BUDGET, Budget
from rota.engine.clock import Clock
from rota.engine.node import DONE, FAILED, FORCE, GONE, PARKED, RUNNABLE, RUNNING, SLEEPING, UNBOUNDED, Lane, Node
from rota.engine.outcome import Blocked, Done, Failed, NotConverged, Outcome, RequeueAfter, Status
from rota.engine.pacing import RELOOKS_PER_SECOND_MAX, Slots, jittered, relook_seconds
from rota.engine.reruns import Reruns
from rota.engine.timers import Timers
from rota.engine.waiters import Waits, add, once

ENDED: tuple[Status, ...] = ("Failed", "Skipped")
"""The statuses of a node that ended without being ready."""
_ARRIVED, _READY, _ENDED = range(3)
_UNKNOWN = object()
_NOT_RUN = Blocked(())
_UNCOUNTED = -1
_FORGOTTEN = object()


class Core(Waits):
    """The nodes of a scheduler, and the transitions of their states."""

    def __init__(
        self,
        clock: Clock,
        *,
        live: bool = False,
        lane_of: Callable[[str], Hashable] | None = None,
        lane_limit: Callable[[Hashable], int] = lambda lane: UNBOUNDED,
        reruns: bool = False,
        budget: int = BUDGET,
    ) -> None:
        super().__init__()
        self.clock = clock
        self.live = live
        self.nodes: dict[str, Node] = {}
        self.running = 0
        self.sleeping = 0
        self.queued = 0
        self.timed = False
        """True if the time at which nodes become runnable is noted."""
        self.level = 0
        """The highest drain level of this run."""
        self.budget = Budget(budget)
        self._lane_of = lane_of
        self._lane_limit = lane_limit
        self.lanes: dict[Hashable, Lane] = {}
        self._ready: deque[Lane] = deque()
        self.reruns = Reruns() if reruns else None
        self._notes = Advances()
        self._concurrent: dict[Node, None] = {}
        self._progress = 0
        self._timers = Timers()
        self._relooks = Slots(RELOOKS_PER_SECOND_MAX)
        self._first: set[Node] = set()
        self._then: list[Node] = []
        self.forced: dict[str, frozenset[str]] = {}
        """By forced node, the ids of its cycle that it waited for."""

    # Events from outside.

    def seed(self, ids: Iterable[str], after: Callable[[str], Iterable[str]] | None = None) -> None:
        """Add nodes, which run in the order of their ids. Known ones are left alone.

        `after` returns the known needs of a node: it does not run before all of them are ready, or one has failed or
        was skipped; but when serving it runs now and then, like every parked node.
        """
        wanted = sorted(set(ids))
        needs = [once(after(id_)) for id_ in wanted] if after else None
        others = bool(self.nodes)
        now = self.clock.now()
        for i, id_ in enumerate(wanted):
            if others and id_ in self.nodes:
                self._seed_again(self.nodes[id_])
                continue
            node = self._new(id_, None)
            on = needs[i] if needs else ()
            if on:
                node.on, node.left = on, _UNCOUNTED
                # Needs that run before the node are likely to be ready when it runs: they are checked then.
                if max(on) > id_:
                    if not others:
                        self._park_unrun(node, on, now)
                        continue
                    if self._must_wait(node):
                        continue
            node.state = RUNNABLE
            self._queue(node)

    def _park_unrun(self, node: Node, on: tuple[str, ...], now: float) -> None:
        """Park a node before its first run, until all of these ids are ready."""
        waiting = self.waiting
        for id_ in on:
            there = waiting.get(id_)
            if there is None:
                waiting[id_] = node
            elif type(there) is list:
                there.append(node)
            else:
                add(waiting, id_, node)
        node.on, node.left = on, len(on)
        node.since = now
        node.outcome = _NOT_RUN
        node.state = PARKED
        self.parked += 1
        if self.live:
            self._relook_later(node, now)

    def _seed_again(self, node: Node) -> None:
        if node.content is _FORGOTTEN:
            node.content = None
            node.woken = True

    def _must_wait(self, node: Node) -> bool:
        """Park a seeded node under its missing needs. Returns False if it can run."""
        needs, node.on, node.left = node.on, (), 0
        nodes = self.nodes
        missing = []
        for id_ in needs:
            need = nodes.get(id_)
            if need is None or need.status != "Ready":
                if need is not None and need.status in ENDED:
                    return False
                missing.append(id_)
        if not missing:
            return False
        if node.state == RUNNABLE:
            self.queued -= 1
        self._park_unrun(node, tuple(missing), self.clock.now())
        return True

    def arrive(self, id_: str, content: Hashable = None, *, runnable: bool = True) -> None:
        """Report a new or changed thing. `content` identifies its state; None is always new."""
        node = self.nodes.get(id_)
        if node is not None:
            if content is None or content != node.content:
                node.content = content
                self._changed(node)
        elif runnable:
            if self.reruns is not None:
                self.reruns.arrived()
            self._progress += 1
            self.enqueue(self._new(id_, content))
            self._wake_waiters(id_, _ARRIVED)
        else:
            self._data(id_, content)

    def _data(self, id_: str, content: Hashable) -> None:
        if id_ not in self.waiting and id_ not in self.recovering:
            if self.running:
                self._notes.add(id_, True)
            if self.reruns is not None:
                self.reruns.data(id_, content, known=False)
            return
        known = content is not None and self._contents.get(id_, _UNKNOWN) == content
        if self.reruns is not None:
            self.reruns.data(id_, content, known=known)
        if known:
            return
        if not self.live and self.budget.is_data_progress(id_):
            self._progress += 1
        self._contents[id_] = content
        self._wake_waiters(id_, _READY)

    def status(self, id_: str, status: Status) -> None:
        """Set the status of a node. All but Pending wake those that wait for it."""
        node = self.nodes.get(id_)
        if node is not None and node.status != status:
            self._flip(node, status)
        if status == "Ready":
            self._wake_waiters(id_, _READY)
        elif status in ENDED:
            self._wake_waiters(id_, _ENDED)

    def _flip(self, node: Node, status: Status) -> None:
        node.status = status
        if not self.live and self.budget.is_flip_progress(node):
            self._progress += 1

    def forget(self, id_: str) -> None:
        """Remove a node; a running one when its run is over."""
        node = self.nodes.get(id_)
        if node is None:
            return
        if node.state == RUNNING:
            node.content = _FORGOTTEN
        else:
            self._remove(node)

    def remember(self, id_: str) -> None:
        """Cancel the removal of a running node."""
        node = self.nodes.get(id_)
        if node is not None and node.content is _FORGOTTEN:
            node.content = None

    def _remove(self, node: Node) -> None:
        self._leave(node)
        self._let_go(node)
        if not self.live:
            self.budget.forget(node)
            self.forced.pop(node.id, None)
        if self.reruns is not None:
            self.reruns.forget(node)
        del self.nodes[node.id]
        node.state = GONE
        node.due = None
        self._after_first(node)

    def pending(self, id_: str) -> bool:
        """Report whether an id is a node that may still advance."""
        node = self.nodes.get(id_)
        return node is not None and (node.state < PARKED or node.state == SLEEPING or self.is_hopeful(node))

    @staticmethod
    def is_hopeful(node: Node) -> bool:
        """Report whether a parked node may still advance."""
        return node.state == PARKED and node.level < FORCE

    # Running.

    def take(self) -> Node | None:
        """Return the next node to run, which is then running until `finish`."""
        ready = self._ready
        while ready:
            lane = ready[0]
            node = lane.ready.popleft()
            if node.state != RUNNABLE or (node.left < 0 and self._must_wait(node)):
                if not lane.ready:
                    ready.popleft()
                    lane.is_queued = False
                continue
            lane.running += 1
            if not lane.ready or lane.running >= lane.limit:
                ready.popleft()
                lane.is_queued = False
            elif len(ready) > 1:
                ready.rotate(-1)
            self.queued -= 1
            self.running += 1
            node.state = RUNNING
            node.woken = False
            if node.due is not None:
                node.due, node.has_slot = None, False
            node.runs += 1
            node.started = self._notes.number
            node.progress = self._progress
            if self.reruns is not None:
                self.reruns.began(node)
            return node
        return None

    def has_ready(self) -> bool:
        """Report whether `take` may return a node."""
        return bool(self._ready)

    def note_concurrent(self, node: Node) -> None:
        """Note that a node goes on running while others run."""
        self._concurrent[node] = None

    def finish(self, node: Node, outcome: Outcome) -> None:
        """Take the outcome of a node's run."""
        self.running -= 1
        lane = node.lane
        lane.running -= 1
        if lane.ready and not lane.is_queued:
            lane.is_queued = True
            self._ready.append(lane)
        kind = type(outcome)
        if node.content is _FORGOTTEN:
            self._remove(node)
        elif kind is Blocked:
            self._park(node, outcome)  # type: ignore[arg-type]
        elif kind is Done:
            if node.on:
                self._let_go(node)
            node.level = 0
            node.state = DONE
            node.outcome = outcome
            status = outcome.status  # type: ignore[union-attr]
            if self.reruns is None:
                self._progress += 1
            else:
                self._note_end(node, status)
            if status == "Ready":
                node.status = status
                self.forced.pop(node.id, None)
                self._wake_waiters(node.id, _READY)
            elif status != "Pending":
                node.status = status
                self._wake_waiters(node.id, _ENDED)
            if node.woken or self.live:
                self._after_end(node)
        elif kind is Failed:
            self._fail(node, outcome)  # type: ignore[arg-type]
        else:
            assert isinstance(outcome, RequeueAfter), f"{node.id}: {outcome!r} is no outcome"
            self._sleep(node, outcome)
        if self._first:
            self._after_first(node)
        if self._concurrent or self._notes.advanced:
            self._drop_old_notes(node)

    def _drop_old_notes(self, node: Node) -> None:
        self._concurrent.pop(node, None)
        if not self.running:
            self._notes.clear()
        elif self._concurrent:
            self._notes.forget_before(next(iter(self._concurrent)))

    def _park(self, node: Node, outcome: Blocked) -> None:
        now = self.clock.now()
        on = once(outcome.on)
        if not _waits_on(node, on):
            node.since = now
        self._park_under(node, on)
        node.left = len(on) if outcome.every else 0
        node.outcome = outcome
        if node.status == "Failed":
            self._undo_failure(node)
            if node.state != PARKED:
                return  # it waits for itself too
        if node.woken or (self._notes.number != node.started and self._notes.advanced_since(node.started, on)):
            self._wake_parked(node)
        elif self.live:
            self._relook_later(node, now)

    def _undo_failure(self, node: Node) -> None:
        """Make a failed node pending again, and wake the nodes that failed because of it."""
        node.status = "Pending"
        self._wake_waiters(node.id, _ARRIVED)

    def finish_and_mark(self, node: Node, outcome: Outcome, *, again: bool) -> None:
        """Take the outcome of a node's run; `again`: it runs again at the fixpoint if something has arrived."""
        assert self.reruns is not None
        if self.reruns.ended(node, again):
            self._progress += 1
        self.finish(node, outcome)

    def _note_end(self, node: Node, status: Status) -> None:
        """Count the end of a node as progress. After a free rerun only another status counts."""
        if self.reruns is None or not self.reruns.is_free(node):
            self._progress += 1
        elif status not in ("Pending", node.status):
            self._flip(node, status)

    def _fail(self, node: Node, outcome: Failed) -> None:
        self._end(node, outcome, FAILED)
        node.status = "Failed"
        self._wake_waiters(node.id, _ENDED)
        if outcome.because:
            node.on = once(outcome.because)
            for id_ in node.on:
                add(self.recovering, id_, node)
            if self._notes.number != node.started and self._notes.hope_since(node.started, node.on):
                node.woken = True
        self._after_end(node)

    def _end(self, node: Node, outcome: Outcome, state: int) -> None:
        if node.on:
            self._let_go(node)
        node.level = 0
        node.state = state
        node.outcome = outcome
        self._note_end(node, "Failed")

    def _after_end(self, node: Node) -> None:
        """Queue, schedule or forget a node that has ended."""
        outcome = node.outcome
        if node.woken:
            self.enqueue(node, charge=True)
        elif self.live:
            if isinstance(outcome, Done) and outcome.again_after is not None:
                self._at(node, self.clock.now() + outcome.again_after)
            elif node.on:
                node.since = self.clock.now()
                self._relook_later(node, node.since)
            elif node.content is None:
                self._remove(node)

    def _sleep(self, node: Node, outcome: RequeueAfter) -> None:
        self._let_go(node)
        node.outcome = outcome
        node.state = SLEEPING
        if node.status == "Failed":
            self._undo_failure(node)
        self.sleeping += 1
        node.since = self.clock.now()
        if node.woken:
            self.enqueue(node, charge=True)
        else:
            self._at(node, node.since + max(0.0, outcome.seconds))

    # Waking.

    def _changed(self, node: Node) -> None:
        if self.reruns is not None:
            self.reruns.arrived()
        if node.state == RUNNING:
            node.woken = True
        elif node.state == PARKED:
            self._wake_parked(node)
        elif node.state != RUNNABLE:
            self.enqueue(node, charge=True)

    def _wake_waiters(self, id_: str, how: int) -> None:
        """Wake the nodes that wait for an id."""
        if self.running:
            self._notes.add(id_, how != _ENDED)
        waiters = self.waiting.get(id_)
        if waiters is not None:
            each = (waiters,) if type(waiters) is Node else waiters
            if how == _READY:
                self._wake_waiters_of_ready(id_, each)  # type: ignore[arg-type]
            else:
                for node in list(each):  # type: ignore[arg-type]
                    self._wake_waiter(node, how)
        if how != _ENDED and self.recovering:
            # Also if the id has only arrived: a node that failed because it was missing needs another reason.
            blamed = self.recovering.get(id_)
            if blamed is not None:
                for node in (blamed,) if type(blamed) is Node else list(blamed):  # type: ignore[arg-type]
                    self.enqueue(node, charge=True)

    def _wake_waiters_of_ready(self, id_: str, waiters: Iterable[Node]) -> None:
        """Wake the waiters of a ready id. Those that wait for several are no longer parked under this one."""
        del self.waiting[id_]
        stay: dict[Node, None] | None = None
        progress = -1 if self.live else self._progress
        for node in waiters:
            if node.left and node.state == PARKED:
                node.left -= 1
                if not node.left:
                    node.on = ()
                    if node.progress == progress:
                        self._wake_parked(node)
                    else:
                        self.parked -= 1
                        node.state = RUNNABLE
                        self._queue(node)
            else:
                self._wake_waiter(node, _READY)
                if id_ in node.on:
                    if stay is None:
                        stay = {}
                    stay[node] = None
        if stay is not None:
            self.waiting[id_] = stay
        elif self._contents and id_ not in self.recovering:
            self._contents.pop(id_, None)

    def _wake_waiter(self, node: Node, how: int) -> None:
        if node.state == RUNNING:
            # A forced node fails because of its needs, whether or not those have failed first.
            if node.level < FORCE or how != _ENDED:
                node.woken = True
        elif node.state == PARKED and not (node.left and how == _ARRIVED):
            self._wake_parked(node)

    def _wake_parked(self, node: Node) -> None:
        if node.progress == self._progress and not self.live:
            # Without progress since its last run, nodes may be waking each other in a cycle.
            self.enqueue(node, charge=True)
            return
        self.parked -= 1
        if node.left:
            self._let_go_if_partly(node)
        node.state = RUNNABLE
        self._queue(node)

    def _leave(self, node: Node) -> None:
        """Remove a node from the counts of its state. It stays parked under its ids while it runs again."""
        if node.state == PARKED:
            self.parked -= 1
            self._let_go_if_partly(node)
        elif node.state == SLEEPING:
            self.sleeping -= 1
        elif node.state == RUNNABLE:
            self.queued -= 1
        elif node.state == FAILED:
            self._let_go(node)

    def enqueue(self, node: Node, *, charge: bool = False) -> None:
        """Make a node runnable; `charge`: if its budget allows it."""
        if charge and not self.live and not self._charge(node):
            return
        if node.state != GONE:
            self._leave(node)
        node.state = RUNNABLE
        self._queue(node)

    def _charge(self, node: Node) -> bool:
        """Charge a node for one more run. Returns False, and fails the node, if its budget is spent."""
        if not self.budget.charge(node):
            self._give_up(node)
            return False
        if self.reruns is not None:
            self.reruns.charged(node)
        return True

    def _queue(self, node: Node) -> None:
        self.queued += 1
        if self.timed:
            node.queued = self.clock.now()
        if self._first and node not in self._first:
            self._then.append(node)
            return
        lane = node.lane
        lane.ready.append(node)
        if not lane.is_queued and lane.running < lane.limit:
            lane.is_queued = True
            self._ready.append(lane)

    def _after_first(self, node: Node) -> None:
        """Queue the other runnable nodes once all nodes with a raised level have run.

        So the order among the raised ones does not matter.
        """
        self._first.discard(node)
        if not self._first and self._then:
            then, self._then = self._then, []
            self.queued -= len(then)
            for one in then:
                self._queue(one)

    def _give_up(self, node: Node) -> None:
        before = node.outcome
        if node.state == FAILED and isinstance(before, Failed) and isinstance(before.error, NotConverged):
            return  # its waiters were woken already
        self._leave(node)
        error = self.budget.spent(node)
        self._end(node, Failed(reason="NotConverged", message=str(error), error=error), FAILED)
        node.status = "Failed"
        self._wake_waiters(node.id, _ENDED)

    def _new(self, id_: str, content: Hashable) -> Node:
        name = self._lane_of(id_) if self._lane_of else None
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name, max(1, self._lane_limit(name)))
        node = self.nodes[id_] = Node(id_, lane, content)
        return node

    # The end.

    def raise_level(self, node: Node, level: int) -> None:
        """Run a parked node again at a drain level."""
        node.level = level
        self.level = max(self.level, level)
        self._first.add(node)
        self.enqueue(node)

    # Time.

    def _at(self, node: Node, due: float) -> None:
        self._timers.set(node, due, len(self.nodes))

    def _relook_later(self, node: Node, now: float) -> None:
        self._at(node, now + jittered(relook_seconds(now - node.since)))

    def next_due(self) -> float | None:
        """Return the time of the next `fire`; None if there is none."""
        return self._timers.next_due()

    def fire(self) -> None:
        """Make nodes runnable that have come due."""
        now = self.clock.now()
        for node in self._timers.pop_due(now):
            if node.state in (PARKED, FAILED):
                slot = now if node.has_slot else self._relooks.reserve(now)
                node.has_slot = slot > now
                if node.has_slot:
                    self._at(node, slot)
                else:
                    self.enqueue(node)
            elif node.state in (SLEEPING, DONE):
                self.enqueue(node, charge=True)


def _waits_on(node: Node, on: tuple[str, ...]) -> bool:
    """Report whether a node still waits for the same ids."""
    before = node.outcome
    return type(before) is Blocked and (before.on == on or set(before.on) == set(on))
