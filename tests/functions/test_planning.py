"""Where a call goes, how many workers there are, and which: without anything that runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rota.api import Condition, Function, Instance, ObjectMeta
from rota.api.function import FunctionSpec, FunctionStatus, LoadedVersion, Source
from rota.client import Key
from rota.control.functions.load_queue import AT_ONCE_MAX, LOADING_SECONDS_MAX, LoadQueue
from rota.control.functions.loading import IS_LOADED, UNKNOWN, LoadState, as_loaded, last_loaded, written
from rota.control.functions.planning import Version, plan, version_of
from rota.control.functions.readiness import not_ready, readiness
from rota.control.functions.routing import Routing
from rota.control.functions.scaling import FunctionAutoscaler
from rota.control.instances import Create, Delete
from rota.runtime.interface import Subject


def routing(*workers: tuple[str, str, int]) -> Routing:
    """Workers by name, version and concurrency, all of them open; the newest version is `new`."""
    made = Routing(waiting_max=2)
    made.version = "new"
    for name, version, concurrency in workers:
        made.add_worker(Subject("default", name, name), version, concurrency).is_open = True
    return made


def names(made: Routing, *calls: str) -> list[str | None]:
    workers = [made.take(call) for call in calls]
    return [worker.subject.name if worker is not None else None for worker in workers]


def test_a_call_goes_to_the_worker_that_has_fewest() -> None:
    assert names(routing(("a", "new", 2), ("b", "new", 2)), "1", "2", "3", "4", "5") == ["a", "b", "a", "b", None]


def test_an_old_version_is_called_only_while_the_new_one_cannot_be() -> None:
    made = routing(("old", "old", 9), ("fresh", "new", 1))
    assert names(made, "1", "2") == ["fresh", None]
    other = routing(("old", "old", 9), ("fresh", "new", 1))
    worker = other.worker("fresh")
    assert worker is not None
    worker.is_open = False
    assert names(other, "1", "2") == ["old", "old"]


def test_those_that_wait_are_served_in_the_order_in_which_they_came() -> None:
    made = routing(("a", "new", 1))
    assert names(made, "1", "2", "3") == ["a", None, None]
    assert made.is_full and made.waiting == 2
    made.leave("2")
    worker = made.worker("a")
    assert worker is not None and made.next() is None
    worker.calls.clear()
    assert made.next() == ("3", worker) and made.next() is None and made.waiting == 0


def test_a_call_that_was_refused_is_first() -> None:
    made = routing(("a", "new", 1))
    names(made, "1", "2")
    assert made.take("refused", first=True) is None
    worker = made.worker("a")
    assert worker is not None
    worker.calls.clear()
    assert made.next() == ("refused", worker)


def test_a_worker_that_is_gone_names_the_calls_it_had() -> None:
    made = routing(("a", "new", 2))
    names(made, "1", "2")
    assert made.remove_worker("a") == {"1", "2"} and not made.is_served


def test_workers_are_wanted_at_once_and_given_up_one_by_one() -> None:
    scale = FunctionAutoscaler()
    assert scale.wanted(5, 2, 0, 10, 60.0, now=0.0).workers == 3
    assert scale.wanted(1, 2, 0, 10, 60.0, now=10.0) == (3, 50.0)
    assert scale.wanted(0, 2, 0, 10, 60.0, now=60.0) == (1, 10.0)
    assert scale.wanted(0, 2, 0, 10, 60.0, now=70.0).workers == 0


def test_bounds_hold_whatever_is_asked_for() -> None:
    scale = FunctionAutoscaler()
    assert scale.wanted(100, 1, 1, 4, 60.0, now=0.0).workers == 4
    assert scale.wanted(0, 1, 1, 4, 60.0, now=99.0) == (1, None)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 30)), max_size=30), st.integers(1, 5))
def test_there_are_never_fewer_than_the_load_needs_nor_more_than_it_lately_did(
    steps: list[tuple[int, float]], concurrency: int
) -> None:
    scale, now, seen = FunctionAutoscaler(), 0.0, []
    for load, passed in steps:
        now += passed
        needed = min(8, -(-load // concurrency))
        seen.append((now, needed))
        found = scale.wanted(load, concurrency, 0, 8, 60.0, now).workers
        lately = max(count for when, count in seen if now - when < 60.0)
        assert needed <= found <= lately


# Instances.


def function() -> Function:
    spec = FunctionSpec(entrypoint="app:handler", source=Source(inline=""))
    return Function(metadata=ObjectMeta(name="f", namespace="default", uid="u"), spec=spec)


NEW = version_of(function(), f"sha256:{'1' * 64}", "")
OLD = version_of(function(), f"sha256:{'0' * 64}", "")


def existing(*hashes: str, leaving: tuple[int, ...] = ()) -> list[Instance]:
    """Instances with ordinals from 0 on, of these versions."""
    found = []
    for ordinal, hash_ in enumerate(hashes):
        (create,) = plan(function(), OLD if hash_ == OLD.hash else NEW, [], 1, ready=(), load={})
        assert isinstance(create, Create)
        spec = msgspec.structs.replace(create.instance.spec, template_hash=hash_, ordinal=ordinal)
        gone = datetime.now(UTC) if ordinal in leaving else None
        meta = msgspec.structs.replace(
            create.instance.metadata, name=f"f-{ordinal}", uid=f"u{ordinal}", deletion_timestamp=gone
        )
        found.append(msgspec.structs.replace(create.instance, metadata=meta, spec=spec))
    return found


def told(instances: list[Instance], wanted: int, ready: tuple[str, ...], **load: int) -> tuple[list[int], list[str]]:
    """The ordinals that are made, and the names that go."""
    actions = plan(function(), NEW, instances, wanted, ready=ready, load=load)
    made = [one.instance.spec.ordinal for one in actions if isinstance(one, Create)]
    return made, [one.name for one in actions if isinstance(one, Delete)]


def test_a_new_version_is_made_beside_the_old_one() -> None:
    assert told(existing(OLD.hash, OLD.hash), 2, ("u0", "u1")) == ([2, 3], [])


def test_old_ones_go_as_new_ones_can_be_called() -> None:
    both = existing(OLD.hash, OLD.hash, NEW.hash, NEW.hash)
    assert told(both, 2, ("u0", "u1")) == ([], [])
    assert told(both, 2, ("u0", "u1", "u2"), u0=3) == ([], ["f-1"])
    assert told(both, 2, ("u0", "u1", "u2", "u3")) == ([], ["f-1", "f-0"])


def test_when_nothing_is_needed_everything_goes() -> None:
    assert told(existing(OLD.hash, NEW.hash), 0, ()) == ([], ["f-1", "f-0"])


def test_those_that_are_at_nothing_go_first() -> None:
    assert told(existing(NEW.hash, NEW.hash), 1, ("u0", "u1"), u1=1) == ([], ["f-0"])


def test_an_ordinal_is_taken_until_its_instance_is_gone() -> None:
    assert told(existing(NEW.hash, leaving=(0,)), 1, ()) == ([1], [])


def test_callers_and_tasks_take_turns() -> None:
    made = routing(("a", "new", 1))
    made.take("running")
    for number in range(3):
        made.take(f"task-{number}", is_task=True)
    made.take("caller-0")
    made.take("caller-1")
    worker = made.worker("a")
    assert worker is not None and made.is_full
    served = []
    for _ in range(5):
        worker.calls.clear()
        found = made.next()
        assert found is not None
        served.append(found[0])
    assert served == ["caller-0", "task-0", "caller-1", "task-1", "task-2"]


# Versions.


def test_the_version_before_gets_what_calls_need_until_the_new_one_can_be_called() -> None:
    made, gone = planned(existing(OLD.hash, NEW.hash), 3, ("u0",))
    assert (made, gone) == ({2: NEW.hash, 3: NEW.hash, 4: OLD.hash, 5: OLD.hash}, [])
    made, gone = planned(existing(OLD.hash, NEW.hash), 3, ("u0", "u1"))
    assert (made, gone) == ({2: NEW.hash, 3: NEW.hash}, [])


def planned(
    instances: list[Instance], wanted: int, ready: tuple[str, ...], newest: int | None = None
) -> tuple[dict[int, str], list[str]]:
    """Return the version of each new ordinal, and the names that go, while there is an older version."""
    actions = plan(function(), NEW, instances, wanted, ready=ready, load={}, newest=newest, before=OLD)
    made = {one.instance.spec.ordinal: one.instance.spec.template_hash for one in actions if isinstance(one, Create)}
    return made, [one.name for one in actions if isinstance(one, Delete)]


def test_a_version_that_is_not_loaded_has_one_instance_whatever_calls_need() -> None:
    assert loading(existing(OLD.hash, OLD.hash), 2, newest=1) == ({2: NEW.hash}, [])
    assert loading([], 0, newest=1) == ({0: NEW.hash}, [])
    # Beside those of the version before, if that has too few.
    assert loading(existing(OLD.hash), 2, newest=1) == ({1: NEW.hash, 2: OLD.hash}, [])


def test_a_version_that_cannot_be_loaded_has_no_instance_and_the_one_before_all_that_calls_need() -> None:
    assert loading(existing(OLD.hash, NEW.hash), 1, newest=0) == ({}, ["f-1"])
    assert loading([], 2, newest=0) == ({0: OLD.hash, 1: OLD.hash}, [])


def loading(instances: list[Instance], wanted: int, newest: int) -> tuple[dict[int, str], list[str]]:
    return planned(instances, wanted, (), newest)


# How a function stands.


def test_a_function_is_ready_when_its_newest_version_was_loaded_and_not_before() -> None:
    both = existing(OLD.hash, NEW.hash)
    assert stands([], known=UNKNOWN) == "Loading"
    assert stands(existing(NEW.hash), known=UNKNOWN) == "Loading"
    assert stands(both, "u0", known=UNKNOWN, good=OLD) == "Updating"
    assert stands([], known=UNKNOWN, good=OLD) == "Updating"
    assert stands(both, "u0", good=OLD) == "Updating"
    assert stands(both, "u0", "u1") == "Ready"
    assert stands(existing(NEW.hash)) == "Scaling"
    assert stands([]) == "ScaledToZero"
    # Those that leave answer nothing new.
    assert stands(existing(OLD.hash, leaving=(0,))) == "ScaledToZero"


def test_a_version_that_was_not_loaded_stays_so_when_its_workers_are_gone() -> None:
    failed = not_ready("ImportFailed", "why")
    assert stands(existing(NEW.hash), known=FAILED, failures=[failed]) == "ImportFailed"
    assert stands([], known=FAILED) == "ImportFailed"
    assert stands(existing(OLD.hash), "u0", known=FAILED, good=OLD) == "ImportFailed"


FAILED = LoadState("Failed", "ImportFailed", "why")


def stands(
    instances: list[Instance],
    *callable_: str,
    known: LoadState = IS_LOADED,
    good: Version | None = None,
    failures: Sequence[Condition] = (),
) -> str:
    found = readiness(function(), NEW, instances, known=known, good=good, callable_=callable_, failures=failures)
    return found.reason


# What is written down.


def test_what_was_found_out_is_read_from_the_status() -> None:
    said = FAILED.condition()
    failed = FunctionStatus(version="new", conditions=[said])
    assert written(failed, "new") == FAILED and written(failed, "newer") == UNKNOWN
    loaded = FunctionStatus(version="newer", last_loaded=as_loaded(NEW, datetime.now(UTC)), conditions=[said])
    # The version before is as good as it was, whatever became of a newer one.
    assert written(loaded, NEW.hash) == IS_LOADED and written(loaded, "newer") == FAILED
    assert written(None, "new") == UNKNOWN


def test_a_version_that_was_loaded_can_be_started_again_from_what_is_written_down() -> None:
    loaded = FunctionStatus(last_loaded=as_loaded(NEW, datetime.now(UTC)))
    assert last_loaded(msgspec.json.decode(msgspec.json.encode(loaded), type=FunctionStatus)) == NEW
    foreign = LoadedVersion(version="v", template={"containers": "not a list"})
    assert last_loaded(FunctionStatus(last_loaded=foreign)) is None and last_loaded(None) is None


# Who may load.


def key(number: int) -> Key:
    return Key("default", f"f{number}")


def test_so_many_are_loaded_at_once_and_the_others_in_the_order_in_which_they_came() -> None:
    woken: list[Key] = []
    loads = LoadQueue(woken.append)
    begun = [loads.begin(key(number), 0.0) for number in range(AT_ONCE_MAX + 2)]
    assert begun == [True] * AT_ONCE_MAX + [False] * 2 and woken == [key(n) for n in range(AT_ONCE_MAX)]
    woken.clear()
    # One that is over is asked to make room for the first that waits, though it might have stayed.
    loads.end(key(1), 1.0, 10.0)
    assert loads.is_over(key(1), 1.0) and loads.left(key(1), 1.0) == 0.0 and woken == [key(1)]
    assert not loads.begin(key(AT_ONCE_MAX), 1.0)
    loads.leave(key(1), 2.0)
    assert loads.begin(key(AT_ONCE_MAX), 2.0) and not loads.begin(key(AT_ONCE_MAX + 1), 2.0)
    assert woken == [key(1), key(AT_ONCE_MAX)]
    loads.leave(key(0), 3.0)
    assert loads.begin(key(AT_ONCE_MAX + 1), 3.0)


def test_a_worker_that_has_loaded_stays_while_nobody_waits() -> None:
    loads = LoadQueue(lambda key: None)
    assert loads.begin(key(0), 0.0)
    loads.end(key(0), 1.0, 10.0)
    assert (loads.left(key(0), 4.0), loads.left(key(0), 12.0)) == (7.0, 0.0)
    # Said again, it does not stay longer.
    loads.end(key(0), 5.0, 10.0)
    assert loads.left(key(0), 5.0) == 6.0


def test_one_that_takes_too_long_keeps_nobody_waiting() -> None:
    loads = LoadQueue(lambda key: None)
    for number in range(AT_ONCE_MAX):
        loads.begin(key(number), float(number))
    assert not loads.begin(key(9), 10.0) and loads.wait_seconds(key(9), 10.0) == LOADING_SECONDS_MAX - 10.0
    assert loads.begin(key(9), LOADING_SECONDS_MAX)
    assert loads.wait_seconds(key(9), 0.0) is None


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "leave"]), st.integers(0, 9)), max_size=60))
def test_there_are_never_too_many_and_nobody_waits_while_there_is_room(steps: list[tuple[str, int]]) -> None:
    loads, now = LoadQueue(lambda key: None), 0.0
    for what, number in steps:
        now += 0.1
        if what == "begin":
            loads.begin(key(number), now)
        elif what == "end":
            loads.end(key(number), now, 5.0)
        else:
            loads.leave(key(number), now)
        assert len(loads._began) + len(loads._stays_until) <= AT_ONCE_MAX
        assert not loads._waiting or len(loads._began) + len(loads._stays_until) == AT_ONCE_MAX
        # Nobody stays for pleasure while others wait.
        asked = sum(loads.is_over(key, now) for key in loads._stays_until)
        assert asked >= min(len(loads._waiting), len(loads._stays_until))
