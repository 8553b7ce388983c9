"""To harm a hub, its cells or other tenants by what goes between a hub and its cells."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rota.api import Cell, ConfigMap, Instance, ObjectMeta, Quota, Secret, Workload, WorkloadDeployment
from rota.api.copies import REPLICAS_MAX
from rota.api.workload import WorkloadDeploymentStatus
from rota.control.cells.messages import (
    REPORT_BYTES_MAX,
    Answer,
    DeploymentReport,
    EventReport,
    InstanceReport,
    Report,
)
from rota.control.cells.names import SOURCE_GENERATION, SOURCE_UID, cell_namespace, source_of
from rota.control.cells.receiving import BESIDE_TEMPLATE_BYTES_MAX
from rota.control.cells.reports import EVENTS_BURST
from rota.control.instances.reasons import HUB_QUOTA_GATE
from rota.registry import ApiError
from rota.testing.connections import SimulatedHub
from rota.testing.fleet import Fleet, Site

CELL = "lhr-1"
LONG_SECONDS = 60


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet({CELL: "lhr", "dfw-1": "dfw"}) as made:
        made.go(1)
        yield made


def workload(name: str, *cities: str, replicas: int = 1, placements: int = 1, **template: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "command": ["serve"]}], **template}
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": spec},
            "placements": [
                {"name": f"p{i}", "cityCodes": [*(cities or ("lhr",))], "scale": {"min": replicas}}
                for i in range(placements)
            ],
        },
    }


def apply(fleet: Fleet, obj: dict[str, Any], seconds: float = LONG_SECONDS) -> None:
    fleet.do(fleet.hub.client.apply(obj, force=True))
    fleet.go(seconds)


def delete(fleet: Fleet, name: str) -> None:
    fleet.do(fleet.hub.client.delete(Workload, name))
    fleet.go(LONG_SECONDS)


def ready(fleet: Fleet, name: str) -> int:
    found = fleet.do(fleet.hub.client.get(Workload, name))
    return found.status.ready_replicas if found.status is not None else 0


def is_heard(fleet: Fleet) -> bool:
    return bool(fleet.do(fleet.hub.client.get(Cell, CELL)).readiness().state == "Ready")


def deployment(fleet: Fleet, workload: str, cell: str = CELL) -> WorkloadDeployment:
    every = fleet.do(fleet.hub.client.list(WorkloadDeployment)).items
    [found] = [one for one in every if (one.spec.workload_ref.name, one.spec.cell_name) == (workload, cell)]
    return found


def told(of: WorkloadDeployment, **more: Any) -> DeploymentReport:
    meta = of.metadata
    return DeploymentReport(namespace=meta.namespace, name=meta.name, uid=meta.uid, **more)


def instance(of: WorkloadDeployment, ordinal: int, **spec: Any) -> InstanceReport:
    body = {"templateHash": "h", "ordinal": ordinal, "containers": [{"name": "main"}], **spec}
    about = {"name": f"{of.metadata.name}-{ordinal}", "uid": "forged", "spec": body}
    return msgspec.convert(about, InstanceReport)


def report(fleet: Fleet, *deployments: DeploymentReport) -> Answer:
    """Report as the cell, which was taken over."""
    fleet.cells[CELL].boot += 1
    assert fleet.hub.reports is not None
    said = Report(f"home-of-{CELL}", 1000 + fleet.cells[CELL].boot, 1, version="test", deployments=[*deployments])
    return fleet.do(fleet.hub.reports.receive(CELL, said))


def copies(fleet: Fleet, of: WorkloadDeployment) -> list[Instance]:
    return [one for one in fleet.instances(fleet.hub) if one.metadata.owner_references[0].uid == of.metadata.uid]


def test_to_have_a_cell_say_more_than_its_hub_takes(fleet: Fleet) -> None:
    """A cell whose reports are refused is lost, with all that others have there."""
    env = [{"name": f"V{i}", "value": "x" * 1000} for i in range(250)]
    large: dict[str, Any] = {"containers": [{"name": "main", "command": ["serve"], "env": env}]}
    apply(fleet, workload("large", replicas=16, **large))
    apply(fleet, workload("other"))
    assert is_heard(fleet)
    assert ready(fleet, "other") == 1
    assert ready(fleet, "large") == 16
    told = [InstanceReport(one.metadata.name, one.metadata.uid, one.spec) for one in fleet.instances(fleet.hub)]
    assert len(msgspec.json.encode(told)) > REPORT_BYTES_MAX
    # Neither is a hub that has forgotten everything told all of it at once.
    for one in copies(fleet, deployment(fleet, "large")):
        fleet.do(fleet.hub.client.delete(Instance, one.metadata.name))
    fleet.go(LONG_SECONDS)
    assert is_heard(fleet)
    assert len(copies(fleet, deployment(fleet, "large"))) == 16


def test_to_have_a_cell_say_what_its_hub_refuses(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that the hub does not take of one deployment: others are heard of."""
    taken = SimulatedHub.report

    async def take(self: SimulatedHub, report: Report) -> Answer:
        if any("bad" in one.name for one in report.deployments):
            raise ApiError(422, "Invalid", "no")
        return await taken(self, report)

    monkeypatch.setattr(SimulatedHub, "report", take)
    apply(fleet, workload("bad"))
    apply(fleet, workload("other"))
    assert is_heard(fleet)
    assert ready(fleet, "other") == 1


