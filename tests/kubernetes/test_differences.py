"""Every documented difference is there, and every one that is there is documented."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rota.api import KINDS
from tests.corpus import replaced
from tests.examples import examples
from tests.kubernetes.comparison import Both
from tests.kubernetes.differences import KNOWN

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"

Provoke = Callable[[Both], Awaitable[object]]


def creating(kind: str, *path: str, value: Any, dry_run: bool = True) -> Provoke:
    """Make an object that has a certain value at a path."""

    async def provoke(both: Both) -> None:
        await both.create("provoking", replaced(examples(kind)[0], path, value), dry_run=dry_run)

    return provoke


async def write_a_status_of_another_kind(both: Both) -> None:
    await both.create("example", examples("Quota")[0], dry_run=False)
    await both.update("another kind", KINDS["Quota"], "example", _call_it_a_pod, subresource="status")


def _call_it_a_pod(live: dict[str, Any]) -> None:
    live["kind"] = "Pod"


PROVOKED: dict[str, Provoke] = {
    "A list where a time is wanted": creating("Claim", "spec", "renewTime", value=[]),
    "Owners of fields beside a malformed status": creating("Quota", "status", value=[]),
    "The last instant of the year 9999": creating("Claim", "spec", "renewTime", value="9999-12-31T23:59:59.9999999Z"),
    "Whole numbers with a fraction, read by a rule": creating("Function", "spec", "scale", value={"min": 1.0}),
    "A version that makes no sense": creating("Quota", "metadata", "resourceVersion", value="1", dry_run=False),
    "Another kind, sent to a status": write_a_status_of_another_kind,
    "The generation of a core kind": creating("ConfigMap", "metadata", "generation", value=7),
    "Empty fields of Events": creating("Event", "reason", value="Made"),
    "Bounds on the texts of Events and Leases": creating("Event", "reason", value="a" * 2000),
    "Bytes written as a list": creating("Secret", "data", value={"a": []}),
    "More than a thousand causes": creating("Function", "spec", "requirements", value=[7] * 1100),
    "Checks that CEL cannot express": creating("Schedule", "spec", "timeZone", value="Mars/Base"),
}


@pytest.mark.parametrize("name", KNOWN)
async def test_it_is_still_there(both: Both, name: str) -> None:
    await PROVOKED[name](both)
    assert both.explained == {name}


def test_the_page_lists_exactly_these() -> None:
    assert re.findall("^## (.*)$", PAGE.read_text(), re.MULTILINE) == list(KNOWN)
