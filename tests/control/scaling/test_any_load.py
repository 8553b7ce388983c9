"""A pool that scales by demand, under any load."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rota.api.pool import PoolScale
from rota.control.instances import is_ready
from rota.control.scaling.planner import BATCHES
from tests.amount import amount
from tests.control.scaling.load import Pool


@st.composite
def scales(draw: st.DrawFn) -> PoolScale:
    most = draw(st.integers(1, 6))
    return PoolScale(
        min=draw(st.integers(0, most)),
        max=most,
        target_idle=draw(st.integers(0, 3)),
        scale_down_seconds=draw(st.sampled_from([0, 7, 60, 300])),
    )


class Loads(RuleBasedStateMachine):
    """Every order in which requests, crashes, restarts and time can come. The pool checks itself at each look."""

    pool: Pool

    @initialize(scale=scales())
    def begin(self, scale: PoolScale) -> None:
        self.pool = Pool(scale)

    @rule(count=st.integers(1, 9))
    def requests_come(self, count: int) -> None:
        self.pool.come(count)

    @rule(count=st.integers(1, 4))
    def holders_leave(self, count: int) -> None:
        self.pool.leave(count)

    @rule(count=st.integers(1, 9))
    def some_give_up(self, count: int) -> None:
        self.pool.give_up(count)

    @rule(ordinal=st.integers(0, 5))
    def one_keeps_crashing(self, ordinal: int) -> None:
        self.pool.crash(f"agents-{ordinal}")

    @rule()
    def crashes_are_over(self) -> None:
        self.pool.crashed.clear()

    @rule()
    def it_is_looked_at(self) -> None:
        self.pool.step()

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        self.pool.settle()

    @rule()
    def somebody_else_sees_to_it(self) -> None:
        self.pool.restart()

    @rule(seconds=st.sampled_from([0.3, 5.0, 8.0, 59.0, 66.0, 290.0, 340.0]))
    def time_passes(self, seconds: float) -> None:
        self.pool.settle()
        self.pool.pass_time(seconds)

    def teardown(self) -> None:
        """From wherever this has come to, all demand is met as far as it may be, and then what is idle goes."""
        if not hasattr(self, "pool"):
            return
        pool, scale = self.pool, self.pool.scale
        pool.crashed.clear()
        pool.settle()
        assert pool.waiting == 0 or len(pool.held) == scale.max, "some wait though there could be more"
        pool.give_up(pool.waiting)
        pool.leave(len(pool.held))
        pool.settle()
        pool.pass_time(2 * (1 + 1 / BATCHES) * scale.scale_down_seconds + 1)
        assert len(pool.instances) == min(scale.max, max(scale.min, scale.target_idle))


TestLoads = Loads.TestCase
TestLoads.settings = settings(
    max_examples=amount(80, 2_000), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@given(scales(), st.integers(0, 8), st.integers(0, 3), st.floats(0.5, 20.0))
@settings(max_examples=amount(25, 500), deadline=None)
def test_a_load_that_comes_and_goes_makes_and_ends_nothing(
    scale: PoolScale, busy: int, more: int, pause: float
) -> None:
    """Holders let go and others come, again and again, within the time that an idle instance has."""
    pool = Pool(scale)
    pool.come(busy + more)
    pool.settle()
    made, taken = pool.made, pool.taken
    pause = min(pause, scale.scale_down_seconds / 2)
    for _ in range(60 if scale.scale_down_seconds else 0):
        pool.leave(more)
        pool.pass_time(pause)
        pool.settle()
        pool.come(more - pool.waiting if more > pool.waiting else 0)
        pool.settle()
        pool.pass_time(pause)
    assert (pool.made, pool.taken) == (made, taken)


@given(scales(), st.integers(0, 8))
@settings(max_examples=amount(25, 500), deadline=None)
def test_a_constant_load_is_met_and_then_nothing_changes(scale: PoolScale, busy: int) -> None:
    pool = Pool(scale)
    pool.come(busy)
    pool.settle()
    assert len(pool.held) == min(busy, scale.max)
    made = pool.made
    pool.pass_time(5 * scale.scale_down_seconds + 5)
    assert (pool.made, pool.taken) == (made, 0)


def test_one_that_keeps_crashing_does_not_keep_others_waiting() -> None:
    pool = Pool(PoolScale(min=0, max=5, target_idle=0, scale_down_seconds=60))
    pool.come(1)
    pool.settle()
    pool.leave(1)
    pool.crash("agents-0")
    pool.come(1)
    pool.settle()
    assert pool.waiting == 1, "whether another one would work is not known"
    pool.come(1)
    pool.settle()
    assert pool.waiting == 0 and len(pool.instances) == 3


def test_where_nothing_ever_works_it_grows_no_further_than_is_asked() -> None:
    pool = Pool(PoolScale(min=0, max=50, target_idle=1, scale_down_seconds=60))
    pool.crashed = {f"agents-{ordinal}" for ordinal in range(50)}
    pool.come(4)
    for _ in range(20):
        pool.step()
        for name in pool.instances:
            pool.crash(name)
        pool.pass_time(61)
    assert len(pool.instances) == 5 and not any(is_ready(one) for one in pool.instances.values())
