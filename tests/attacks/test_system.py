"""To stop the controllers of everybody, by what they keep among the objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.api import Lease
from rota.registry import Registry, WriteOptions
from rota.registry.system import LEASE_NAME, SYSTEM_NAMESPACE, establish
from rota.store import MemoryStore
from tests.attacks.conftest import Deployer, deployer
from tests.server.conftest import Server, served
from tests.until import until_so

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
HELD = {"holderIdentity": "nobody", "leaseDurationSeconds": 1_000_000, "renewTime": "2026-01-01T00:00:00.000000Z"}


async def everywhere(server: Server, scope: str) -> Deployer:
    made = await server.ask("POST", "/v1/tokens", {"name": f"{scope}-of-all", "scope": scope})
    return Deployer(server, made.json["token"])


async def test_to_take_the_lease_of_the_controllers(tmp_path: Path) -> None:
    async with served(tmp_path / "home") as server:
        lease = f"{LEASES.format(SYSTEM_NAMESPACE)}/{LEASE_NAME}"
        found = await until_so(lambda: server.ask("GET", lease), lambda reply: reply.status != 404, "the lease")
        assert found.json["spec"]["holderIdentity"]
        attackers = [await deployer(server, "default"), await everywhere(server, "deployer")]
        merge = {"Content-Type": "application/merge-patch+json"}
        for attacker in attackers:
            assert (await attacker.ask("GET", lease)).status == 403
            assert (await attacker.ask("PATCH", lease, {"spec": HELD}, headers=merge)).status == 403
            assert (await attacker.ask("DELETE", lease)).status == 403
            assert (await attacker.ask("DELETE", LEASES.format(SYSTEM_NAMESPACE))).status == 403
            gone = {"verb": "delete", "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": LEASE_NAME}
            batch = {"operations": [{**gone, "namespace": SYSTEM_NAMESPACE}]}
            assert (await attacker.ask("POST", "/v1/batch", batch)).status == 403
        # One of that name in their own namespace is nothing to anybody.
        body = {"metadata": {"name": LEASE_NAME}, "spec": HELD}
        assert (await attackers[0].ask("POST", LEASES.format("default"), body)).status == 201
        assert (await server.ask("GET", "/v1/why/namespaces/default")).status != 503
        # Nor does an admin remove it by mistake.
        assert (await server.ask("DELETE", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}")).status == 403


async def test_to_see_what_the_control_plane_keeps(bare: Server) -> None:
    secret = {"metadata": {"name": "hidden"}, "stringData": {"a": "b"}}
    assert (await bare.ask("POST", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets", secret)).status == 201
    for scope, kinds in {"deployer": ("secrets", "configmaps"), "viewer": ("configmaps",)}.items():
        one = await everywhere(bare, scope)
        for kind in kinds:
            listed = await one.ask("GET", f"/api/v1/{kind}")
            assert listed.status == 200
            assert all(each["metadata"]["namespace"] != SYSTEM_NAMESPACE for each in listed.json["items"])
            hers = f"/api/v1/{kind}?fieldSelector=metadata.namespace={SYSTEM_NAMESPACE}"
            assert (await one.ask("GET", hers)).json["items"] == []
        listed = await one.ask("GET", "/api/v1/namespaces")
        assert SYSTEM_NAMESPACE not in {each["metadata"]["name"] for each in listed.json["items"]}
    assert "hidden" in (await bare.ask("GET", "/api/v1/secrets")).body.decode()


async def test_to_learn_which_other_namespaces_there_are(bare: Server, attacker: Deployer) -> None:
    await bare.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "competitor"}})
    listed = await attacker.ask("GET", "/api/v1/namespaces")
    assert [one["metadata"]["name"] for one in listed.json["items"]] == ["tenant"]
    assert (await attacker.ask("GET", "/api/v1/namespaces/tenant")).status == 200
    assert (await attacker.ask("GET", "/api/v1/namespaces/competitor")).status == 403
    assert (await attacker.ask("GET", "/api/v1/namespaces/absent")).status == 403


@pytest.mark.parametrize("scope", ["deployer", "viewer", "function", "worker"])
async def test_to_have_a_token_for_the_system(bare: Server, scope: str) -> None:
    wanted = {"name": "sly", "scope": scope, "namespace": SYSTEM_NAMESPACE}
    refused = await bare.ask("POST", "/v1/tokens", wanted)
    assert refused.status == 400 and "admin" in refused.json["message"]


async def moved(spec: dict[str, Any]) -> Registry:
    registry = Registry(MemoryStore())
    await registry.start()
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE_NAME}, "spec": spec}
    await registry.create(Lease.api, "default", body, WriteOptions("test"))
    await establish(registry)
    return registry


async def test_a_store_of_an_earlier_release_keeps_its_lease() -> None:
    registry = await moved({**HELD, "leaseTransitions": 7})
    found = Lease.decode(registry.get(Lease.api, SYSTEM_NAMESPACE, LEASE_NAME).value).spec
    assert found is not None and (found.holder_identity, found.lease_transitions) == ("nobody", 7)
    # Whoever wrote it cannot have meant that nobody may lead for days.
    assert (found.lease_duration_seconds or 0) <= 60
    assert registry.store.head(Lease.api.key("default", LEASE_NAME)) is None
    # What somebody makes there afterwards is theirs, and stays.
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE_NAME}, "spec": HELD}
    await registry.create(Lease.api, "default", body, WriteOptions("test"))
    await establish(registry)
    assert registry.store.head(Lease.api.key("default", LEASE_NAME)) is not None
    await registry.stop()
