"""By templates that ask for much with few characters."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import msgspec
import pytest

from rota.api.parts import EnvVar
from rota.api.spawner import WebhookSource
from rota.api.task import Dependency, FunctionCall, TaskSpec
from rota.api.templates import TemplateError
from rota.api.templates.items import fill, resolver
from rota.control.spawners.items import Item
from rota.control.spawners.webhook import BadBody, item_of
from rota.control.tasks.templating import given, given_environment, given_payload

MEMORY_BYTES_MAX = 32 << 20
SECONDS_MAX = 1.0
LARGE = {"a": "x" * 900_000}
"""As large as a delivery can be, about."""
MANY: dict[str, Any] = {"l": [{}] * 200_000}
OUTPUT = "x" * 4096


def source(**fields: Any) -> WebhookSource:
    return msgspec.convert({"secretRef": {"name": "hook"}, **fields}, WebhookSource)


TEMPLATES = {
    "a prompt": {"prompt": "{{item}}" * 200},
    "a field": {"prompt": "{{ item.a }}" * 200},
    "variables": {"worker": {"env": [{"name": f"V{i}", "value": "{{item}}"} for i in range(200)]}},
    "a command": {"command": ["{{item}}"] * 200},
    "a payload": {"function": {"payload": {"l": ["{{item}}"] * 200}}},
}


@pytest.mark.parametrize("what", TEMPLATES)
def test_to_fill_the_memory_with_one_delivery(what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            fill(TEMPLATES[what], resolver(LARGE))
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()


SOURCES = {
    "filters": source(filters=[{"path": "$event", "values": [""]}] * 60 + [{"path": "l.a.b", "values": ["x"]}] * 4),
    "different paths": source(map={f"f{i}": f"l.a{i}" for i in range(64)}),
    "values": source(filters=[{"path": "l", "values": ["x"] * 64}]),
}


@pytest.mark.parametrize("what", SOURCES)
def test_to_keep_the_server_busy_with_one_delivery(what: str) -> None:
    body = json.dumps(MANY).encode()
    began = time.perf_counter()
    with pytest.raises(BadBody):
        item_of(SOURCES[what], {}, body)
    assert time.perf_counter() - began < SECONDS_MAX


def test_to_keep_the_server_busy_with_a_path_that_comes_again() -> None:
    list_ = [{"a": "x"}, *([{}] * 40_000)]
    began = time.perf_counter()
    filled = fill({"prompt": "{{item.l.a}}" * 5_000}, resolver({"l": list_}))
    assert filled["prompt"] == '["x"]' * 5_000 and time.perf_counter() - began < SECONDS_MAX


def test_to_break_the_server_by_lists_within_lists() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    try:
        found = item_of(source(map={"f": "l.a"}), {}, json.dumps({"l": deep}).encode())
    except BadBody:
        return
    assert isinstance(found, Item)


def test_to_fill_the_memory_with_the_results_of_one_task() -> None:
    known = [Dependency(name="a", uid="uid", phase="Succeeded", outputs={"k": OUTPUT})]
    asking = "{{tasks.a.outputs.k}}" * 3_000
    payload = {"l": ["{{tasks.a.outputs.k}}"] * 3_000}
    spec = TaskSpec(prompt=asking, depends_on=["a"])
    called = TaskSpec(function=FunctionCall(name="f", payload=payload), depends_on=["a"])
    for doing in (
        lambda: given(spec, known),
        lambda: given_payload(called, known),
        lambda: given_environment([EnvVar(name="V", value=asking)], known),
    ):
        with pytest.raises(TemplateError):
            doing()
