"""Random objects get the same verdict from both."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rota.api import KINDS
from tests.kubernetes.comparison import Both
from tests.kubernetes.server import Client
from tests.random_objects import Object, objects

CUSTOM = sorted(name for name, kind in KINDS.items() if kind.custom)
EXAMPLES_MAX = 300
SETTINGS = settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    database=None,
    # Without shrinking: every difference is reported as it is.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


async def test_random_objects_are_judged_and_stored_alike(both: Both, client: Client) -> None:
    collected: list[Object] = []

    @SETTINGS
    @given(st.sampled_from(CUSTOM).flatmap(lambda name: objects(KINDS[name])))
    def collect(obj: Object) -> None:
        collected.append(obj)

    collect()
    for obj in collected:
        await both.create(repr(obj), obj)
