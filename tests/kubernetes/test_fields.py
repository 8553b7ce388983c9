"""Every field of every kind: absent, null, of each wrong type, just inside and just outside each of its bounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rota.api import KINDS, Kind
from rota.api.schema import object_schema
from tests.corpus import Corpus, Variant, places, spots
from tests.examples import examples
from tests.kubernetes.comparison import Both

CUSTOM = [kind for kind in KINDS.values() if kind.custom]
KINDS_OF_ROTA = pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.name)


@KINDS_OF_ROTA
def test_the_examples_set_every_field(kind: Kind) -> None:
    schema = object_schema(kind)
    covered = {spot.place for obj in examples(kind.name) for spot in spots(schema, obj)}
    assert set(places(schema)) <= covered


@KINDS_OF_ROTA
async def test_new_objects_are_judged_and_stored_alike(both: Both, corpus: Corpus, kind: Kind) -> None:
    for obj in examples(kind.name):
        assert (await both.create("example", obj)).accepted
        for variant in corpus.variants(object_schema(kind), obj, "spec"):
            await both.create(*variant)


@KINDS_OF_ROTA
async def test_status_is_judged_and_stored_alike(both: Both, corpus: Corpus, kind: Kind) -> None:
    least = examples(kind.name)[0]
    least["metadata"]["name"] = "status"
    assert (await both.create("example", least, dry_run=False)).accepted
    full = next(obj for obj in examples(kind.name) if "status" in obj)
    for what, obj in [Variant("example", full), *corpus.variants(object_schema(kind), full, "status")]:
        await both.update(what, kind, "status", partial(put_status, obj.get("status")), subresource="status")


def put_status(status: Any, live: dict[str, Any]) -> None:
    live["status"] = status
