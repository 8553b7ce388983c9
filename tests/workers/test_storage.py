"""Storage: it outlives its instances, and goes with its pool."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime import sandbox
from rota.runtime.interface import Order, Owner, Subject
from rota.runtime.places import Places
from tests.until import until
from tests.workers.farm import Farm, farm, pool

in_sandbox = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
SECONDS_MAX = 60
SCRIPT = "test -e mark || echo {mark} > mark; echo x >> starts; trap 'exit 0' TERM; while :; do sleep 0.2; done"


def marking(name: str, replicas: int, mark: str = "first", **more: Any) -> dict[str, Any]:
    """A pool whose instances write a mark at their first start."""
    container = {"name": "main", "command": ["sh", "-c", SCRIPT.format(mark=mark)], **more}
    template = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return pool(name, replicas=replicas, template=template, storage={"size": "1Gi"})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm(tmp_path_factory.mktemp("storage")) as made:
        yield made


def left_of(made: Farm, name: str) -> list[str]:
    """Return the files in the home of a pool."""
    folders = [made.home / "storage" / "default", made.home / "instances" / "default", made.home / "discarded"]
    return [str(path) for folder in folders if folder.exists() for path in folder.iterdir() if name in path.name]


@in_sandbox
def test_it_survives_recreation_rollout_and_being_scaled_away(shared: Farm) -> None:
    shared.apply(marking("kept", 2))
    shared.ready("kept", 2)
    shared.until(lambda: len(list(shared.storage("kept-0").parent.glob("kept-*/mark"))) == 2)
    shared.kubectl("delete", "inst", "kept-1")
    shared.until(lambda: (shared.storage("kept-1") / "starts").read_text() == "x\nx\n")
    shared.ready("kept", 2)
    shared.apply(marking("kept", 1, "second"))
    shared.ready("kept", 1)
    assert (shared.storage("kept-0") / "mark").read_text() == "first\n"
    shared.apply(marking("kept", 2, "third"))
    shared.ready("kept", 2)
    assert (shared.storage("kept-1") / "mark").read_text() == "first\n"


@in_sandbox
def test_it_goes_with_its_pool_also_what_was_scaled_away_earlier(shared: Farm) -> None:
    shared.apply(marking("gone", 2))
    shared.ready("gone", 2)
    shared.kubectl("scale", "wp/gone", "--replicas=1")
    shared.ready("gone", 1)
    assert shared.storage("gone-1").exists()
    shared.kubectl("delete", "wp", "gone")
    shared.until(lambda: left_of(shared, "gone") == [])


@in_sandbox
def test_it_goes_also_with_a_pool_that_went_while_nobody_was_there(tmp_path: Path) -> None:
    with farm(tmp_path) as made:
        made.apply(marking("gone", 2))
        made.ready("gone", 2)
        made.kubectl("scale", "wp/gone", "--replicas=1")
        made.ready("gone", 1)
        made.kill()
        made.arguments = ("--no-controllers",)
        made.start()
        made.kubectl("delete", "wp", "gone", "--wait=false")
        made.until(lambda: "gone" not in made.kubectl("get", "wp", "-o", "name"))
        assert made.storage("gone-0").exists() and made.storage("gone-1").exists()
        made.kill()
        made.arguments = ()
        made.start()
        made.until(lambda: left_of(made, "gone") == [])
        made.until(lambda: not made.read("inst")["items"])


@in_sandbox
def test_a_namesake_that_is_made_anew_does_not_see_it(shared: Farm) -> None:
    shared.apply(marking("again", 2, "old"))
    shared.ready("again", 2)
    shared.kubectl("scale", "wp/again", "--replicas=1")
    shared.ready("again", 1)
    shared.kubectl("delete", "wp", "again", "--wait=false")
    shared.until(lambda: "again" not in shared.kubectl("get", "wp", "-o", "name"))
    shared.apply(marking("again", 2, "new"))
    shared.ready("again", 2)
    folder = shared.storage("again-0").parent
    shared.until(lambda: [one.read_text() for one in folder.glob("again-*/mark")] == ["new\n", "new\n"])


@in_sandbox
def test_an_instance_goes_however_deep_what_it_wrote_is(shared: Farm) -> None:
    deep = "python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]\"; touch done; sleep 1000"
    container = {"name": "main", "command": ["sh", "-c", f"{deep}"]}
    probe = {"readinessProbe": {"exec": {"command": ["test", "-e", "done"]}, "periodSeconds": 1}}
    shared.apply(pool("deep", template={"containers": [{**container, **probe}], "terminationGracePeriodSeconds": 0}))
    shared.ready("deep", 1)
    shared.kubectl("delete", "wp", "deep")
    shared.until(lambda: left_of(shared, "deep") == [])
    assert "deep" not in shared.kubectl("get", "inst", "-o", "name")


@in_sandbox
def test_what_a_killed_server_was_removing_is_removed_by_the_next(tmp_path: Path) -> None:
    with farm(tmp_path) as made:
        made.apply(marking("some", 1))
        made.ready("some", 1)
        made.kill(signal.SIGKILL)
        (made.home / "discarded" / "default-gone-0-x" / "below").mkdir(parents=True)
        (made.home / "instances" / "default" / "gone-0-uid" / "logs").mkdir(parents=True)
        made.start()
        made.until(lambda: left_of(made, "gone") == [])
        made.ready("some", 1)
        assert (made.storage("some-0") / "starts").read_text() == "x\n"


# Whose a storage is, without anything that runs.

OLD, NEW = Owner("pool", "old"), Owner("pool", "new")


def claimed(places: Places, owner: Owner) -> Path:
    subject = Subject("default", "pool-0", owner.uid)
    order = Order(subject, "main", 0, (), {}, storage_name="pool-0", storage_owner=owner)
    return places.storage(order)[0]


def until_empty(folder: Path) -> None:
    until(lambda: not list(folder.iterdir()), "it is never removed", seconds=SECONDS_MAX)


def test_a_folder_is_its_owners_and_what_another_left_is_gone(tmp_path: Path) -> None:
    places = Places(tmp_path)
    (claimed(places, OLD) / "secret").touch()
    assert (claimed(places, OLD) / "secret").exists()
    assert list(claimed(places, NEW).iterdir()) == []
    assert list(places.storages()) == [("default", "pool-0", NEW)]
    until_empty(tmp_path / "discarded")


def test_what_was_prepared_for_another_does_not_count(tmp_path: Path) -> None:
    places = Places(tmp_path)
    record = claimed(places, OLD).with_name("pool-0.prepared")
    record.touch()
    claimed(places, NEW)
    assert not record.exists()


def test_a_late_removal_for_the_old_owner_does_not_touch_the_new_ones(tmp_path: Path) -> None:
    places = Places(tmp_path)
    claimed(places, OLD)
    (claimed(places, NEW) / "mine").touch()
    places.drop("default", "pool-0", OLD)
    assert (claimed(places, NEW) / "mine").exists()


def test_whoever_comes_first_the_new_owner_has_what_is_its_own(tmp_path: Path) -> None:
    for turn in range(50):
        (tmp_path / str(turn)).mkdir()
        places = Places(tmp_path / str(turn))
        (claimed(places, OLD) / "secret").touch()
        dropping = threading.Thread(target=places.drop, args=("default", "pool-0", OLD))
        dropping.start()
        found = claimed(places, NEW)
        dropping.join()
        assert list(found.iterdir()) == []
        assert list(places.storages()) == [("default", "pool-0", NEW)]


def test_a_storage_whose_removal_was_cut_short_is_still_known_to_be_somebodys(tmp_path: Path) -> None:
    places = Places(tmp_path)
    claimed(places, OLD).rename(tmp_path / "aside")
    assert list(places.storages()) == [("default", "pool-0", OLD)]
    places.drop("default", "pool-0", OLD)
    assert list(places.storages()) == [] and list((tmp_path / "storage" / "default").iterdir()) == []


def test_what_is_known_stays_and_strays_are_put_aside(tmp_path: Path) -> None:
    places = Places(tmp_path)
    known, stray = Subject("default", "a-0", "one"), Subject("other", "b-0", "two")
    for subject in (known, stray):
        (places.folder(subject) / "logs").mkdir(parents=True)
    left = places.strays([known])
    assert places.folder(known).exists() and not places.folder(stray).exists()
    assert all(removal.result() for removal in places.discard_all(left))
    assert list((tmp_path / "discarded").iterdir()) == []
