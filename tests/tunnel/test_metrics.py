"""A hub and its cell in numbers, as admins of both read them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from rota.api import Cell, Workload
from rota.client import Client
from rota.client.http import HttpBackend
from rota.server.http import Response
from rota.server.membership import join
from tests.server.conftest import Server, served
from tests.tunnel.both import CELL, NAME, SPEC, Both, object_of
from tests.until import until_async

PAGE = Path(__file__).parents[2] / "docs/howto/operator.md"
NOWHERE = {
    "template": {"spec": {"containers": SPEC["containers"]}},
    "placements": [{"name": "one", "cityCodes": ["xyz"], "scale": {"min": 1}}],
}


async def text_of(server: Server) -> str:
    return (await server.ask("GET", "/v1/metrics")).body.decode()


async def counted(server: Server, start: str) -> dict[str, float]:
    found = (line.rpartition(" ") for line in (await text_of(server)).splitlines() if line.startswith(start))
    return {name: float(value) for name, _, value in found}


async def test_sessions_and_bytes_of_tunnels_are_counted_by_cell(both: Both) -> None:
    both.connect()
    await both.connected()
    before = await counted(both.server, "rota_tunnel")
    both.serve = lambda request, user: Response(200, b"x" * 1000, "application/octet-stream")
    assert (await both.code(f"/v1/instances/default/{NAME}/files?path=/a"))[0] == 200
    after = await counted(both.server, "rota_tunnel")
    sessions = f'rota_tunnel_sessions_total{{cell="{CELL}"}}'
    received = f'rota_tunnel_bytes_total{{cell="{CELL}",direction="from"}}'
    assert after[sessions] - before[sessions] == 1
    assert after[received] - before[received] == 1000

    async def is_over() -> bool:
        return not await counted(both.server, "rota_tunnel_sessions{")

    await until_async(is_over)
    # What was counted of a cell goes with it.
    await both.hub.delete(Cell, CELL)

    async def is_gone() -> bool:
        return not [one for one in await counted(both.server, "rota_tunnel") if CELL in one]

    await until_async(is_gone)


async def test_a_hub_and_its_cell_count_their_reports_and_the_manual_names_every_metric(tmp_path: Path) -> None:
    async with served(tmp_path / "hub", no_cell=True) as hub:
        client = Client.connect(home=hub.home)
        try:
            await client.create(object_of(Cell, CELL, {"cityCode": "ber"}))
            await client.create(object_of(Workload, "web", NOWHERE))
            assert isinstance(client.backend, HttpBackend)
            invited = msgspec.json.decode((await client.backend.raw("POST", f"/v1/cells/{CELL}/invite")).body)
        finally:
            await client.close()
        given = {"authority": invited["authority"], "token": invited["token"]}
        await join(tmp_path / "cell", cell=CELL, city="ber", hub=hub.url, **given)
        async with served(tmp_path / "cell") as cell:

            async def has_reported() -> bool:
                return (await counted(cell, "rota_hub_reports_total")).get(
                    'rota_hub_reports_total{outcome="Taken"}', 0
                ) > 0

            await until_async(has_reported)
            [age] = (await counted(cell, "rota_hub_contact_age_seconds")).values()
            assert 0 <= age < 60
            [lag] = (await counted(hub, f'rota_cell_report_age_seconds{{cell="{CELL}"}}')).values()
            assert 0 <= lag < 60
            taken = await counted(hub, f'rota_cell_reports_total{{cell="{CELL}",outcome="Taken"}}')
            assert next(iter(taken.values())) > 0
            decided = await counted(hub, "rota_placement_decisions_total")
            assert [*decided] == ['rota_placement_decisions_total{reason="LocationNotFound"}']
            shown = await text_of(hub) + await text_of(cell)
    names = {line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE ")}
    assert {"rota_placement_decisions_total", "rota_quota_waiting", "rota_hub_resyncs_total"} <= names
    assert names - {*re.findall(r"`(rota_[a-z_]+)`", PAGE.read_text())} == set()
