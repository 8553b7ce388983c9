"""To stop the server with answers that are as large, or take as long, as a tenant likes."""

from __future__ import annotations

from difflib import get_close_matches

import pytest

from rota.server import claims
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.server.conftest import Server


def pool(name: str) -> dict[str, object]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"worker": {"type": "shell"}, "replicas": 0},
    }


async def test_to_have_the_names_of_all_pools_compared(
    bare: Server, attacker: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a millisecond, and there may be thousands: whoever asks for one that is not there stops everybody."""
    compared: list[int] = []

    def counted(name: str, there: list[str], most: int) -> list[str]:
        compared.append(len(there))
        return get_close_matches(name, there, most)

    monkeypatch.setattr(claims, "get_close_matches", counted)
    for number in range(claims.NAMED_MAX + 1):
        answer = await attacker.ask("POST", f"{API}/{TENANT}/workerpools", pool(f"pool-{number}"))
        assert answer.status == 201
        asked = await attacker.ask("GET", f"/v1/pools/{TENANT}/pool/claims")
        assert asked.status == 404 and "no WorkerPool" in asked.json["message"]
    assert max(compared) == claims.NAMED_MAX


async def test_to_have_all_claims_of_a_pool_in_one_answer(bare: Server, attacker: Deployer) -> None:
    """A thousand of them, of a megabyte each, would be the memory of the server."""
    assert (await attacker.ask("POST", f"{API}/{TENANT}/workerpools", pool("some"))).status == 201
    large = {"a": "x" * 200_000}
    for number in range(25):
        body = {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "Claim",
            "metadata": {"name": f"claim-{number}", "annotations": large},
            "spec": {"poolRef": {"name": "some"}, "holder": "deployer-of-tenant"},
        }
        made = await attacker.ask("POST", f"{API}/{TENANT}/claims", body)
        assert made.status == 201, made.json
    viewer = await deployer(bare, scope="viewer")
    listed = (await viewer.ask("GET", f"/v1/pools/{TENANT}/some/claims")).json
    assert sum(len(one["metadata"]["annotations"]["a"]) for one in listed["claims"]) <= claims.LISTED_BYTES_MAX
    assert listed["claims"] and listed["remaining"] and len(listed["claims"]) + listed["remaining"] == 25
