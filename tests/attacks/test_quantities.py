"""To break what counts by amounts that are too large to be counted."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS, WorkerPool
from rota.api.cell import QuotaStatus
from rota.api.form import form
from rota.api.quantity import parse_quantity
from rota.control.instances.template import Size
from rota.control.quotas.amounts import amount_of, parsed, used_of
from rota.registry import ApiError, Registry, WriteOptions
from rota.store import MemoryStore

INT_MAX = 2**63 - 1
LARGEST = ["7.999999999Ei", "7.9E", "999P", "999Pi", "9e17", "999999999e9", "9" * 18, 10**18, "9" * 18 + ".9"]
TOO_LARGE = ["1e1001", "1e1000", "1e300", "1e18", "1e-1000", "8Ei", "9E", "1000P", "9" * 64, "9" * 19, 10**18 + 1]
USUAL = ["0", "2", "500m", "100n", "1.5Gi", "64Gi", "2e3", "12E0", ".5", "5.", "+1", "1k", "128974848", "0.1", 0, 4]


def quantities(schema: Any, path: str = "") -> list[tuple[str, Any]]:
    """All fields of a schema that are a quantity, with what is asked of them."""
    if not isinstance(schema, dict):
        return []
    found = [(path, schema)] if schema.get("x-kubernetes-int-or-string") else []
    for name, inner in schema.get("properties", {}).items():
        found += quantities(inner, f"{path}.{name}")
    return found + quantities(schema.get("items"), f"{path}[]") + quantities(schema.get("additionalProperties"), path)


def pool(cpu: Any = None, size: Any = None) -> dict[str, Any]:
    limits = {"cpu": cpu} if cpu is not None else {}
    container = {"name": "a", "command": ["x"], "resources": {"limits": limits}}
    template = {"containers": [container]} | ({"storage": {"size": size, "path": "/data"}} if size is not None else {})
    meta = {"name": "p"}
    spec = {"replicas": 0, "template": template}
    return {"apiVersion": WorkerPool.api.api_version, "kind": "WorkerPool", "metadata": meta, "spec": spec}


@pytest.mark.parametrize("text", [*LARGEST, *USUAL], ids=str)
def test_what_is_taken_can_be_counted(text: Any) -> None:
    assert 0 <= parse_quantity(str(text)).nanos // 10**9 <= INT_MAX


@pytest.mark.parametrize("text", [*LARGEST, *USUAL, *TOO_LARGE], ids=lambda one: str(one)[:24])
async def test_to_have_an_amount_kept_that_nobody_can_count(text: Any) -> None:
    registry = Registry(MemoryStore())
    await registry.start()
    for sent, field in ((pool(cpu=text), "limits.cpu"), (pool(size=text), "storage.size")):
        if text in TOO_LARGE:
            with pytest.raises(ApiError, match=field) as refused:
                await registry.create(WorkerPool.api, "default", sent, WriteOptions("m", dry_run=True))
            assert refused.value.code == 422
        elif text not in ("0", 0):
            await registry.create(WorkerPool.api, "default", sent, WriteOptions("m", dry_run=True))
    await registry.stop()


def test_every_amount_of_every_kind_has_the_bound() -> None:
    found = [one for kind in KINDS.values() for one in quantities(form(kind).schema, kind.name)]
    assert len(found) > 10
    amounts = {(path, schema["maximum"], schema["pattern"]) for path, schema in found if "port" not in path.lower()}
    assert {(most, pattern) for _, most, pattern in amounts} == {(10**18, next(iter(amounts))[2])}


def test_what_is_used_is_written_so_that_it_can_be_read_again() -> None:
    largest = Size(16 * INT_MAX * 10**9 + 1, 16 * INT_MAX, INT_MAX)
    for number in (1, 10**9):
        amount = amount_of(largest)._replace(instances=0).plus(amount_of(largest), number)
        used = used_of(amount)
        assert parsed(used) == amount
        assert all(len(text or "") <= 64 for text in (used.cpu, used.memory, used.storage))
        assert QuotaStatus(used=used).used == used
