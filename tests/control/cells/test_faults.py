"""A hub and its cells, in memory, to whom one thing happens at the worst moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rota.api import Cell, Instance, Kind, Namespace, ObjectMeta, Quota, Workload, WorkloadDeployment
from rota.client import ALL_NAMESPACES, Update
from rota.control.cells import binding, mirror
from rota.control.cells.contacts import GRACE_SECONDS
from rota.control.cells.messages import DeploymentReport, Gone, Report
from rota.control.cells.names import cell_namespace
from rota.control.cells.reports import Reports
from rota.control.plane import Plane
from rota.engine.fence import Fenced
from rota.engine.objects import Objects, get
from rota.registry import ApiError, Operation
from rota.runtime.interface import Order, Refused, Run, Subject
from rota.runtime.keeper.client import KeeperError
from rota.testing.fleet import Fleet
from rota.testing.runtime import MemoryRuntime
from tests.control.cells.test_fleet import (
    LEASE_SECONDS,
    LONG_SECONDS,
    MOVED_SECONDS,
    acting,
    agree,
    apply,
    cell,
    moving,
    of_all,
    quota,
    ready,
    running,
    there,
    why,
    workload,
)

HOUR_SECONDS = 3600.0


def acts(fleet: Fleet) -> int:
    """Return the number of instances that do anything. A machine that is suspended does nothing."""
    return sum(
        run.exit is None
        for site in fleet.cells.values()
        if not site.clock.is_suspended
        for runs in site.runtime.alive.values()
        for run in runs.values()
    )


def uids(fleet: Fleet, name: str) -> set[str]:
    return {one.metadata.uid for one in fleet.instances(fleet.cells[name])}


def in_dfw_1(fleet: Fleet, replicas: int) -> None:
    """Have something that is moved, all of it in one of two cells."""
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": True}}))
    fleet.go(1)
    apply(fleet, moving(replicas, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": False}}))
    fleet.go(5)
    assert running(fleet) == {"dfw-1": replicas}


def terms(fleet: Fleet, name: str) -> set[int]:
    every = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    return {one.spec.term for one in every if one.spec.cell_name == name}


# Lists and lost news.


def test_a_grant_that_the_cell_did_not_hear_of_is_there_when_it_hears_again(fleet: Fleet) -> None:
    quota(fleet, 1)
    apply(fleet, workload(2, "lhr"))
    assert running(fleet) == {"lhr-1": 1}
    fleet.lines["lhr-1"].cut()
    quota(fleet, 2)
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 1}
    fleet.lines["lhr-1"].heal()
    fleet.go(5)
    assert running(fleet) == {"lhr-1": 2}


@pytest.mark.parametrize("listed", [0, 1])
def test_nothing_ends_because_a_list_is_empty_or_short(fleet: Fleet, listed: int) -> None:
    apply(fleet, workload(2, "lhr"))
    apply(fleet, workload(1, "lhr", name="other"))
    before = uids(fleet, "lhr-1")
    assert len(before) == 3
    line, store = fleet.lines["lhr-1"], fleet.hub.registry.store
    line.cut()
    apply(fleet, workload(1, "dfw", name="elsewhere"), seconds=5)
    # What the cell had last heard of is not kept any more: it has to ask for all.
    fleet.do(store.compact(store.revision))
    line.listed_max = listed
    line.heal()
    fleet.go(LONG_SECONDS)
    assert uids(fleet, "lhr-1") == before
    assert len(cell(fleet, "lhr-1").status.orphans) == 2 - listed
    line.listed_max = None
    line.cut()
    apply(fleet, workload(2, "dfw", name="elsewhere"), seconds=5)
    fleet.do(store.compact(store.revision))
    line.heal()
    fleet.go(LONG_SECONDS)
    assert uids(fleet, "lhr-1") == before and not cell(fleet, "lhr-1").status.orphans
    agree(fleet)


def test_a_watch_that_is_behind_changes_nothing_in_the_end(fleet: Fleet) -> None:
    fleet.lines["lhr-1"].lag_seconds = 30.0
    for replicas in (3, 1, 4, 2):
        apply(fleet, workload(replicas, "lhr"), seconds=7)
    fleet.go(2 * LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 2}
    agree(fleet)


# Deleted while the cell is away.


def test_a_namespace_that_is_deleted_while_the_cell_is_away_waits_for_the_cell(fleet: Fleet) -> None:
    client = fleet.hub.client
    fleet.do(client.create(Namespace(metadata=ObjectMeta(name="team"))))
    body = workload(2, "lhr")
    body["metadata"]["namespace"] = "team"
    apply(fleet, body)
    assert running(fleet) == {"lhr-1": 2}
    fleet.lines["lhr-1"].cut()
    fleet.do(client.delete(Namespace, "team"))
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 2}
    assert fleet.do(client.get(Namespace, "team")).metadata.deletion_timestamp is not None
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert not running(fleet)
    assert not fleet.hub.objects.has(Namespace.api, "", "team")
    assert not of_all(fleet, fleet.hub, WorkloadDeployment)


def test_what_is_deleted_and_made_again_while_the_cell_is_away_runs_anew(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    before = uids(fleet, "lhr-1")
    fleet.lines["lhr-1"].cut()
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(5)
    apply(fleet, workload(3, "lhr"))
    assert uids(fleet, "lhr-1") == before
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 3} and not uids(fleet, "lhr-1") & before
    assert ready(fleet) == 3
    agree(fleet)


def force_off(fleet: Fleet) -> None:
    """Remove what holds deployments, as an impatient person does."""
    for one in of_all(fleet, fleet.hub, WorkloadDeployment):
        meta, client = one.metadata, fleet.hub.client
        where: Any = {"namespace": meta.namespace}
        fleet.do(client.patch(WorkloadDeployment, meta.name, {"metadata": {"finalizers": []}}, **where))
        if fleet.hub.objects.has(WorkloadDeployment.api, meta.namespace, meta.name):
            fleet.do(client.delete(WorkloadDeployment, meta.name, **where))


def test_what_was_let_go_of_by_force_goes_on_is_told_and_is_taken_over(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    before = uids(fleet, "lhr-1")
    fleet.lines["lhr-1"].cut()
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(5)
    force_off(fleet)
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert uids(fleet, "lhr-1") == before and not fleet.instances(fleet.hub)
    assert len(cell(fleet, "lhr-1").status.orphans) == 1
    apply(fleet, workload(2, "lhr"))
    assert uids(fleet, "lhr-1") == before and not cell(fleet, "lhr-1").status.orphans
    agree(fleet)


def test_a_cell_that_is_gone_for_good_leaves_nothing_at_the_hub(fleet: Fleet) -> None:
    apply(fleet, workload(2, "dfw"))
    fleet.down("dfw-1")
    fleet.lines["dfw-1"].cut()
    fleet.go(2 * GRACE_SECONDS)
    client = fleet.hub.client
    fleet.do(client.delete(Cell, "dfw-1"))
    for one in fleet.do(client.list(WorkloadDeployment, namespace=cell_namespace("dfw-1"))).items:
        where: Any = {"namespace": one.metadata.namespace}
        name = one.metadata.name
        fleet.do(client.patch(WorkloadDeployment, name, {"metadata": {"finalizers": []}}, **where))
        fleet.go(1)
    fleet.go(LONG_SECONDS)
    assert there(fleet, fleet.hub) == {"dfw-2": 2}
    assert {one.spec.cell_name for one in of_all(fleet, fleet.hub, WorkloadDeployment)} == {"dfw-2"}
    assert ready(fleet) == 2


# Reports.


def test_a_late_report_of_an_earlier_start_is_not_taken_and_gives_no_rights(fleet: Fleet) -> None:
    apply(fleet, moving(2, "lhr"))
    fleet.down("lhr-1")
    fleet.up("lhr-1")
    fleet.go(5)
    assert fleet.hub.reports is not None
    [deployment] = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    [one, _] = fleet.instances(fleet.cells["lhr-1"])
    meta = deployment.metadata
    gone = [Gone(one.metadata.name, one.metadata.uid)]
    told = DeploymentReport(namespace=meta.namespace, name=meta.name, uid=meta.uid, gone=gone)
    late = Report(identity="home-of-lhr-1", boot=1, sequence=10_000, deployments=[told])
    answer = fleet.do(fleet.hub.reports.receive("lhr-1", late))
    assert (answer.late, answer.rights) == (2, {})
    assert len(fleet.instances(fleet.hub)) == 2


def test_reports_of_one_cell_are_taken_one_after_the_other(fleet: Fleet) -> None:
    """A cell that is not answered in time sends the next report while the last one is still being written."""
    apply(fleet, workload(3, "lhr"))
    line = fleet.lines["lhr-1"]
    line.late = line.repeated = 0.5
    for subject in [*fleet.cells["lhr-1"].runtime.alive]:
        fleet.cells["lhr-1"].runtime.die(subject.name, code=1)
    fleet.go(LONG_SECONDS)
    line.calm()
    fleet.go(60)
    agree(fleet)


def restarts(fleet: Fleet) -> set[int]:
    return {one.status.restarts for one in fleet.instances(fleet.hub) if one.status is not None}


def test_one_that_leads_again_without_a_new_start_is_heard_at_once(fleet: Fleet) -> None:
    """As after a pause: the process is the same, and counts its reports from the beginning."""
    apply(fleet, workload(1, "lhr"), seconds=10 * LONG_SECONDS)
    fleet.lead_again("lhr-1")
    fleet.go(2)
    [subject] = fleet.cells["lhr-1"].runtime.alive
    fleet.cells["lhr-1"].runtime.die(subject.name, code=1)
    fleet.go(3)
    assert restarts(fleet) == {1}
    agree(fleet)


def test_a_cell_whose_home_was_put_back_is_heard(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    backup = fleet.cells["lhr-1"].backup()
    for _ in range(3):
        fleet.down("lhr-1")
        fleet.up("lhr-1")
        fleet.go(2)
    apply(fleet, workload(4, "lhr"))
    fleet.restore(backup, "lhr-1")
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 4} and ready(fleet) == 4
    agree(fleet)


def test_a_deployment_that_comes_back_after_it_was_released_does_not_keep_the_cell_from_reporting(
    fleet: Fleet,
) -> None:
    apply(fleet, workload(1, "lhr"))
    backup = fleet.hub.backup()
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(0.05)
    fleet.lines["lhr-1"].loss = 1.0
    fleet.go(30)
    assert not running(fleet)
    fleet.restore(backup)
    fleet.lines["lhr-1"].calm()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 1}
    assert cell(fleet, "lhr-1").readiness().state == "Ready"
    agree(fleet)


def test_a_crash_loop_makes_few_reports_and_few_writes(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(fleet, workload(5, "lhr"))
    site, hub = fleet.cells["lhr-1"], fleet.hub
    assert hub.reports is not None
    reports, receive = 0, hub.reports.receive

    async def counted(*arguments: Any) -> Any:
        nonlocal reports
        reports += 1
        return await receive(*arguments)

    monkeypatch.setattr(hub.reports, "receive", counted)
    before, minutes = hub.registry.store.revision, 30
    for _ in range(minutes * 60):
        fleet.go(1)
        for subject, runs in [*site.runtime.alive.items()]:
            if runs["main"].exit is None:
                site.runtime.die(subject.name, code=1)
    # A start and an end of each, less and less often; and the heartbeats.
    assert reports < minutes * 60 / 10 * 4
    assert hub.registry.store.revision - before < minutes * 100
    agree(fleet)


# Clocks.


@pytest.mark.parametrize("seconds", [-HOUR_SECONDS, HOUR_SECONDS])
def test_a_lease_ends_in_time_though_the_clock_is_set(fleet: Fleet, seconds: float) -> None:
    in_dfw_1(fleet, 2)
    fleet.lines["dfw-1"].cut()
    fleet.go(1)
    fleet.step_clock(seconds, "dfw-1")
    fleet.go(LEASE_SECONDS)
    assert not acts(fleet)
    fleet.go(MOVED_SECONDS + 30)
    assert running(fleet)["dfw-2"] == 2
    fleet.lines["dfw-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"dfw-2": 2}
    agree(fleet)


@pytest.mark.parametrize("side", ["", "lhr-1"])
@pytest.mark.parametrize("seconds", [-HOUR_SECONDS, HOUR_SECONDS])
def test_a_clock_that_is_set_holds_nothing_up(fleet: Fleet, side: str, seconds: float) -> None:
    apply(fleet, workload(3, "lhr"))
    fleet.step_clock(seconds, side)
    fleet.go(5)
    apply(fleet, workload(2, "lhr", containers=[{"name": "main", "command": ["new"]}]))
    assert {one.spec.containers[0].command[0] for one in fleet.instances(fleet.hub)} == {"new"}
    assert ready(fleet) == 2 and cell(fleet, "lhr-1").readiness().state == "Ready"
    agree(fleet)


def test_a_machine_that_was_suspended_past_its_lease_runs_nothing_of_what_was_moved(fleet: Fleet) -> None:
    in_dfw_1(fleet, 2)
    fleet.suspend("dfw-1")
    fleet.go(MOVED_SECONDS + 60)
    assert acts(fleet) == 2 and running(fleet)["dfw-2"] == 2
    fleet.resume("dfw-1")
    assert acts(fleet) == 2
    for _ in range(LONG_SECONDS):
        fleet.go(1)
        assert acts(fleet) == 2
    assert running(fleet) == {"dfw-2": 2}
    agree(fleet)


def test_a_hub_that_was_suspended_moves_nothing_that_still_runs(fleet: Fleet) -> None:
    in_dfw_1(fleet, 2)
    fleet.suspend()
    for _ in range(int(MOVED_SECONDS) + 60):
        fleet.go(1)
        assert acts(fleet) <= 2
    fleet.resume()
    for _ in range(LONG_SECONDS):
        fleet.go(1)
        assert acts(fleet) <= 2
    assert acts(fleet) == 2
    agree(fleet)


# Moving.


def test_when_the_leader_goes_between_revoking_and_creating_the_next_one_goes_on(fleet: Fleet) -> None:
    in_dfw_1(fleet, 2)
    before = terms(fleet, "dfw-1")
    killed: list[str] = []

    def hear(kind: Kind, update: Update[Any]) -> None:
        is_revoked = update.new is not None and update.new.metadata.deletion_timestamp is not None
        if is_revoked and not killed:
            killed.append(update.key.name)
            fleet.hub.kill()

    fleet.hub.objects.listen((WorkloadDeployment.api,), hear)
    fleet.lines["dfw-1"].cut()
    fleet.go(MOVED_SECONDS + 5)
    assert killed and not terms(fleet, "dfw-2") and not acts(fleet)
    fleet.up()
    for _ in range(LONG_SECONDS):
        fleet.go(1)
        assert acts(fleet) <= 2
    assert running(fleet)["dfw-2"] == 2 and acts(fleet) == 2
    assert min(terms(fleet, "dfw-2")) > max(before)
    fleet.lines["dfw-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"dfw-2": 2}
    agree(fleet)


def test_of_two_that_think_they_lead_only_the_one_that_does_gives_rights(fleet: Fleet) -> None:
    apply(fleet, moving(1, "lhr"))
    before = fleet.hub.reports
    assert before is not None
    told = Report(identity="home-of-lhr-1", boot=1, sequence=10_000, version="test", instances=1)
    assert fleet.do(before.receive("lhr-1", told)).rights
    fleet.lead_again()
    fleet.go(5)
    later = Report(identity="home-of-lhr-1", boot=1, sequence=10_001, version="test", instances=1)
    with pytest.raises(Exception, match="lead") as refused:
        fleet.do(before.receive("lhr-1", later))
    assert not isinstance(refused.value, ApiError) or refused.value.code == 503
    fleet.go(LONG_SECONDS)
    assert acts(fleet) == 1


@pytest.mark.parametrize("offset", [-1.0, -0.2, 0.0, 0.2, 1.0])
def test_a_lost_cell_that_returns_as_the_hub_moves(fleet: Fleet, offset: float) -> None:
    in_dfw_1(fleet, 2)
    fleet.lines["dfw-1"].cut()
    fleet.go(MOVED_SECONDS + offset - 5)
    fleet.lines["dfw-1"].heal()
    for _ in range(240):
        fleet.go(0.25)
        assert not {number: count for number, count in acting(fleet).items() if count > 1}
    fleet.go(LONG_SECONDS)
    assert acts(fleet) == 2
    agree(fleet)


def test_what_becomes_one_that_is_moved_is_fenced_from_when_its_cell_knows(fleet: Fleet) -> None:
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": True}}))
    apply(fleet, workload(2, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": False}}))
    before = uids(fleet, "dfw-1")
    apply(fleet, moving(2, "dfw"), seconds=5)
    assert uids(fleet, "dfw-1") == before
    fleet.lines["dfw-1"].cut()
    for _ in range(int(MOVED_SECONDS) + 60):
        fleet.go(1)
        assert acts(fleet) <= 2
    assert acts(fleet) == 2 and running(fleet)["dfw-2"] == 2


def test_a_cell_that_does_not_know_yet_that_something_is_moved_keeps_it(fleet: Fleet) -> None:
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": True}}))
    apply(fleet, workload(2, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": False}}))
    fleet.lines["dfw-1"].cut()
    apply(fleet, moving(2, "dfw"))
    fleet.go(2 * MOVED_SECONDS)
    assert running(fleet) == {"dfw-1": 2} and acts(fleet) == 2
    fleet.lines["dfw-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"dfw-1": 2}
    agree(fleet)


def test_what_is_not_moved_any_more_goes_on_without_a_restart(fleet: Fleet) -> None:
    apply(fleet, moving(2, "lhr"))
    before = uids(fleet, "lhr-1")
    apply(fleet, workload(2, "lhr"), seconds=5)
    fleet.lines["lhr-1"].cut()
    fleet.go(10 * LEASE_SECONDS)
    assert uids(fleet, "lhr-1") == before and acts(fleet) == 2
    fleet.lines["lhr-1"].heal()
    fleet.go(30)
    assert restarts(fleet) == {0}


class EarlierRuntime(MemoryRuntime):
    """A runtime whose keeper an earlier Rota has started, without leases."""

    async def start(self, order: Order) -> Run:
        if order.lease_seconds is not None:
            raise Refused("KeeperTooOld", "the keeper is of an earlier version")
        return await super().start(order)

    async def extend(self, leases: Mapping[Subject, float | None], *, unleased: bool = False) -> None:
        if any(seconds is not None for one, seconds in leases.items() if one in self.alive):
            raise KeeperError("TooOld", "the keeper is of an earlier version")


def start_with(fleet: Fleet, name: str, kind: type[MemoryRuntime]) -> None:
    """Stop a cell with all that it runs, and start it with another keeper."""
    fleet.site(name).power_cut()
    fleet.go(1)
    fleet.site(name).runtime = kind(fleet.site(name).clock)
    fleet.up(name)
    fleet.go(30)


def test_nothing_that_is_moved_starts_under_a_keeper_that_would_not_end_it(fleet: Fleet) -> None:
    start_with(fleet, "dfw-1", EarlierRuntime)
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": True}}))
    fleet.go(1)
    apply(fleet, moving(2, "dfw"))
    assert not acts(fleet)
    assert {why(one, "Ready") for one in fleet.instances(fleet.hub)} == {"KeeperTooOld"}
    # The hub moves them when the cell is lost, and they run once.
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": False}}))
    fleet.lines["dfw-1"].cut()
    fleet.go(2 * MOVED_SECONDS)
    assert acts(fleet) == 2 and running(fleet)["dfw-2"] == 2
    # With a keeper that knows leases it runs what is placed there.
    fleet.lines["dfw-1"].heal()
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"drain": True}}))
    start_with(fleet, "dfw-1", MemoryRuntime)
    fleet.go(LONG_SECONDS)
    assert acts(fleet) == 2 and running(fleet) == {"dfw-1": 2}


def test_what_runs_under_an_earlier_keeper_is_not_moved_when_it_is_to_be(fleet: Fleet) -> None:
    start_with(fleet, "dfw-1", EarlierRuntime)
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": True}}))
    apply(fleet, workload(2, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": False}}))
    assert running(fleet) == {"dfw-1": 2}
    # Nothing could end it there: so the hub is not told that it may be moved.
    apply(fleet, moving(2, "dfw"))
    fleet.lines["dfw-1"].cut()
    fleet.go(3 * MOVED_SECONDS)
    assert running(fleet) == {"dfw-1": 2} and acts(fleet) == 2
    fleet.lines["dfw-1"].heal()
    apply(fleet, workload(2, "dfw"))
    fleet.go(LONG_SECONDS)
    assert acts(fleet) == 2 and restarts(fleet) == {0}
    agree(fleet)


def test_what_waits_for_the_hub_starts_when_it_is_not_moved_any_more(fleet: Fleet) -> None:
    apply(fleet, moving(1, "lhr"))
    fleet.lines["lhr-1"].cut()
    fleet.go(2 * LEASE_SECONDS)
    assert not acts(fleet)
    site = fleet.cells["lhr-1"]
    [deployment] = fleet.do(site.client.list(WorkloadDeployment)).items
    fleet.do(site.client.patch(WorkloadDeployment, deployment.metadata.name, {"spec": {"onCellLost": "Keep"}}))
    fleet.go(5)
    assert acts(fleet) == 1


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"storage": {"size": "1Gi", "path": "/data"}}, "storage stays in its cell"),
        ({"runtime": "container", "containers": [{"name": "main", "image": "a:1"}]}, "only processes are ended"),
        ({"runtime": "pod", "containers": [{"name": "main", "image": "a:1"}]}, "only processes are ended"),
    ],
)
def test_what_cannot_be_ended_for_certain_is_not_moved(fleet: Fleet, template: dict[str, Any], said: str) -> None:
    body = moving(1, "lhr")
    body["spec"]["template"]["spec"].update(template)
    with pytest.raises(ApiError, match=said) as refused:
        fleet.do(fleet.hub.client.apply(body, force=True))
    assert refused.value.code == 422


def test_when_all_cells_of_a_city_are_lost_that_is_said_and_it_goes_on_with_the_first_that_returns(
    fleet: Fleet,
) -> None:
    apply(fleet, workload(2, "dfw"))
    for name in ("dfw-1", "dfw-2"):
        fleet.lines[name].cut()
    fleet.go(2 * GRACE_SECONDS)
    apply(fleet, workload(1, "dfw", name="new"))
    assert why(fleet.do(fleet.hub.client.get(Workload, "new")), "Available") == "CellsLost"
    assert sum(running(fleet).values()) == 2
    fleet.lines["dfw-2"].heal()
    fleet.go(10)
    assert ready(fleet, "new") == 1


# The hub is put back.


def test_a_hub_that_is_put_back_and_then_to_a_later_state_ends_nothing(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    older = fleet.hub.backup()
    apply(fleet, workload(3, "lhr"))
    apply(fleet, workload(4, "lhr"))
    apply(fleet, workload(1, "lhr", name="later"))
    newer, before = fleet.hub.backup(), uids(fleet, "lhr-1")
    fleet.restore(older)
    fleet.go(LONG_SECONDS)
    assert uids(fleet, "lhr-1") == before
    [deployment] = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    assert why(deployment, "Synced") == "HubIsOlder"
    [orphan] = cell(fleet, "lhr-1").status.orphans
    assert orphan.startswith("default/later-")
    fleet.restore(newer)
    fleet.go(LONG_SECONDS)
    assert uids(fleet, "lhr-1") == before and not cell(fleet, "lhr-1").status.orphans
    assert ready(fleet) == 4
    agree(fleet)


def test_what_is_changed_at_a_hub_that_was_put_back_is_taken(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    older = fleet.hub.backup()
    for replicas in (3, 5, 3, 4):
        apply(fleet, workload(replicas, "lhr"))
    fleet.restore(older)
    fleet.go(30)
    assert running(fleet) == {"lhr-1": 4}
    apply(fleet, workload(3, "lhr"))
    assert running(fleet) == {"lhr-1": 3} and ready(fleet) == 3
    agree(fleet)


def at_work(fleet: Fleet) -> list[str]:
    """The cells in which something runs."""
    return [
        name
        for name, site in fleet.cells.items()
        if any(run.exit is None for runs in site.runtime.alive.values() for run in runs.values())
    ]


def test_what_was_moved_after_the_backup_does_not_act_twice_when_the_hub_is_put_back(fleet: Fleet) -> None:
    apply(fleet, moving(1, "dfw"))
    [first] = at_work(fleet)
    older = fleet.hub.backup()
    fleet.lines[first].cut()
    fleet.go(MOVED_SECONDS)
    [second] = at_work(fleet)
    assert second != first
    fleet.lines[first].heal()
    fleet.restore(older)
    most = 0
    for _ in range(int(MOVED_SECONDS * 4)):
        fleet.go(0.5)
        most = max(most, acts(fleet))
    assert most == 1 and at_work(fleet) == [first]


def test_a_hub_that_was_put_back_moves_nothing_away_from_a_cell_that_it_has_not_heard(fleet: Fleet) -> None:
    """It was said to the cell, in a time that the hub has lost, that it keeps what it runs."""
    apply(fleet, moving(1, "dfw"))
    [first] = at_work(fleet)
    older = fleet.hub.backup()
    apply(fleet, workload(1, "dfw"))
    fleet.lines[first].cut()
    fleet.restore(older)
    fleet.go(2 * MOVED_SECONDS)
    assert at_work(fleet) == [first] and acts(fleet) == 1
    fleet.lines[first].heal()
    fleet.go(LONG_SECONDS)
    assert at_work(fleet) == [first]


# Which plane something belongs to.


def test_a_hub_that_runs_nothing_runs_nothing_that_names_no_cell(fleet: Fleet) -> None:
    assert not Plane(cell=None).runs(None) and not Plane(cell=None).runs("")
    template = {"containers": [{"name": "main", "command": ["serve"]}]}
    pool = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "p"},
        "spec": {"template": template, "replicas": 1},
    }
    fleet.do(fleet.hub.client.create(pool))
    fleet.go(30)
    assert not fleet.hub.runtime.alive and not running(fleet)


def test_copies_belong_to_the_deployment_of_their_own_side(fleet: Fleet) -> None:
    apply(fleet, workload(1, "lhr"))
    for site in (fleet.hub, fleet.cells["lhr-1"]):
        [deployment] = fleet.do(site.client.list(WorkloadDeployment)).items
        [instance] = fleet.instances(site)
        assert [one.uid for one in instance.metadata.owner_references] == [deployment.metadata.uid]
    [own], [copy] = fleet.instances(fleet.cells["lhr-1"]), fleet.instances(fleet.hub)
    assert own.metadata.uid != copy.metadata.uid and own.metadata.name == copy.metadata.name


def test_news_of_one_is_written_to_that_one_and_to_no_other(fleet: Fleet) -> None:
    apply(fleet, workload(1, "lhr"))
    apply(fleet, workload(1, "lhr", name="other"))

    def versions() -> dict[str, str]:
        every = fleet.do(fleet.hub.client.list(Instance, namespace=ALL_NAMESPACES)).items
        deployments = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
        return {one.metadata.name: one.metadata.resource_version for one in (*every, *deployments)}

    before = versions()
    [subject] = [one for one in fleet.cells["lhr-1"].runtime.alive if one.name.startswith("web-")]
    fleet.cells["lhr-1"].runtime.die(subject.name, code=1)
    fleet.go(1)
    changed = {name for name, version in versions().items() if before[name] != version}
    assert changed and all(name.startswith("web-") for name in changed)


def test_that_nothing_is_left_is_told_within_a_moment(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(1)
    assert not of_all(fleet, fleet.hub, WorkloadDeployment) and not running(fleet)


# Many at once.


def test_a_hub_that_did_not_see_yet_that_it_is_to_go_is_told_again_that_nothing_is_left(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(fleet, workload(2, "lhr"))
    taken, told = Reports._release, []

    async def release(self: Reports, *about: Any) -> None:
        told.append(about)
        if len(told) > 1:
            await taken(self, *about)

    monkeypatch.setattr(Reports, "_release", release)
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(LONG_SECONDS)
    assert not fleet.do(fleet.hub.client.list(WorkloadDeployment, namespace=ALL_NAMESPACES)).items
    assert len(told) == 2


@pytest.mark.parametrize(("side", "unseen"), [(binding, cell_namespace("lhr-1")), (mirror, "default")])
def test_nothing_is_let_go_of_because_one_that_begins_to_lead_does_not_see_it_yet(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, side: Any, unseen: str
) -> None:
    def behind(objects: Objects, type_: Any, name: str, namespace: str = "") -> Any:
        return None if namespace == unseen else get(objects, type_, name, namespace)

    apply(fleet, workload(2, "lhr"))
    with monkeypatch.context() as patched:
        patched.setattr(side, "get", behind)
        fleet.do(fleet.hub.client.delete(Workload, "web"))
        fleet.go(2)
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {} and not fleet.instances(fleet.cells["lhr-1"])
    for site in (fleet.hub, fleet.cells["lhr-1"]):
        assert not fleet.do(site.client.list(WorkloadDeployment, namespace=ALL_NAMESPACES)).items


@pytest.mark.parametrize("late", ["", "lhr-1"])
def test_controllers_that_see_late_what_is_written_write_nothing_twice(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own writes they know. Without that, thousands of writes would be refused until the news come."""
    refused: list[str] = []
    monkeypatch.setattr(Fenced, "write", _noting(refused, Fenced.write))
    with Fleet({"lhr-1": "lhr"}, lags={late: 3.0}) as fleet:
        quota(fleet, 5)
        apply(fleet, workload(3, "lhr"))
        assert running(fleet) == {"lhr-1": 3}
        apply(fleet, workload(3, "lhr", restartPolicy="OnFailure"))
        agree(fleet)
        apply(fleet, workload(1, "lhr", restartPolicy="OnFailure"))
        assert running(fleet) == {"lhr-1": 1}
        fleet.do(fleet.hub.client.delete(Workload, "web"))
        fleet.go(LONG_SECONDS)
        assert running(fleet) == {} and not fleet.instances(fleet.hub)
    # Some until it is seen that somebody else has deleted it.
    assert len(refused) <= 30, refused


def _noting(refused: list[str], write: Any) -> Any:
    async def writing(self: Fenced, operations: Sequence[Operation], **options: Any) -> Any:
        try:
            return await write(self, operations, **options)
        except ApiError as error:
            refused.append(f"{operations[0].kind.name}: {error}")
            raise

    return writing


def test_a_thousand_that_race_for_a_few_places_never_have_more(fleet: Fleet) -> None:
    quota(fleet, 40)

    async def all_at_once() -> None:
        wanted = [workload(10, "dfw", "lhr", name=f"w{number}") for number in range(50)]
        await asyncio.gather(*(fleet.hub.client.apply(one, force=True) for one in wanted))

    fleet.do(all_at_once())
    for _ in range(20):
        fleet.go(0.1)
        assert sum(running(fleet).values()) <= 40
    fleet.go(30)
    held = fleet.do(fleet.hub.client.get(Quota, "default")).status
    assert held is not None and held.used is not None
    assert (sum(running(fleet).values()), held.used.instances, held.waiting_instances) == (40, 40, 960)
