"""To get what is small: a write that is said to be none, a claim that outlives its token, names that do not fit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.api import Claim
from rota.api.conflicts import LABEL_NAME_MAX
from rota.control.instances.names import derived
from rota.registry import Registry, WriteOptions
from rota.server.claims import MAKER
from rota.store import MemoryStore
from tests.attacks.conftest import TENANT, Deployer

CONFIG = f"/api/v1/namespaces/{TENANT}/configmaps"


@pytest.mark.parametrize("query", ["dryRun=All&dryRun=", "dryRun=&dryRun=All", "dryRun=All&dryRun=x", "dryRun=all"])
async def test_to_write_while_it_is_said_to_be_a_dry_run(attacker: Deployer, query: str) -> None:
    note = {"metadata": {"name": "x"}}
    refused = await attacker.ask("POST", f"{CONFIG}?{query}", note)
    assert (refused.status, 'supported values: "All"' in refused.json["message"]) == (422, True)
    assert (await attacker.ask("GET", f"{CONFIG}/x")).status == 404
    assert (await attacker.ask("POST", CONFIG, note)).status == 201
    assert (await attacker.ask("DELETE", f"{CONFIG}/x?{query}")).status == 422
    mixed = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    assert (await attacker.ask("DELETE", f"{CONFIG}/x?dryRun=x", mixed)).status == 422
    assert (await attacker.ask("DELETE", f"{CONFIG}/x?dryRun=All&dryRun=All")).status == 200
    assert (await attacker.ask("GET", f"{CONFIG}/x")).status == 200


OWN = {MAKER: "the-token", "rota.dev/attended": "true"}
TYPES: list[tuple[str, Any]] = [
    ("merge", {"metadata": {"annotations": {MAKER: None}}}),
    ("merge", {"metadata": {"annotations": None}}),
    ("merge", {"metadata": {"annotations": {MAKER: "another"}}}),
    ("merge", {"metadata": {"annotations": {"rota.dev/attended": None, "rota.dev/more": "1"}}}),
    ("json", [{"op": "remove", "path": f"/metadata/annotations/{MAKER.replace('/', '~1')}"}]),
    ("json", [{"op": "replace", "path": "/metadata/annotations", "value": {}}]),
]


@pytest.mark.parametrize(("type_", "patch"), TYPES, ids=lambda one: str(one)[:60])
async def test_to_keep_a_claim_when_its_token_is_revoked(type_: Any, patch: Any) -> None:
    """The claims of a token that is revoked are found by an annotation, which its holder must not take away."""
    registry = Registry(MemoryStore())
    await registry.start()
    tenant = WriteOptions("m", restricted=True, user="u")
    body = {"apiVersion": Claim.api.api_version, "kind": "Claim", "spec": {"poolRef": {"name": "p"}}}
    made = {**body, "metadata": {"name": "c", "annotations": {**OWN, "mine": "1"}}}
    await registry.create(Claim.api, "default", made, WriteOptions("rota"))
    await registry.patch(Claim.api, "default", "c", patch, tenant, type_=type_)
    kept = marks(registry, "c")
    assert {key: value for key, value in kept.items() if key in OWN} == OWN
    assert "rota.dev/more" not in kept
    # Nor is it somebody's to say so of a new one.
    forged = {**body, "metadata": {"name": "d", "annotations": {**OWN, "mine": "1"}}}
    await registry.create(Claim.api, "default", forged, tenant)
    assert marks(registry, "d") == {"mine": "1", "rota.dev/restricted": "true"}
    # Annotations of one's own can be changed.
    await registry.patch(Claim.api, "default", "c", {"metadata": {"annotations": {"mine": "2"}}}, tenant)
    assert marks(registry, "c")["mine"] == "2"
    await registry.stop()


def marks(registry: Registry, name: str) -> dict[str, str]:
    stored = msgspec.json.decode(registry.get(Claim.api, "default", name).value)
    found: dict[str, str] = stored["metadata"]["annotations"]
    return found


@pytest.mark.parametrize("name", ["a" * 63, "a" * 64, "a.b" * 60, "a" * 253], ids=len)
def test_the_label_of_a_workload_fits_whatever_its_name(name: str) -> None:
    label = derived(name)
    assert len(label) <= LABEL_NAME_MAX
    assert (label == name) is (len(name) <= LABEL_NAME_MAX and "." not in name)
