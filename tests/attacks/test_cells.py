"""To be a cell that one is not, or more than a cell may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api import Cell, InstanceType, Location, ObjectMeta, Secret, WorkloadDeployment
from rota.client import Client
from rota.client.credentials import Credential, Fixed
from rota.client.http import HttpBackend
from rota.client.target import Tls, at_url
from rota.control.cells.intake import WAITING_MAX
from rota.control.cells.messages import REPORT_BYTES_MAX, Answer, Report
from rota.control.cells.reports import Reports
from rota.registry import ApiError, WatchOptions
from rota.server.main import Ready, run
from rota.server.membership import Member, NotJoined, join

CELL = {"apiVersion": "rota.dev/v1alpha1", "kind": "Cell", "spec": {"cityCode": "ber"}}
ANOTHER = f"sha256:{'0' * 64}"


class Hub:
    """A server, and what its admin has in the terminal."""

    def __init__(self, home: Path, ready: Ready, client: Client) -> None:
        self.home = home
        self.url = ready.url
        self.client = client

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        assert isinstance(self.client.backend, HttpBackend)
        answer = await self.client.backend.raw(method, path, msgspec.json.encode(body) if body is not None else None)
        return msgspec.json.decode(answer.body)

    async def invite(self, name: str) -> dict[str, str]:
        found: dict[str, str] = await self.ask("POST", f"/v1/cells/{name}/invite")
        return found

    async def join(self, home: Path, name: str = "ber-1", **more: Any) -> None:
        invited = await self.invite(name)
        given = {"authority": invited["authority"], "token": invited["token"], "city": "ber", "hub": self.url, **more}
        await join(home, cell=name, **given)

    def as_(self, token: str) -> HttpBackend:
        tls = Tls((self.home / "ca.crt").read_text())
        return HttpBackend(at_url(self.url, tls=tls, credentials=Fixed(Credential(token))))


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    home = tmp_path / "hub"
    serving = asyncio.create_task(run(home, port=0, no_cell=True, on_ready=ready.set_result, stop=stop))
    done, _ = await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    if serving in done:
        serving.result()
    client = Client.connect(home=home)
    for name in ("ber-1", "ber-2"):
        await client.create({**CELL, "metadata": {"name": name}})
    yield Hub(home, ready.result(), client)
    await client.close()
    stop.set()
    await serving


async def refused(calling: Any) -> int:
    with pytest.raises(ApiError) as error:
        await calling
    return error.value.code


def token_of(home: Path) -> str:
    return (home / "hub.token").read_text()


def report(identity: str = "a", **more: Any) -> bytes:
    return msgspec.json.encode({"identity": identity, "boot": 1, "sequence": 1, **more})


async def test_to_use_an_invitation_twice(hub: Hub, tmp_path: Path) -> None:
    invited = await hub.invite("ber-1")
    given = {"cell": "ber-1", "city": "ber", "hub": hub.url, "authority": invited["authority"]}
    await join(tmp_path / "one", **given, token=invited["token"])
    with pytest.raises(NotJoined, match="has been used"):
        await join(tmp_path / "two", **given, token=invited["token"])
    assert Member(tmp_path / "two").read() is None


async def test_a_server_of_its_own_does_not_become_a_cell(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "rota.db").touch()
    with pytest.raises(NotJoined, match=r"is a server of its own.*--home"):
        await hub.join(tmp_path / "own")
    assert Member(tmp_path / "own").read() is None


async def test_to_have_a_cell_join_somebody_elses_hub(hub: Hub, tmp_path: Path) -> None:
    """The token must not be sent to whoever answers."""
    with pytest.raises(NotJoined, match=r"another certificate authority.*Nothing was sent"):
        await hub.join(tmp_path / "one", authority=ANOTHER)
    # And with the right one it still is good: nobody has seen it.
    await hub.join(tmp_path / "one")


async def test_to_do_anything_but_join_with_an_invitation(hub: Hub) -> None:
    invited = await hub.invite("ber-1")
    backend = hub.as_(invited["token"])
    client = Client(backend, namespace="rota-cell-ber-1")
    try:
        for kind in (Secret, WorkloadDeployment, Cell, Location, InstanceType):
            assert await refused(client.list(kind)) == 403
        assert await refused(backend.raw("POST", "/v1/cells/ber-1/report", report())) == 403
        assert await refused(backend.raw("POST", "/v1/cells/ber-2/join", b"{}")) == 403
    finally:
        await backend.close()


async def test_to_read_and_report_for_another_cell(hub: Hub, tmp_path: Path) -> None:
    await hub.join(tmp_path / "one")
    backend = hub.as_(token_of(tmp_path / "one"))
    try:
        assert await refused(backend.raw("POST", "/v1/cells/ber-2/report", report())) == 403
        assert await refused(backend.raw("POST", "/v1/cells/ber-1/invite")) == 403
        for namespace in ("rota-cell-ber-2", "default", "rota-system"):
            assert await refused(Client(backend, namespace=namespace).list(Secret)) == 403
        assert (await Client(backend, namespace="rota-cell-ber-1").list(Secret)).items == []
    finally:
        await backend.close()


async def test_to_take_the_name_of_a_cell_that_has_joined(hub: Hub, tmp_path: Path) -> None:
    await hub.join(tmp_path / "one")
    one = hub.as_(token_of(tmp_path / "one"))
    member = Member(tmp_path / "one").read()
    assert member is not None
    await one.raw("POST", "/v1/cells/ber-1/report", report(member.identity))
    with pytest.raises(NotJoined, match="has joined from another home"):
        await hub.join(tmp_path / "two")
    # What was invited and refused did not end the other's token.
    await one.raw("POST", "/v1/cells/ber-1/report", report(member.identity, sequence=2))
    assert await refused(one.raw("POST", "/v1/cells/ber-1/report", report("another", sequence=3))) == 409
    await one.close()


async def test_to_take_the_name_by_what_everybody_knows_of_its_home(hub: Hub, tmp_path: Path) -> None:
    """An invitation that was not used, and what every viewer reads, are not enough."""
    await hub.join(tmp_path / "one")
    one = hub.as_(token_of(tmp_path / "one"))
    member = Member(tmp_path / "one").read()
    assert member is not None
    await one.raw("POST", "/v1/cells/ber-1/report", report(member.identity))
    seen = (await hub.client.get(Cell, "ber-1")).status
    assert seen is not None and seen.identity is not None
    assert member.identity not in str(seen)
    thief = hub.as_((await hub.invite("ber-1"))["token"])
    asked = msgspec.json.encode({"identity": seen.identity, "city": "ber"})
    assert await refused(thief.raw("POST", "/v1/cells/ber-1/join", asked)) == 409
    await one.close()
    await thief.close()


async def test_to_go_on_watching_secrets_with_the_token_of_a_cell_that_joined_again(hub: Hub, tmp_path: Path) -> None:
    await hub.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rota-cell-ber-1"}})
    await hub.join(tmp_path / "one")
    old = Client(hub.as_(token_of(tmp_path / "one")), namespace="rota-cell-ber-1")

    async def watch() -> list[Any]:
        seen: list[Any] = []
        async for batch in old.backend.watch(Secret.api, "rota-cell-ber-1", WatchOptions()):
            seen += batch
            opened.set()
        return seen

    opened = asyncio.Event()
    secret = Secret(metadata=ObjectMeta(name="first", namespace="rota-cell-ber-1"))
    await hub.client.create(secret)
    watching = asyncio.create_task(watch())
    await asyncio.wait_for(opened.wait(), 30)
    await hub.join(tmp_path / "one")
    later = Secret(metadata=ObjectMeta(name="later", namespace="rota-cell-ber-1"))
    await hub.client.create(later)
    # It ends, in good order or not, and has not seen what came after.
    [result] = await asyncio.wait_for(asyncio.gather(watching, return_exceptions=True), 30)
    assert "later" not in str(result)
    await old.close()


async def test_to_join_with_an_invitation_of_a_cell_that_was_removed(hub: Hub, tmp_path: Path) -> None:
    """Also if there is one of that name again."""
    invited = await hub.invite("ber-1")
    given = {"cell": "ber-1", "city": "ber", "hub": hub.url, "authority": invited["authority"]}
    await hub.client.delete(Cell, "ber-1")
    with pytest.raises(NotJoined):
        await join(tmp_path / "one", **given, token=invited["token"])
    await hub.client.create({**CELL, "metadata": {"name": "ber-1"}})
    with pytest.raises(NotJoined):
        await join(tmp_path / "one", **given, token=invited["token"])
    await hub.join(tmp_path / "one")


async def test_to_use_an_invitation_beside_a_later_one(hub: Hub, tmp_path: Path) -> None:
    """One that was lost on its way is made anew: then the first is no longer good for whoever found it."""
    first, second = await hub.invite("ber-1"), await hub.invite("ber-1")
    given = {"cell": "ber-1", "city": "ber", "hub": hub.url, "authority": first["authority"]}
    with pytest.raises(NotJoined):
        await join(tmp_path / "thief", **given, token=first["token"])
    await join(tmp_path / "one", **given, token=second["token"])
    with pytest.raises(NotJoined):
        await join(tmp_path / "one", **given, token=second["token"])


async def test_to_go_on_as_a_cell_that_was_removed(hub: Hub, tmp_path: Path) -> None:
    """However it was deleted: its token and what it has open end with it."""
    await hub.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rota-cell-ber-1"}})
    await hub.client.create(Secret(metadata=ObjectMeta(name="first", namespace="rota-cell-ber-1")))
    await hub.join(tmp_path / "one")
    backend = hub.as_(token_of(tmp_path / "one"))
    opened = asyncio.Event()

    async def watch() -> None:
        async for _ in backend.watch(Secret.api, "rota-cell-ber-1", WatchOptions()):
            opened.set()

    watching = asyncio.create_task(watch())
    await asyncio.wait_for(opened.wait(), 30)
    await hub.client.delete(Cell, "ber-1")
    await asyncio.wait_for(asyncio.gather(watching, return_exceptions=True), 30)
    secrets = "/api/v1/namespaces/rota-cell-ber-1/secrets"
    assert await refused(backend.raw("GET", secrets)) == 401
    await hub.client.create({**CELL, "metadata": {"name": "ber-1"}})
    assert await refused(backend.raw("GET", secrets)) == 401
    await backend.close()


async def test_to_silence_a_cell_beyond_the_end_of_its_token(hub: Hub, tmp_path: Path) -> None:
    """Reports of the cell would be older than one that a thief has sent."""
    template = {"spec": {"containers": [{"name": "main"}]}}
    about = {"workloadRef": {"name": "w"}, "placementName": "p", "cityCode": "ber", "cellName": "ber-2", "replicas": 1}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkloadDeployment", "metadata": {"name": "d"}}
    await hub.client.create({**body, "spec": {**about, "template": template}})
    meta = (await hub.client.get(WorkloadDeployment, "d")).metadata
    another = [{"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}]
    await hub.join(tmp_path / "one")
    member = Member(tmp_path / "one").read()
    assert member is not None
    thief = hub.as_(token_of(tmp_path / "one"))
    await thief.raw("POST", "/v1/cells/ber-1/report", report(member.identity, boot=1 << 61))
    await hub.join(tmp_path / "one")
    one = hub.as_(token_of(tmp_path / "one"))
    # What it may not say is refused, and not overheard.
    assert await refused(one.raw("POST", "/v1/cells/ber-1/report", report(member.identity, deployments=another))) == 403
    await one.close()
    await thief.close()


async def test_to_have_a_cell_send_its_invitation_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(NotJoined, match="no https:// address"):
        await join(tmp_path, cell="ber-1", city="ber", hub="http://127.0.0.1:1", authority=ANOTHER, token="t")


async def test_a_cell_that_joins_again_has_one_token(hub: Hub, tmp_path: Path) -> None:
    await hub.join(tmp_path / "one")
    old = hub.as_(token_of(tmp_path / "one"))
    await hub.join(tmp_path / "one")
    assert await refused(old.raw("POST", "/v1/cells/ber-1/report", report())) == 401
    await old.close()
    about = {"name": "a", "scope": "cell", "namespace": "rota-cell-ber-1", "ttlSeconds": 60}
    assert await refused(hub.ask("POST", "/v1/tokens", about)) == 400
    tokens = (await hub.ask("GET", "/v1/tokens"))["tokens"]
    assert len([one for one in tokens if one["scope"] == "cell"]) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"identity": 1}', 400),
        (report(deployments=[{}]), 400),
        (report(deployments=[{"namespace": "a", "name": "b", "uid": "c"}] * 1000), 400),
        (report(boot=-1), 400),
        (report(sequence=1 << 70), 400),
        (report(version="x" * REPORT_BYTES_MAX), 413),
        (b"\xff" * 100, 400),
        (b"[" * 100_000, 400),
        (b'{"more":' + b"[" * 100_000, 400),
    ],
)
async def test_to_upset_the_hub_by_a_report(hub: Hub, tmp_path: Path, body: bytes, code: int) -> None:
    await hub.join(tmp_path / "one")
    backend = hub.as_(token_of(tmp_path / "one"))
    assert await refused(backend.raw("POST", "/v1/cells/ber-1/report", body)) == code
    await backend.close()
    if code != 413:
        [line] = [one for one in (hub.home / "audit.log").read_text().splitlines() if '"report"' in one]
        assert msgspec.json.decode(line)["code"] == code


async def test_the_token_of_a_cell_is_for_nobody_elses_eyes(hub: Hub, tmp_path: Path) -> None:
    await hub.join(tmp_path / "one")
    for name in ("cell.json", "hub.token", "hub.crt"):
        assert (tmp_path / "one" / name).stat().st_mode & 0o077 == 0
    assert token_of(tmp_path / "one") not in (hub.home / "tokens.json").read_text()
    assert token_of(tmp_path / "one") not in (hub.home / "audit.log").read_text()


async def test_to_keep_a_hub_busy_with_reports(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell has its share: the others are heard at once, and the metrics say who it is."""
    identities, backends = {}, {}
    for name in ("ber-1", "ber-2"):
        await hub.join(tmp_path / name, name)
        member = Member(tmp_path / name).read()
        assert member is not None
        identities[name], backends[name] = member.identity, hub.as_(token_of(tmp_path / name))

    async def send(name: str, sequence: int) -> int:
        body = report(identities[name], sequence=sequence)
        try:
            return (await backends[name].once("POST", f"/v1/cells/{name}/report", body)).status
        except ApiError as error:
            retry_after.append((error.details or {}).get("retryAfterSeconds"))
            return error.code

    retry_after: list[Any] = []
    received, others_heard = Reports.receive, asyncio.Event()

    async def receive(self: Reports, name: str, told: Report) -> Answer:
        if name == "ber-1":
            await others_heard.wait()
        return await received(self, name, told)

    monkeypatch.setattr(Reports, "receive", receive)
    flood = [asyncio.create_task(send("ber-1", number)) for number in range(1, 9)]
    try:
        # All but the one that is worked on and those that wait.
        under_way = {*flood}
        while len(under_way) > 1 + WAITING_MAX:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            assert {one.result() for one in done} == {429}
        assert await send("ber-2", 1) == 200
        others_heard.set()
        codes = await asyncio.gather(*flood)
    finally:
        others_heard.set()
        for one in backends.values():
            await one.close()
    assert codes.count(200) == 1 + WAITING_MAX
    assert set(retry_after) == {1}
    assert isinstance(hub.client.backend, HttpBackend)
    text = (await hub.client.backend.raw("GET", "/v1/metrics")).body.decode()
    refused = codes.count(429)
    assert f'rota_cell_reports_total{{cell="ber-1",outcome="TooMany"}} {refused}\n' in text
    assert 'rota_cell_reports_total{cell="ber-2",outcome="Taken"} 1\n' in text
    assert 'rota_cell_report_age_seconds{cell="ber-2"}' in text
