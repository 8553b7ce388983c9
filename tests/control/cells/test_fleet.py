"""A hub and its cells, in memory: what is placed runs, whatever happens to either side."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import rota
from rota.api import Cell, ConfigMap, Event, Instance, Quota, Secret, Workload, WorkloadDeployment
from rota.api.workload import REBALANCE
from rota.client import ALL_NAMESPACES
from rota.control.cells.contacts import GRACE_SECONDS, moves_after
from rota.control.cells.messages import DeploymentReport, Gone, InstanceReport, Report
from rota.control.cells.names import cell_namespace
from rota.control.making.resolving import resolve
from rota.engine.recorder import SIMILAR_MAX
from rota.registry import ApiError
from rota.testing.fleet import Fleet, Site

LONG_SECONDS = 120
"""Enough for everything to come to rest."""


def workload(replicas: int, *cities: str, name: str = "web", **template: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "command": ["serve"]}], **template}
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": spec},
            "placements": [{"name": "all", "cityCodes": [*cities], "scale": {"min": replicas}}],
        },
    }


def apply(fleet: Fleet, obj: dict[str, Any], seconds: float = LONG_SECONDS) -> None:
    fleet.do(fleet.hub.client.apply(obj, force=True))
    fleet.go(seconds)


def there(fleet: Fleet, site: Site) -> Counter[str]:
    return Counter(str(one.spec.cell_name) for one in fleet.instances(site))


def running(fleet: Fleet) -> Counter[str]:
    return Counter({name: len(site.runtime.alive) for name, site in fleet.cells.items() if site.runtime.alive})


def ready(fleet: Fleet, name: str = "web") -> int:
    found = fleet.do(fleet.hub.client.get(Workload, name))
    return found.status.ready_replicas if found.status is not None else 0


def agree(fleet: Fleet) -> None:
    """Assert that the hub has exactly the instances of the cells, to the last field of each status."""
    for name, site in fleet.cells.items():
        own = {one.metadata.name: one for one in fleet.instances(site)}
        copies = {one.metadata.name: one for one in fleet.instances(fleet.hub) if one.spec.cell_name == name}
        assert own.keys() == copies.keys(), name
        for each, one in own.items():
            assert one.status == copies[each].status, (name, each)
            assert one.spec == copies[each].spec, (name, each)


def of_all(fleet: Fleet, site: Site, kind: Any) -> list[Any]:
    return fleet.do(site.client.list(kind, namespace=ALL_NAMESPACES)).items


def cell(fleet: Fleet, name: str, site: Site | None = None) -> Any:
    return fleet.do((site or fleet.hub).client.get(Cell, name))


def why(obj: Any, type_: str) -> str:
    """The reason of a condition."""
    return str(obj.status.condition(type_).reason)


def test_what_is_applied_at_the_hub_runs_in_the_cells(fleet: Fleet) -> None:
    apply(fleet, workload(3, "dfw", "lhr"))
    assert there(fleet, fleet.hub)["lhr-1"] == 3
    assert there(fleet, fleet.hub)["dfw-1"] + there(fleet, fleet.hub)["dfw-2"] == 3
    assert running(fleet) == there(fleet, fleet.hub)
    assert ready(fleet) == 6
    agree(fleet)


def test_two_cells_of_a_city_divide_what_is_wanted(fleet: Fleet) -> None:
    apply(fleet, workload(5, "dfw"))
    assert sorted(running(fleet).values()) == [2, 3]


def test_it_is_ready_at_the_hub_within_a_moment(fleet: Fleet) -> None:
    apply(fleet, workload(1, "lhr"), seconds=1)
    assert ready(fleet) == 1


def test_scaling_leaves_no_ghosts(fleet: Fleet) -> None:
    apply(fleet, workload(5, "dfw", "lhr"))
    apply(fleet, workload(1, "dfw", "lhr"))
    assert sum(running(fleet).values()) == 2
    agree(fleet)
    apply(fleet, workload(4, "dfw", "lhr"))
    assert sum(running(fleet).values()) == 8
    agree(fleet)


def test_a_rollout_reaches_the_cells_and_is_told(fleet: Fleet) -> None:
    apply(fleet, workload(3, "dfw", "lhr"))
    before = {one.metadata.name: one.spec.template_hash for one in fleet.instances(fleet.hub)}
    apply(fleet, workload(3, "dfw", "lhr", containers=[{"name": "main", "command": ["other"]}]))
    after = {one.metadata.name: one.spec.template_hash for one in fleet.instances(fleet.hub)}
    assert before.keys() == after.keys() and not set(before.values()) & set(after.values())
    found = fleet.do(fleet.hub.client.get(Workload, "web"))
    assert found.status is not None and found.status.updated_replicas == 6
    assert found.status.observed_generation == found.metadata.generation
    agree(fleet)


def test_what_is_deleted_at_the_hub_goes_in_the_cells_first(fleet: Fleet) -> None:
    apply(fleet, workload(3, "dfw", "lhr"))
    fleet.lines["lhr-1"].cut()
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 3}
    # What the cell that is away has is still here, for it is still there.
    assert there(fleet, fleet.hub) == {"lhr-1": 3}
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert not running(fleet)
    for site in (fleet.hub, *fleet.cells.values()):
        assert not of_all(fleet, site, WorkloadDeployment) and not of_all(fleet, site, Instance)


def test_without_its_hub_a_cell_goes_on_and_what_it_missed_comes_later(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    fleet.lines["lhr-1"].cut()
    [subject, _] = fleet.cells["lhr-1"].runtime.alive
    fleet.cells["lhr-1"].runtime.die(subject.name, code=1)
    fleet.go(GRACE_SECONDS * 2)
    assert running(fleet) == {"lhr-1": 2}
    assert cell(fleet, "lhr-1").status.condition("Ready").reason == "CellLost"
    assert there(fleet, fleet.hub) == {"lhr-1": 2}
    apply(fleet, workload(3, "lhr"))
    assert running(fleet) == {"lhr-1": 2}
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 3}
    assert cell(fleet, "lhr-1").readiness().state == "Ready"
    assert ready(fleet) == 3
    agree(fleet)


def test_a_cell_that_starts_again_without_its_hub_runs_what_it_knows(fleet: Fleet) -> None:
    apply(fleet, workload(3, "lhr"))
    site = fleet.cells["lhr-1"]
    fleet.lines["lhr-1"].cut()
    fleet.down("lhr-1")
    site.runtime.alive.clear()  # As after a power cut.
    fleet.up("lhr-1")
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 3}
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    agree(fleet)


def test_a_hub_that_starts_again_knows_what_is_there_without_being_told_all(fleet: Fleet) -> None:
    apply(fleet, workload(3, "dfw", "lhr"))
    versions = {one.metadata.name: one.metadata.resource_version for one in fleet.instances(fleet.hub)}
    fleet.down()
    fleet.go(5)
    fleet.up()
    fleet.go(LONG_SECONDS)
    assert {one.metadata.name: one.metadata.resource_version for one in fleet.instances(fleet.hub)} == versions
    agree(fleet)


def test_what_changed_while_the_hub_was_down_is_told_when_it_is_back(fleet: Fleet) -> None:
    apply(fleet, workload(3, "lhr"))
    fleet.down()
    for subject in [*fleet.cells["lhr-1"].runtime.alive]:
        fleet.cells["lhr-1"].runtime.die(subject.name, code=1)
    fleet.go(30)
    fleet.up()
    fleet.go(LONG_SECONDS)
    assert all(one.status is not None and one.status.restarts == 1 for one in fleet.instances(fleet.hub))
    agree(fleet)


def test_what_it_refers_to_travels_with_it_and_follows_its_changes(fleet: Fleet) -> None:
    for kind, name, data in (
        ("Secret", "login", {"stringData": {"pw": "one"}}),
        ("ConfigMap", "colours", {"data": {}}),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **data}
        fleet.do(fleet.hub.client.create(body))
    env = [{"name": "PW", "valueFrom": {"secretKeyRef": {"name": "login", "key": "pw"}}}]
    main = {"name": "main", "command": ["serve"], "env": env}
    volumes = [{"name": "colours", "mountPath": "/colours", "configMap": {"name": "colours"}}]
    apply(fleet, workload(1, "lhr", containers=[main], volumes=volumes))
    assert ready(fleet) == 1
    site = fleet.cells["lhr-1"]
    before = fleet.do(site.client.get(Secret, "login")).data
    fleet.lines["lhr-1"].cut()
    fleet.do(fleet.hub.client.patch(Secret, "login", {"stringData": {"pw": "two"}}))
    fleet.go(LONG_SECONDS)
    assert fleet.do(site.client.get(Secret, "login")).data == before
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert fleet.do(site.client.get(Secret, "login")).data == fleet.do(fleet.hub.client.get(Secret, "login")).data
    assert fleet.do(site.client.get(ConfigMap, "colours"))
    # And to that cell alone.
    with pytest.raises(ApiError):
        fleet.do(fleet.cells["dfw-1"].client.get(Secret, "login"))
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(LONG_SECONDS)
    assert not fleet.do(fleet.hub.client.list(Secret, namespace=cell_namespace("lhr-1"))).items


def test_a_draining_cell_is_emptied_one_ready_before_one_goes(fleet: Fleet) -> None:
    apply(fleet, workload(4, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-1", {"spec": {"drain": True}}))
    for _ in range(LONG_SECONDS):
        fleet.go(1)
        assert sum(running(fleet).values()) >= 4
    assert running(fleet) == {"dfw-2": 4}
    agree(fleet)


def test_a_cell_cut_off_while_it_drains_is_emptied_when_it_is_back(fleet: Fleet) -> None:
    apply(fleet, workload(4, "dfw"))
    fleet.lines["dfw-1"].cut()
    fleet.do(fleet.hub.client.patch(Cell, "dfw-1", {"spec": {"drain": True}}))
    fleet.go(LONG_SECONDS)
    fleet.lines["dfw-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"dfw-2": 4}
    agree(fleet)


def test_a_deployment_of_the_cells_own_is_not_taken_over(fleet: Fleet) -> None:
    apply(fleet, workload(1, "lhr"))
    [known] = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.go(LONG_SECONDS)
    site = fleet.cells["lhr-1"]
    own = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkloadDeployment",
        "metadata": {"name": known.metadata.name},
        "spec": {
            "workloadRef": {"name": "web"},
            "placementName": "all",
            "cityCode": "lhr",
            "cellName": "elsewhere",
            "replicas": 7,
            "template": {"spec": {"containers": [{"name": "main", "command": ["theirs"]}]}},
        },
    }
    fleet.do(site.client.create(own))
    apply(fleet, workload(1, "lhr"))
    assert fleet.do(site.client.get(WorkloadDeployment, known.metadata.name)).spec.replicas == 7
    [deployment] = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    assert why(deployment, "Synced") == "NameTaken"
    # And when they remove it, ours comes.
    fleet.do(site.client.delete(WorkloadDeployment, known.metadata.name))
    apply(fleet, workload(2, "lhr"))
    assert running(fleet) == {"lhr-1": 2}


def report(sequence: int = 1, identity: str = "home-of-lhr-1", **more: Any) -> Report:
    return Report(identity=identity, boot=99, sequence=sequence, **more)


def test_another_home_cannot_report_under_the_name(fleet: Fleet) -> None:
    assert fleet.hub.reports is not None
    with pytest.raises(ApiError, match="has joined from another home") as refused:
        fleet.do(fleet.hub.reports.receive("lhr-1", report(identity="another")))
    assert refused.value.code == 409


def test_a_cell_reports_of_nothing_but_its_own(fleet: Fleet) -> None:
    apply(fleet, workload(1, "lhr", "dfw"))
    deployments = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    [own] = [one for one in deployments if one.spec.cell_name == "lhr-1"]
    [other] = [one for one in deployments if one.spec.cell_name != "lhr-1"]
    [theirs] = [one for one in fleet.instances(fleet.hub) if one.spec.cell_name != "lhr-1"]
    assert fleet.hub.reports is not None
    meta = other.metadata
    told = DeploymentReport(
        namespace=meta.namespace, name=meta.name, uid=meta.uid, gone=[Gone(theirs.metadata.name, theirs.metadata.uid)]
    )
    with pytest.raises(ApiError, match='is none of cell "lhr-1"') as refused:
        fleet.do(fleet.hub.reports.receive("lhr-1", report(deployments=[told])))
    assert refused.value.code == 403
    instance = InstanceReport(name=theirs.metadata.name, uid="u", spec=theirs.spec)
    meta = own.metadata
    told = DeploymentReport(namespace=meta.namespace, name=meta.name, uid=meta.uid, changed=[instance])
    with pytest.raises(ApiError, match="is none of deployment"):
        fleet.do(fleet.hub.reports.receive("lhr-1", report(deployments=[told])))
    agree(fleet)


def test_a_report_that_comes_again_or_late_does_nothing(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    hub, [own] = fleet.hub, fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    assert hub.reports is not None
    meta = own.metadata
    [one, two] = fleet.instances(fleet.cells["lhr-1"])
    about: dict[str, Any] = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    fleet.cells["lhr-1"].boot = 100
    gone = report(sequence=5, deployments=[DeploymentReport(**about, gone=[Gone(one.metadata.name, one.metadata.uid)])])
    fleet.do(hub.reports.receive("lhr-1", gone))
    assert len(fleet.instances(hub)) == 1
    fleet.do(hub.reports.receive("lhr-1", gone))
    late = report(sequence=4, deployments=[DeploymentReport(**about, gone=[Gone(two.metadata.name, two.metadata.uid)])])
    fleet.do(hub.reports.receive("lhr-1", late))
    assert len(fleet.instances(hub)) == 1


def test_what_the_hub_has_wrong_is_put_right_by_the_next_report(fleet: Fleet) -> None:
    apply(fleet, workload(3, "lhr"))
    [first, *_] = fleet.instances(fleet.hub)
    fleet.do(fleet.hub.client.delete(Instance, first.metadata.name))
    ghost = {"op": "add", "path": "/status/restarts", "value": 77}
    second = fleet.instances(fleet.hub)[0].metadata.name
    fleet.do(fleet.hub.client.patch(Instance, second, [ghost], type="json", subresource="status"))
    fleet.go(LONG_SECONDS)
    agree(fleet)


def test_a_hub_that_has_forgotten_what_runs_deletes_nothing(fleet: Fleet) -> None:
    """As after a restore from a backup: what the cell has for it is told, and goes on."""
    apply(fleet, workload(2, "lhr"))
    [bound] = fleet.do(fleet.hub.client.list(WorkloadDeployment, namespace=cell_namespace("lhr-1"))).items
    [own] = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    fleet.lines["lhr-1"].cut()
    fleet.down()
    for one in (own, bound):
        meta = one.metadata
        where: dict[str, Any] = {"namespace": meta.namespace}
        fleet.do(fleet.hub.client.patch(WorkloadDeployment, meta.name, {"metadata": {"finalizers": []}}, **where))
        fleet.do(fleet.hub.client.delete(WorkloadDeployment, meta.name, **where))
    fleet.do(fleet.hub.client.patch(Workload, "web", {"metadata": {"finalizers": []}}))
    fleet.do(fleet.hub.client.delete(Workload, "web"))
    fleet.up()
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 2}
    assert cell(fleet, "lhr-1").status.orphans == [f"default/{own.metadata.name}"]
    # Made anew, it takes over what runs.
    before = {one.metadata.uid for one in fleet.instances(fleet.cells["lhr-1"])}
    apply(fleet, workload(2, "lhr"))
    assert {one.metadata.uid for one in fleet.instances(fleet.cells["lhr-1"])} == before
    assert not cell(fleet, "lhr-1").status.orphans
    agree(fleet)


class Tunnel:
    """A tunnel that notes whether it is open."""

    is_open = False

    async def run(self) -> None:
        self.is_open = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_open = False


def test_the_tunnel_is_there_while_the_line_is_whole_and_the_hub_is_the_own(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunnel, link = Tunnel(), fleet.cells["lhr-1"].link
    assert link is not None
    monkeypatch.setattr(link, "_tunnel", tunnel)
    fleet.go(GRACE_SECONDS)
    assert tunnel.is_open
    link.cut()
    fleet.go(1)
    assert not tunnel.is_open
    link.heal()
    fleet.go(GRACE_SECONDS)
    assert tunnel.is_open
    fleet.do(fleet.cells["lhr-1"].client.patch(Cell, "lhr-1", {"status": {"hubID": "another"}}, subresource="status"))
    fleet.go(GRACE_SECONDS)
    assert not tunnel.is_open
    fleet.do(fleet.cells["lhr-1"].client.patch(Cell, "lhr-1", {"status": {"hubID": None}}, subresource="status"))
    fleet.go(GRACE_SECONDS)
    assert tunnel.is_open
    fleet.down("lhr-1")
    assert not tunnel.is_open


def test_another_hub_is_not_obeyed_until_it_is_accepted(fleet: Fleet) -> None:
    apply(fleet, workload(2, "lhr"))
    site = fleet.cells["lhr-1"]
    assert cell(fleet, "lhr-1", site).status.hub_id
    fleet.do(site.client.patch(Cell, "lhr-1", {"status": {"hubID": "another"}}, subresource="status"))
    fleet.go(LONG_SECONDS)
    apply(fleet, workload(5, "lhr"))
    assert running(fleet) == {"lhr-1": 2}
    linked = cell(fleet, "lhr-1", site).status.condition("Linked")
    assert linked.reason == "HubChanged" and "rota cell accept-hub lhr-1" in linked.message
    fleet.do(site.client.patch(Cell, "lhr-1", {"status": {"hubID": None}}, subresource="status"))
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 5}
    agree(fleet)


def test_a_workload_that_is_applied_in_a_cell_says_where_it_belongs(fleet: Fleet) -> None:
    client = fleet.cells["lhr-1"].client
    fleet.do(client.create(workload(1, "lhr")))
    fleet.go(5)
    found = fleet.do(client.get(Workload, "web"))
    assert why(found, "Available") == "NotTheHub"
    assert not running(fleet)


# What is moved when a cell is lost.


LEASE_SECONDS = 20
MOVED_SECONDS = moves_after(LEASE_SECONDS)


def moving(replicas: int, *cities: str) -> dict[str, Any]:
    made = workload(replicas, *cities)
    for one in made["spec"]["placements"]:
        one.update(onCellLost="Move", leaseSeconds=LEASE_SECONDS)
    return made


def acting(fleet: Fleet) -> Counter[int]:
    """Return the number of running instances of each ordinal, wherever they are."""
    found: Counter[int] = Counter()
    for name, site in fleet.cells.items():
        for subject, runs in site.runtime.alive.items():
            assert name
            found[int(subject.name.rpartition("-")[2])] += all(run.exit is None for run in runs.values())
    return found


def test_a_lost_cell_ends_what_is_moved_before_it_runs_elsewhere(fleet: Fleet) -> None:
    apply(fleet, moving(2, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"drain": True}}))
    fleet.go(LONG_SECONDS)
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"drain": False}}))
    fleet.go(5)
    assert sum(acting(fleet).values()) == 2 and running(fleet)["dfw-1"] == 2
    fleet.lines["dfw-1"].cut()
    ended = False
    for second in range(int(MOVED_SECONDS) + 60):
        fleet.go(1)
        assert not {number: count for number, count in acting(fleet).items() if count > 1}, second
        ended |= not sum(acting(fleet).values())
    assert ended
    assert sum(acting(fleet).values()) == 2
    deployments = [one for one in of_all(fleet, fleet.hub, WorkloadDeployment) if one.spec.cell_name == "dfw-2"]
    # Once by draining, and once now.
    assert {one.spec.term for one in deployments} == {2}
    fleet.lines["dfw-1"].heal()
    fleet.go(LONG_SECONDS)
    assert sum(acting(fleet).values()) == 2 and running(fleet) == {"dfw-2": 2}
    agree(fleet)


def test_with_contact_nothing_is_ended(fleet: Fleet) -> None:
    apply(fleet, moving(2, "lhr"))
    before = {one.metadata.uid for one in fleet.instances(fleet.cells["lhr-1"])}
    fleet.go(10 * MOVED_SECONDS)
    assert {one.metadata.uid for one in fleet.instances(fleet.cells["lhr-1"])} == before
    assert all(one.status is not None and not one.status.restarts for one in fleet.instances(fleet.cells["lhr-1"]))


def test_a_cut_that_is_shorter_than_the_lease_changes_nothing(fleet: Fleet) -> None:
    apply(fleet, moving(2, "dfw"))
    before = {one.metadata.uid for one in fleet.instances(fleet.hub)}
    for name in ("dfw-1", "dfw-2"):
        fleet.lines[name].cut()
    fleet.go(LEASE_SECONDS / 4)
    for name in ("dfw-1", "dfw-2"):
        fleet.lines[name].heal()
    fleet.go(LONG_SECONDS)
    assert {one.metadata.uid for one in fleet.instances(fleet.hub)} == before
    assert all(one.status is not None and not one.status.restarts for one in fleet.instances(fleet.hub))


def test_where_there_is_no_other_cell_it_comes_back_with_its_own(fleet: Fleet) -> None:
    apply(fleet, moving(2, "lhr"))
    fleet.lines["lhr-1"].cut()
    fleet.go(2 * MOVED_SECONDS)
    assert not sum(acting(fleet).values())
    [deployment] = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    assert deployment.metadata.deletion_timestamp is None
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert sum(acting(fleet).values()) == 2
    agree(fleet)


def test_a_server_that_is_killed_does_not_keep_what_is_moved_running(fleet: Fleet) -> None:
    apply(fleet, moving(2, "lhr"))
    fleet.down("lhr-1")
    fleet.go(LEASE_SECONDS + 1)
    assert not sum(acting(fleet).values())
    # And without its hub it does not start it again.
    fleet.lines["lhr-1"].cut()
    fleet.up("lhr-1")
    fleet.go(LONG_SECONDS)
    assert not sum(acting(fleet).values())
    reasons = {why(one, "Ready") for one in fleet.instances(fleet.cells["lhr-1"])}
    assert reasons == {"HubUnreachable"}
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    assert sum(acting(fleet).values()) == 2
    agree(fleet)


# Quota.


def quota(fleet: Fleet, instances: int) -> None:
    body = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "default"},
        "spec": {"hard": {"instances": instances}},
    }
    fleet.do(fleet.hub.client.apply(body, force=True))


def test_the_quota_of_the_hub_holds_in_all_cells_together(fleet: Fleet) -> None:
    quota(fleet, 4)
    apply(fleet, workload(3, "dfw", "lhr"))
    assert sum(running(fleet).values()) == 4
    assert there(fleet, fleet.hub).total() == 6
    waiting = [one for one in fleet.instances(fleet.hub) if one.spec.scheduling_gates]
    assert {why(one, "QuotaGranted") for one in waiting} == {"QuotaNotGranted"}
    held = fleet.do(fleet.hub.client.get(Quota, "default")).status
    assert held is not None and held.used is not None and held.used.instances == 4 and held.waiting_instances == 2
    quota(fleet, 5)
    fleet.go(5)
    assert sum(running(fleet).values()) == 5
    # A lower one stops nothing that runs.
    quota(fleet, 1)
    fleet.go(LONG_SECONDS)
    assert sum(running(fleet).values()) == 5
    fleet.do(fleet.hub.client.delete(Quota, "default"))
    fleet.go(LONG_SECONDS)
    assert sum(running(fleet).values()) == 6
    agree(fleet)


def test_what_is_made_anew_without_the_hub_keeps_what_was_granted(fleet: Fleet) -> None:
    quota(fleet, 2)
    apply(fleet, workload(2, "lhr"))
    fleet.lines["lhr-1"].cut()
    site = fleet.cells["lhr-1"]
    [first, _] = fleet.instances(site)
    fleet.do(site.client.delete(Instance, first.metadata.name))
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"lhr-1": 2}
    assert first.metadata.uid not in {one.metadata.uid for one in fleet.instances(site)}
    fleet.lines["lhr-1"].heal()
    fleet.go(LONG_SECONDS)
    agree(fleet)


def test_under_a_full_quota_a_rollout_goes_on_and_never_takes_more(fleet: Fleet) -> None:
    quota(fleet, 3)
    apply(fleet, workload(3, "dfw"))
    fleet.do(
        fleet.hub.client.apply(
            workload(3, "dfw", containers=[{"name": "main", "command": ["new"]}], requests={"cpu": "1"}), force=True
        )
    )
    for _ in range(LONG_SECONDS):
        fleet.go(1)
        assert sum(running(fleet).values()) <= 3
    assert {one.spec.containers[0].command[0] for one in fleet.instances(fleet.hub)} == {"new"}
    assert sum(running(fleet).values()) == 3
    agree(fleet)


def test_a_quota_in_the_cell_does_not_count_what_is_the_hubs(fleet: Fleet) -> None:
    body = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "default"},
        "spec": {"hard": {"instances": 0}},
    }
    fleet.do(fleet.cells["lhr-1"].client.create(body))
    apply(fleet, workload(2, "lhr"))
    assert running(fleet) == {"lhr-1": 2}


def test_what_is_counted_at_the_hub_is_held_in_the_cell(fleet: Fleet) -> None:
    body = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "default"},
        "spec": {"hard": {"memory": "10Gi"}},
    }
    fleet.do(fleet.hub.client.create(body))
    apply(fleet, workload(1, "lhr", requests={"memory": "2Gi"}))
    site = fleet.cells["lhr-1"]
    [instance] = fleet.instances(site)
    [container] = instance.spec.containers
    made = resolve(site.objects, instance, container, policy=site.runtime.policy)
    assert made.memory_bytes == 2 << 30 and made.cpus is None


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [(rota.__version__, True), ("0.2.7", True), ("0.3.0", False), ("1.1.0", False), ("", True), ("dev", True)],
)
def test_a_cell_of_quite_another_version_gets_nothing(fleet: Fleet, version: str, is_taken: bool) -> None:
    assert fleet.hub.reports is not None and rota.__version__.startswith("0.1")
    fleet.lines["lhr-1"].cut()
    fleet.do(fleet.hub.reports.receive("lhr-1", report(version=version)))
    assert (cell(fleet, "lhr-1").readiness().state == "Ready") == is_taken
    if not is_taken:
        assert why(cell(fleet, "lhr-1"), "Ready") == "VersionSkew"


def test_a_workload_is_divided_anew_only_when_that_is_asked_for_and_one_at_a_time(fleet: Fleet) -> None:
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": True}}))
    apply(fleet, workload(4, "dfw"))
    fleet.do(fleet.hub.client.patch(Cell, "dfw-2", {"spec": {"cordoned": False}}))
    # At once: the cell has not reported since.
    fleet.go(0.1)
    assert cell(fleet, "dfw-2").readiness().state == "Ready"
    fleet.go(LONG_SECONDS)
    assert running(fleet) == {"dfw-1": 4}
    fleet.do(fleet.hub.client.patch(Workload, "web", {"metadata": {"annotations": {REBALANCE: "now"}}}))
    least = most = 4
    for _ in range(400):
        fleet.go(0.01)
        count = sum(running(fleet).values())
        least, most = min(least, count), max(most, count)
    assert running(fleet) == {"dfw-1": 2, "dfw-2": 2} and (least, most) == (4, 5)
    assert REBALANCE not in fleet.do(fleet.hub.client.get(Workload, "web")).metadata.annotations
    assert "Rebalanced" in {one.reason for one in of_all(fleet, fleet.hub, Event)}


def test_people_at_the_hub_see_what_happens_in_a_cell(fleet: Fleet) -> None:
    apply(fleet, workload(1, "lhr"))
    [one] = fleet.instances(fleet.hub)
    for _ in range(8):
        fleet.cells["lhr-1"].runtime.die(one.metadata.name)
        fleet.go(2)
    found = [each for each in of_all(fleet, fleet.hub, Event) if each.reason == "InstanceCrashing"]
    about = {(each.involved_object.kind, each.involved_object.uid, each.type) for each in found}
    assert ("Instance", one.metadata.uid, "Warning") in about
    assert len(found) <= SIMILAR_MAX + 1
