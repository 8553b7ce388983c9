"""A real API server takes the CustomResourceDefinitions as they are."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api.crd import crds
from tests.kubernetes.conftest import CRD_PATH
from tests.kubernetes.server import Client

CRDS = pytest.mark.parametrize("crd", crds(), ids=lambda crd: crd["spec"]["names"]["kind"])


@CRDS
def test_it_is_structural_and_established(client: Client, crd: dict[str, Any]) -> None:
    stored = client.send("GET", f"{CRD_PATH}/{crd['metadata']['name']}").body
    conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@CRDS
def test_nothing_of_its_schema_is_lost(client: Client, crd: dict[str, Any]) -> None:
    stored = client.send("GET", f"{CRD_PATH}/{crd['metadata']['name']}").body
    (sent,), (kept,) = crd["spec"]["versions"], stored["spec"]["versions"]
    assert kept["schema"] == sent["schema"]
    assert kept.get("selectableFields") == sent.get("selectableFields")
    assert kept["subresources"] == sent["subresources"]
