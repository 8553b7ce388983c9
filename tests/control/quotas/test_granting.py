"""The grants from a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.api.cell import HOLDERS_MAX
from rota.control.quotas.amounts import Amount, Bound
from rota.control.quotas.granting import Demand, Grant, GrantPlan, Slot, plan_grants
from tests.amount import amount

SMALL, LARGE = Amount(1, 1, 10), Amount(1, 4, 40)


def slot(name: str, size: Amount = SMALL) -> Slot:
    return Slot("WorkerPool", name, f"{name}-uid", str(size.cpu_nanos))


def demand(
    name: str, there: int, running: int = 0, *, wanted: int = 0, since: float = 0, size: Amount = SMALL
) -> Demand:
    return Demand(slot(name, size), size, wanted=wanted, there=there, running=running, since=since)


def held(**numbers: int) -> dict[Slot, Grant]:
    return {slot(name): Grant(number, SMALL) for name, number in numbers.items()}


def numbers(granting: GrantPlan) -> dict[str, int]:
    return {one.name: held.number for one, held in granting.ledger.items()}


def test_without_a_bound_everybody_gets_all() -> None:
    decided = plan_grants(Bound(), {}, [demand("a", 1000), demand("b", 5, size=LARGE)])
    assert numbers(decided) == {"a": 1000, "b": 5} and not decided.waiting


def test_who_has_waited_longest_gets_what_fits_and_nobody_overtakes() -> None:
    decided = plan_grants(Bound(instances=5), {}, [demand("late", 1, since=2), demand("early", 9, since=1)])
    assert numbers(decided) == {"early": 5}
    assert [(one.slot.name, one.number, list(one.short)) for one in decided.waiting] == [
        ("early", 4, ["instances"]),
        ("late", 1, []),
    ]


def test_what_is_more_than_the_whole_budget_does_not_stand_in_the_way() -> None:
    decided = plan_grants(Bound(cpu_nanos=3), {}, [demand("huge", 1, since=1, size=LARGE), demand("a", 2, since=2)])
    assert numbers(decided) == {"a": 2}
    [waiting] = decided.waiting
    assert waiting.is_too_large and list(waiting.short) == ["cpu"]


def test_a_recreate_of_the_same_size_keeps_its_grant() -> None:
    """One of three is gone for a moment: who waits does not get its slot."""
    decided = plan_grants(Bound(instances=3), held(a=3), [demand("a", 2, 2, wanted=3), demand("b", 1, since=1)])
    assert numbers(decided) == {"a": 3}


def test_a_slot_is_free_when_its_instance_is_gone_and_nobody_wants_it() -> None:
    leaving = [demand("a", 3, 3, wanted=1), demand("b", 2, since=1)]
    assert numbers(plan_grants(Bound(instances=3), held(a=3), leaving)) == {"a": 3}
    gone = [demand("a", 1, 1, wanted=1), demand("b", 2, since=1)]
    assert numbers(plan_grants(Bound(instances=3), held(a=3), gone)) == {"a": 1, "b": 2}


def test_an_instance_that_may_still_be_let_go_on_keeps_its_slot() -> None:
    """Granted, not started yet, and no longer wanted: somebody may open its gate at this moment."""
    decided = plan_grants(
        Bound(instances=2), held(a=2), [demand("a", 2, 0, wanted=0, since=1), demand("b", 1, since=2)]
    )
    assert numbers(decided) == {"a": 2}


def test_a_lowered_budget_ends_nothing_and_grants_nothing() -> None:
    decided = plan_grants(Bound(instances=1), held(a=3), [demand("a", 3, 3, wanted=3), demand("b", 1, since=1)])
    assert numbers(decided) == {"a": 3} and decided.used.instances == 3
    assert [one.slot.name for one in decided.waiting] == ["b"]


def test_what_runs_without_a_grant_counts() -> None:
    """It was there before the quota was."""
    decided = plan_grants(Bound(instances=4), {}, [demand("old", 3, 3), demand("new", 2, since=1)])
    assert numbers(decided) == {"old": 3, "new": 1}


def test_a_grant_for_another_size_is_another_grant() -> None:
    decided = plan_grants(
        Bound(cpu_nanos=5), held(a=2), [demand("a", 1, 1), demand("a", 1, since=1, wanted=2, size=LARGE)]
    )
    assert {(one.name, one.hash): each.number for one, each in decided.ledger.items()} == {("a", "1"): 1, ("a", "4"): 1}


def test_an_owner_that_is_gone_holds_nothing() -> None:
    assert plan_grants(Bound(instances=1), held(gone=1), [demand("a", 1, since=1)]).ledger == held(a=1)


def test_a_ledger_has_an_end() -> None:
    decided = plan_grants(Bound(), {}, [demand(f"w{i:05}", 1, since=i) for i in range(HOLDERS_MAX + 2)])
    assert len(decided.ledger) == HOLDERS_MAX and len(decided.waiting) == 2


SIZES = st.sampled_from([SMALL, LARGE, Amount(1), Amount(1, 2, 5, 7)])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Bound, Mapping[Slot, Grant], Sequence[Demand]]:
    bound = Bound(*(draw(st.none() | st.integers(0, 30)) for _ in range(4)))
    demands, ledger = [], {}
    for i in range(draw(st.integers(0, 6))):
        size = draw(SIZES)
        there = draw(st.integers(0, 6))
        one = Demand(
            Slot("WorkerPool", f"p{i}", f"u{i}", str(hash(size))),
            size,
            wanted=draw(st.integers(0, 6)),
            there=there,
            running=draw(st.integers(0, there)),
            since=draw(st.integers(0, 3)),
        )
        demands.append(one)
        if draw(st.booleans()):
            ledger[one.slot] = Grant(draw(st.integers(0, 6)), size)
    return bound, ledger, demands


@settings(deadline=None, max_examples=amount(100, 3_000))
@given(worlds())
def test_never_more_than_the_budget_is_granted_anew(
    world: tuple[Bound, Mapping[Slot, Grant], Sequence[Demand]],
) -> None:
    bound, ledger, demands = world
    decided = plan_grants(bound, ledger, demands)
    total = Amount()
    for held_ in decided.ledger.values():
        total = total.plus(held_.size, held_.number)
    assert total == decided.used
    before = {one.slot: ledger[one.slot].number for one in demands if one.slot in ledger}
    for one in demands:
        now = decided.ledger[one.slot].number if one.slot in decided.ledger else 0
        assert now >= one.running, "what runs counts"
        assert now >= min(before.get(one.slot, 0), one.there), "what may run keeps its slot"
        is_more = now > max(one.running, before.get(one.slot, 0))
        for most, used, size in zip(bound, decided.used, one.size, strict=True):
            assert not (is_more and size and most is not None and used > most), "nothing is granted over the budget"
    again = plan_grants(bound, decided.ledger, demands)
    assert (again.ledger, again.used) == (decided.ledger, decided.used), "decided twice, it is the same"
