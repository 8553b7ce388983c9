"""Payloads are compared as what they are in JSON: on a registry, on a server and on a real Kubernetes API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deploy.world import World

BEGIN = """\
name: shop
functions:
  - name: f
    entrypoint: a:b
    source: {inline: x}
    schedules:
      - name: s
        cron: '@daily'
        payload: """
BEYOND_64_BITS = 123456789012345678901234567890


async def deploy(world: World, payload: str) -> int:
    return (await world.deploy(f"{BEGIN}{payload}\n")).writes


async def payload(world: World) -> Any:
    return (await world.get("Schedule", "f.s"))["spec"].get("payload")


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("{a: 1, b: {c: 2, d: 3}}", "{b: {d: 3, c: 2}, a: 1}"),
        ("{a: 1}", "{a: 1.0}"),
        ("{a: 100}", "{a: 1.0e+2}"),
        ("{a: 0x10}", "{a: 16}"),
        ("{a: é}", '{a: "\\u00e9"}'),
        ("{a: x}", "{'a': \"x\"}"),
        ("{a: null}", "{a: }"),
        ("{}", "{}"),
    ],
)
async def test_what_is_the_same_in_json_is_no_change(world: World, one: str, same: str) -> None:
    await deploy(world, one)
    before = await world.versions()
    assert (await deploy(world, one), await deploy(world, same)) == (0, 0)
    assert await world.versions() == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{a: 1}", "{a: true}"),
        ("{a: 0}", "{a: false}"),
        ("{a: 1}", "{a: '1'}"),
        ("{a: null}", "{}"),
        ("{a: 1, b: 2}", "{a: 1}"),
        ("{a: [1, 2]}", "{a: [2, 1]}"),
        ("{a: {b: null}}", "{a: {}}"),
        ('{a: "\\u00e9"}', '{a: "e\\u0301"}'),
        ("{a: 9007199254740993}", "{a: 9007199254740992}"),
        ("{a: ''}", "{a: null}"),
    ],
)
async def test_what_is_not_is_one_change_and_then_none(world: World, one: str, other: str) -> None:
    for declared in (one, other, one):
        assert await deploy(world, declared) > 0
        assert await deploy(world, declared) == 0
        expected = world.project(f"{BEGIN}{declared}\n").manifests[1].object["spec"]["payload"]
        assert json.dumps(await payload(world)) == json.dumps(expected)


@pytest.mark.parametrize("number", [BEYOND_64_BITS, -(2**63) - 1, 2**64, 1e30, 1.5e-10, -0.0])
async def test_numbers_that_a_server_rounds_converge_all_the_same(world: World, number: float) -> None:
    await deploy(world, f"{{a: {json.dumps(number)}}}")
    assert await deploy(world, f"{{a: {json.dumps(number)}}}") == 0
    assert (await payload(world))["a"] == pytest.approx(number)