def test_to_have_a_hub_refuse_what_others_say(fleet: Fleet) -> None:
    apply(fleet, workload("one"))
    apply(fleet, workload("two"))
    fleet.down(CELL)
    one, two = deployment(fleet, "one"), deployment(fleet, "two")
    volume = {"name": "v", "secret": {"name": "s"}, "mountPath": "/etc"}
    bad = instance(one, 5, volumes=[volume])
    answer = report(fleet, told(one, changed=[bad], digest="x"), told(two, changed=[instance(two, 5)]))
    assert len(copies(fleet, one)) == 1
    assert len(copies(fleet, two)) == 2
    # To ask for it again would bring the same again, at once and for ever.
    assert answer.resync == []
    assert report(fleet, told(one, digest="x")).resync == [one.metadata.uid]


def test_to_fill_a_hub_by_reports(fleet: Fleet) -> None:
    apply(fleet, workload("web"))
    fleet.down(CELL)
    web = deployment(fleet, "web")
    with pytest.raises(ApiError, match="has no instance") as refused:
        report(fleet, told(web, changed=[instance(web, REPLICAS_MAX)]))
    assert refused.value.code == 403
    padded = [{"name": f"c{i}", "args": ["x" * 1000] * 20} for i in range(8)]
    assert len(msgspec.json.encode(padded)) > BESIDE_TEMPLATE_BYTES_MAX
    report(fleet, told(web, changed=[instance(web, 1, containers=padded)]))
    assert len(copies(fleet, web)) == 1


def test_to_report_of_the_copies_that_are_for_the_cell(fleet: Fleet) -> None:
    apply(fleet, workload("web"))
    [bound] = fleet.do(fleet.hub.client.list(WorkloadDeployment, namespace=cell_namespace(CELL))).items
    with pytest.raises(ApiError, match="is none of cell"):
        report(fleet, told(bound, changed=[instance(bound, 0)]))


def test_to_break_a_workload_elsewhere_by_numbers(fleet: Fleet) -> None:
    apply(fleet, workload("web", "lhr", "dfw"))
    fleet.down(CELL)
    most = (1 << 63) - 1
    names = ("readyReplicas", "currentReplicas", "updatedReplicas", "desiredReplicas", "cpuPercent")
    counts = {"replicas": (1 << 31) - 1, **dict.fromkeys(names, most)}
    status = msgspec.convert(counts, WorkloadDeploymentStatus)
    report(fleet, told(deployment(fleet, "web"), status=status, generation=1))
    apply(fleet, workload("web", "lhr", "dfw", replicas=2), seconds=10)
    found = fleet.do(fleet.hub.client.get(Workload, "web"))
    assert found.status is not None
    assert found.status.observed_generation == found.metadata.generation
    assert ready(fleet, "web") <= 2 * REPLICAS_MAX + 2


def used(fleet: Fleet) -> Any:
    status = fleet.do(fleet.hub.client.get(Quota, "default")).status
    return (status.used.instances, status.used.cpu) if status is not None and status.used is not None else None


def test_to_use_up_a_tenants_quota_from_a_cell(fleet: Fleet) -> None:
    """Instances that a cell reports without being asked for them take nothing of the tenant's quota elsewhere."""
    about = {"apiVersion": "rota.dev/v1alpha1", "kind": "Quota", "metadata": {"name": "default"}}
    apply(fleet, {**about, "spec": {"hard": {"instances": 4, "cpu": "4"}}}, seconds=5)
    apply(fleet, workload("web"))
    apply(fleet, workload("other", "dfw"))
    assert used(fleet) == (2, "2")
    fleet.down(CELL)
    web = deployment(fleet, "web")
    huge = [{"name": "main", "resources": {"limits": {"cpu": "1000000"}}}]
    gated = [{"name": HUB_QUOTA_GATE}]
    forged = [instance(web, n, containers=huge) for n in range(1, 40)]
    forged += [instance(web, n) for n in range(40, 80)]
    forged += [instance(web, n, schedulingGates=gated) for n in range(80, 120)]
    report(fleet, told(web, changed=forged))
    fleet.go(5)
    assert used(fleet) == (2, "2")
    apply(fleet, workload("other", "dfw", replicas=3))
    assert ready(fleet, "other") == 3
    assert used(fleet) == (4, "4")


def test_to_have_nobody_else_hear_of_anything(fleet: Fleet) -> None:
    """All Events go through one queue."""
    apply(fleet, workload("web"))
    fleet.down(CELL)
    web = deployment(fleet, "web")
    said: list[str] = []
    assert fleet.hub.reports is not None
    fleet.hub.reports._events = SimpleNamespace(record=lambda *words: said.append(words[2]))
    for number in range(20):
        events = [EventReport(reason=f"R{number}x{one}") for one in range(20)]
        report(fleet, *(told(web, events=events) for _ in range(10)))
    assert EVENTS_BURST <= len(said) < EVENTS_BURST + 20
    fleet.go(10)
    before = len(said)
    report(fleet, told(web, events=[EventReport(reason="Later")]))
    assert said[before:] == ["Later"]


VOLUMES = [{"name": f"v{i}", "configMap": {"name": f"map{i}"}, "mountPath": f"/data/v{i}"} for i in range(2)]


def contents(fleet: Fleet, site: Site, namespace: str = "default") -> list[Any]:
    return [one.data for one in fleet.do(site.client.list(ConfigMap, namespace=namespace)).items]


def test_to_multiply_what_workloads_refer_to(fleet: Fleet) -> None:
    """A megabyte, referred to by as many deployments as there can be, would fill the disk of the hub."""
    for i in range(2):
        fleet.do(fleet.hub.client.create(ConfigMap(metadata=ObjectMeta(name=f"map{i}"), data={"a": "1"})))
    apply(fleet, workload("one", placements=8, volumes=VOLUMES))
    apply(fleet, workload("two", placements=8, volumes=VOLUMES[:1]))
    bound = cell_namespace(CELL)
    assert len(contents(fleet, fleet.hub, bound)) == 2
    fleet.do(fleet.hub.client.patch(ConfigMap, "map0", {"data": {"a": "2"}}))
    fleet.go(LONG_SECONDS)
    assert {"a": "2"} in contents(fleet, fleet.cells[CELL])
    # What others still need stays, and nothing else.
    delete(fleet, "one")
    assert contents(fleet, fleet.hub, bound) == contents(fleet, fleet.cells[CELL]) == [{"a": "2"}]
    assert ready(fleet, "two") == 8


def test_to_find_secrets_of_former_tenants_in_a_cell(fleet: Fleet) -> None:
    """The next owner of a namespace of that name could refer to them there."""
    secret = Secret(metadata=ObjectMeta(name="pw"), string_data={"pw": "hunter2"})
    mounted: dict[str, Any] = {"volumes": [{"name": "s", "secret": {"name": "pw"}, "mountPath": "/data/s"}]}
    cell = fleet.cells[CELL]
    own = {"rota.dev/about": "somebody in the cell made this one"}
    fleet.do(cell.client.create(Secret(metadata=ObjectMeta(name="own", annotations=own))))

    def left() -> list[str]:
        return [one.metadata.name for one in fleet.do(cell.client.list(Secret)).items]

    fleet.do(fleet.hub.client.create(secret))
    apply(fleet, workload("web", **mounted))
    assert left() == ["own", "pw"]
    delete(fleet, "web")
    assert left() == ["own"]
    apply(fleet, workload("web", **mounted))
    apply(fleet, workload("web"))
    assert left() == ["own"]
    assert fleet.do(fleet.hub.client.list(Secret, namespace=cell_namespace(CELL))).items == []
    # Nor while one side was away.
    apply(fleet, workload("web", **mounted))
    fleet.down(CELL)
    delete(fleet, "web")
    fleet.up(CELL)
    fleet.go(LONG_SECONDS)
    assert left() == ["own"]


def test_a_secret_that_is_made_anew_takes_the_place_of_the_old_one(fleet: Fleet) -> None:
    """Otherwise a credential that was withdrawn stays in use, where the Secret was immutable."""
    mounted: dict[str, Any] = {"volumes": [{"name": "s", "secret": {"name": "pw"}, "mountPath": "/data/s"}]}
    for value in ("old", "new"):
        about = {"metadata": {"name": "pw"}, "type": f"example.com/{value}", "immutable": True}
        fleet.do(fleet.hub.client.create({"apiVersion": "v1", "kind": "Secret", **about, "stringData": {"a": value}}))
        apply(fleet, workload("web", **mounted))
        found = fleet.do(fleet.cells[CELL].client.get(Secret, "pw"))
        assert found.data == {"a": b64encode(value.encode()).decode()}
        fleet.do(fleet.hub.client.delete(Secret, "pw"))


@pytest.mark.parametrize("generation", ["9" * 5000, "²", "-1", "x", ""])
def test_to_stop_a_mirror_by_an_annotation(generation: str) -> None:
    annotations = {SOURCE_UID: "u", SOURCE_GENERATION: generation}
    found = source_of(Secret(metadata=ObjectMeta(name="s", annotations=annotations)))
    assert found is not None and found.generation == 0


def test_what_a_tenant_made_is_marked_at_the_hub_too(fleet: Fleet) -> None:
    made = workload("web")
    made["metadata"]["annotations"] = {"rota.dev/restricted": "true"}
    apply(fleet, made)
    [one] = copies(fleet, deployment(fleet, "web"))
    assert one.metadata.annotations["rota.dev/restricted"] == "true"


@pytest.mark.parametrize(
    "said", [b"<html>", b'{"hub":"\xff"}', b'{"hub":"h","more":' + b"[" * 9999 + b"]" * 9999 + b"}"]
)
def test_to_end_a_link_by_an_answer_that_is_none(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    async def answer(self: SimulatedHub, report: Report) -> Answer:
        return msgspec.json.decode(said, type=Answer)

    with monkeypatch.context() as patched:
        patched.setattr(SimulatedHub, "report", answer)
        fleet.go(LONG_SECONDS)
    fleet.go(LONG_SECONDS)
    assert is_heard(fleet)


def forged_deployment(name: str, source: dict[str, str]) -> WorkloadDeployment:
    """Make what somebody writes in a cell on a cluster, whose API server has no rules of Rota's for it."""
    annotations = {f"rota.dev/source-{what}": value for what, value in source.items()}
    spec = {"workloadRef": {"name": "w"}, "placementName": "p", "cityCode": "lhr", "cellName": CELL, "replicas": 0}
    template = {"spec": {"containers": [{"name": "main"}]}}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": {**spec, "template": template}}
    return msgspec.convert(body, WorkloadDeployment)


@pytest.mark.parametrize("what", ["another cell's", "no name", "a long name", "a long uid", "one uid"])
def test_to_silence_a_cell_by_what_only_looks_like_its_hubs(fleet: Fleet, what: str) -> None:
    """A cell whose reports are refused is lost, with all that others have there."""
    apply(fleet, workload("web"))
    apply(fleet, workload("elsewhere", "dfw"))
    there = deployment(fleet, "elsewhere", "dfw-1").metadata
    name, uid = {"a long name": "n" * 250}.get(what, "forged"), {"a long uid": "u" * 300}.get(what, "u")
    names = [there.name] if what == "another cell's" else [f"{name}{number}" for number in range(100, 160)]
    for each in names:
        source = {"namespace": there.namespace, "name": each, "uid": uid}
        if what == "another cell's":
            source["uid"] = there.uid
        if what == "no name":
            source["name"] = ""
        fleet.do(fleet.cells[CELL].client.create(forged_deployment(each, source)))
    apply(fleet, workload("web", replicas=3))
    assert is_heard(fleet)
    assert ready(fleet, "web") == 3
    assert ready(fleet, "elsewhere") == 1


def test_to_silence_a_cell_by_an_instance_that_its_hub_refuses(fleet: Fleet) -> None:
    apply(fleet, workload("web"))
    apply(fleet, workload("other"))
    cell = fleet.cells[CELL]
    [web] = [one for one in fleet.do(cell.client.list(WorkloadDeployment)).items if one.spec.workload_ref.name == "web"]
    owner = {
        "apiVersion": web.api.api_version,
        "kind": web.api.name,
        "name": web.metadata.name,
        "uid": web.metadata.uid,
    }
    body = {"templateHash": "h", "ordinal": 0, "containers": [{"name": "main"}]}
    for number in range(60):
        owners = [{**owner, "controller": True}]
        meta = {"name": f"evil{number}", "ownerReferences": owners, "finalizers": ["example.com/stay"]}
        fleet.do(cell.client.create(msgspec.convert({"metadata": meta, "spec": body}, Instance)))
    apply(fleet, workload("other", replicas=3))
    assert is_heard(fleet)
    assert ready(fleet, "other") == 3
