"""To reach an instance of a cell, or a cell, or a hub, where one must not."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import rota
from rota.api import Claim, Instance, Role
from rota.api.reviews import REVIEWS
from rota.api.served import SERVED
from rota.client import channels
from rota.client.websocket import Closed, WebSocket
from rota.control.cells import tunnel_messages
from rota.control.cells.tunnel_messages import Ask, Head, Hello
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.server.access import Asking
from rota.server.auth import User, allows
from rota.server.gateway_server import ENDPOINTS
from rota.server.http import JSON, Response, Stream
from rota.server.log_streams import TEXT
from rota.server.signed_tokens import SignedTokens
from rota.server.upgrade import Upgrade
from tests.tunnel.both import CELL, IDENTITY, NAME, Both, both_sides, refused
from tests.until import until_async

LOGS = f"/v1/logs/default/{NAME}"
FILES = f"/v1/instances/default/{NAME}/files?path=/a"
ARCHIVE = f"/v1/instances/default/{NAME}/archive?path=/a"
EXEC = channels.path("default", NAME, ["true"], stdin=False)
INTO_FILES = [(method, path) for path in (FILES, ARCHIVE) for method in ("GET", "PUT", "DELETE")]
ALL = [("GET", LOGS), ("GET", EXEC), *INTO_FILES]


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with both_sides(tmp_path) as made:
        yield made


# People at the hub.


async def code(both: Both, method: str, path: str, token: str) -> int:
    headers: dict[str, str] = {}
    if path == EXEC:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers |= {"Sec-WebSocket-Key": "x" * 22 + "==", "Sec-WebSocket-Protocol": channels.PROTOCOL}
    return (await both.server.ask(method, path, token=token, headers=headers)).status


async def test_to_reach_what_one_may_not(both: Both) -> None:
    """As for an instance of the hub itself: the cell is not even asked."""
    both.connect()
    await both.connected()
    await both.hub.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    claim: dict[str, Any] = await both.hub.create(
        {
            "apiVersion": Claim.api.api_version,
            "kind": "Claim",
            "metadata": {"name": "held"},
            "spec": {"poolRef": {"name": "boxes"}, "holder": "somebody"},
        }
    )
    signed = SignedTokens(both.server.home / "worker.key", "claim")
    strangers = {
        "a tenant of another namespace": await both.token("tenant", "deployer", "other"),
        "a function's key": await both.token("key", "function"),
        "the cell itself": both.tokens[CELL],
        "another cell": both.tokens["ber-2"],
        "the holder of a claim": signed.of(Subject("default", "held", claim["metadata"]["uid"])),
        "a worker": SignedTokens(both.server.home / "worker.key", "worker").of(Subject("default", NAME, "x")),
    }
    for who, token in strangers.items():
        for method, path in (("GET", LOGS), ("GET", EXEC), ("GET", FILES), ("PUT", ARCHIVE)):
            assert await code(both, method, path, token) in (401, 403), (who, method, path)
    viewer = await both.token("viewer", "viewer", "default")
    for method, path in ALL[1:]:
        assert await code(both, method, path, viewer) == 403, (method, path)
    assert not both.asked
    # And those who may, get in.
    both.serve = lambda request, user: Response(200, b"{}")
    assert await code(both, "GET", LOGS, viewer) == 200
    deployer = await both.token("deployer", "deployer", "default")
    for path in (LOGS, FILES, ARCHIVE):
        assert await code(both, "GET", path, deployer) == 200
    assert [user.name for _, user in both.asked] == ["viewer", "deployer", "deployer", "deployer"]


async def test_to_get_onto_the_host_of_a_cell(both: Both) -> None:
    """Where nothing keeps an instance apart, who goes in is on the host: that is for admins, by both sides."""
    await both.instance("open", isolated=False)
    both.connect()
    await both.connected()
    deployer = await both.token("deployer", "deployer", "default")
    path = "/v1/instances/default/open/files?path=/a"
    assert await code(both, "GET", path, deployer) == 403
    # What the hub has been told of an instance may be old. The cell looks for itself.
    status = {"status": {"conditions": [_isolated()]}}
    await both.hub.patch(Instance, "open", status, subresource="status")
    status_code, message = await both.code(path, deployer)
    assert status_code == 403 and "admin at the hub" in message
    assert not both.asked
    assert await code(both, "GET", path, "") == 200
    assert await code(both, "GET", "/v1/logs/default/open", deployer) == 200


def _isolated() -> dict[str, str]:
    about = {"type": "Isolated", "status": "True", "reason": "Sandboxed", "message": ""}
    return {**about, "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_to_go_on_with_a_token_that_is_revoked(both: Both) -> None:
    both.connect()
    await both.connected()
    ended = asyncio.Event()

    async def run(websocket: WebSocket) -> None:
        websocket.send(b"\x01")
        try:
            await websocket.receive()
        finally:
            ended.set()

    both.serve = lambda request, user: Upgrade(run, channels.PROTOCOL)
    both.tokens["deployer"] = await both.token("deployer", "deployer", "default")
    async with both.as_(both.tokens["deployer"]).websocket(EXEC, protocols=(channels.PROTOCOL,)) as websocket:
        assert await websocket.receive() == b"\x01"
        await both.revoke(both.tokens["deployer"])
        with pytest.raises(Closed, match="no longer good"):
            await websocket.receive()
    async with asyncio.timeout(5):
        await ended.wait()


@pytest.mark.parametrize("how", ["revoked", "another role"])
async def test_to_begin_with_a_token_that_ended_while_a_cell_was_slow(both: Both, how: str) -> None:
    """A revocation ends what goes on. What has not begun by then does not begin."""
    both.connect()
    await both.connected()
    go_on = asyncio.Event()

    async def run(websocket: WebSocket) -> None:
        await websocket.receive()

    async def serve() -> Upgrade:
        await go_on.wait()
        return Upgrade(run, channels.PROTOCOL)

    both.serve = lambda request, user: serve()
    role: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "visitor", "namespace": "default"},
        "rules": [{"apiGroups": ["rota.dev"], "resources": ["instances/exec"], "verbs": ["create"]}],
    }
    await both.hub.create(role)
    about = {"name": "visitor", "namespace": "default", "role": "visitor"}
    both.tokens["visitor"] = (await both.server.ask("POST", "/v1/tokens", about)).json["token"]
    asking = asyncio.create_task(code(both, "GET", EXEC, both.tokens["visitor"]))
    await until_async(lambda: both.asked, "nobody has asked the cell")
    if how == "revoked":
        await both.revoke(both.tokens["visitor"])
    else:
        await both.hub.patch(Role, "visitor", {"rules": []})
    go_on.set()
    assert await asking == 401

    async def is_over() -> bool:
        return await both.sessions() == 0

    await until_async(is_over)


# Cells.


class FakeCell:
    """A cell that says what it likes."""

    def __init__(self, both: Both, control: WebSocket) -> None:
        self.both = both
        self.control = control

    async def asked(self) -> Ask:
        message = await self.control.receive()
        while "ask" not in str(message):
            message = await self.control.receive()
        return msgspec.json.decode(message, type=Ask)

    def open(self, id_: str, *, cell: str = CELL, token: str = "") -> Any:
        backend = self.both.as_(token or self.both.tokens[CELL])
        return backend.websocket(f"/v1/cells/{cell}/reach/{id_}", protocols=(tunnel_messages.PROTOCOL,))


@contextlib.asynccontextmanager
async def fake(both: Both) -> AsyncIterator[FakeCell]:
    backend = both.as_(both.tokens[CELL])
    async with backend.websocket(f"/v1/cells/{CELL}/reach", protocols=(tunnel_messages.PROTOCOL,)) as control:
        control.send(tunnel_messages.said(Hello(IDENTITY, 1)))
        assert "welcome" in str(await control.receive())
        yield FakeCell(both, control)


async def test_to_answer_what_another_cell_is_asked(both: Both) -> None:
    async with fake(both) as cell:
        asking = asyncio.create_task(both.server.ask("GET", LOGS))
        ask = await cell.asked()
        thief = both.tokens["ber-2"]
        async with contextlib.AsyncExitStack() as stack:
            for name, expected in ((CELL, 403), ("ber-2", 404)):
                opening = stack.enter_async_context(cell.open(ask.id, cell=name, token=thief))
                assert (await refused(opening)).code == expected
            opening = stack.enter_async_context(cell.open("x" * 22))
            assert (await refused(opening)).code == 404
        async with cell.open(ask.id) as session:
            # It is good once.
            async with contextlib.AsyncExitStack() as stack:
                assert (await refused(stack.enter_async_context(cell.open(ask.id)))).code == 404
            session.send(tunnel_messages.said(Head(200, TEXT)))
            session.send(b"its own")
            session.send('{"type":"end"}')
            assert (await asking).body == b"its own"


async def test_to_refuse_what_another_cell_is_asked(both: Both) -> None:
    async with fake(both) as cell:
        asking = asyncio.create_task(both.server.ask("GET", LOGS))
        ask = await cell.asked()
        await both.know("ber-2", identity="other")
        other = both.as_(both.tokens["ber-2"])
        async with other.websocket("/v1/cells/ber-2/reach", protocols=(tunnel_messages.PROTOCOL,)) as control:
            control.send(tunnel_messages.said(Hello("other", 1)))
            assert "welcome" in str(await control.receive())
            control.send(tunnel_messages.said(tunnel_messages.Refusal(ask.id, 403, "Forbidden", "no")))
            await control.close()
        assert not asking.done()
        cell.control.send(tunnel_messages.said(tunnel_messages.Refusal(ask.id, 409, "Conflict", "not now")))
        assert (await asking).json["message"] == "not now"


def _send(websocket: WebSocket, *messages: str) -> None:
    for message in messages:
        websocket.send(message)


RUBBISH: dict[str, Callable[[WebSocket], None]] = {
    "bytes before the head": lambda one: one.send(b"abc"),
    "no JSON": lambda one: one.send("{"),
    "no message": lambda one: one.send('{"type":"ask"}'),
    "an end before the head": lambda one: one.send('{"type":"end"}'),
    "a body that nobody sends": lambda one: one.send('{"type":"continue"}'),
    "a status that is none": lambda one: one.send(tunnel_messages.said(Head(999, JSON))),
    "a redirect": lambda one: one.send(tunnel_messages.said(Head(302, JSON))),
    "that the client is not known": lambda one: one.send(tunnel_messages.said(Head(401, JSON))),
    "a WebSocket for a log": lambda one: one.send(tunnel_messages.said(Head(101))),
    "a page": lambda one: one.send(tunnel_messages.said(Head(200, "text/html"))),
    "a header within a header": lambda one: one.send(
        '{"type":"head","status":200,"contentType":"application/json","headers":{"Rota-Mode":"1\\r\\nSet-Cookie: a=b"}}'
    ),
    "a header that ends its line": lambda one: _send(
        one,
        '{"type":"head","status":200,"contentType":"application/json","headers":{"Rota-Mode":"1\\n"},"length":0}',
        '{"type":"end"}',
    ),
    "a type within a type": lambda one: one.send('{"type":"head","status":200,"contentType":"a\\r\\nb: c"}'),
    "a failure that says nothing": lambda one: _send(one, tunnel_messages.said(Head(500, JSON)), "{}"),
}


async def test_to_answer_with_rubbish(both: Both) -> None:
    async with fake(both) as cell:
        for what, say in RUBBISH.items():
            asking = asyncio.create_task(both.server.ask("GET", LOGS))
            async with cell.open((await cell.asked()).id) as session:
                say(session)
                async with asyncio.timeout(5):
                    reply = await asking
            assert reply.status == 502, (what, reply.body)
            assert "set-cookie" not in reply.headers, what
        assert await both.sessions() == 0


def test_to_end_a_line_after_what_a_pattern_looks_at() -> None:
    """Python's `$` is also before a last newline: a pattern for what comes from elsewhere is made by `exact`."""
    source = Path(rota.__file__).parent
    raw = re.compile(r'Meta\([^()]*pattern=r?"[^"]*\$"')
    assert [str(one) for one in source.rglob("*.py") if raw.search(one.read_text())] == []


async def test_to_send_a_whole_answer_without_end(both: Both) -> None:
    async with fake(both) as cell:
        asking = asyncio.create_task(both.server.ask("GET", LOGS))
        async with cell.open((await cell.asked()).id) as session:
            session.send(tunnel_messages.said(Head(200, JSON, length=2)))
            with contextlib.suppress(Closed):
                while True:
                    session.send(bytes(65536))
                    await session.drain()
                    await asyncio.sleep(0)
            assert (await asking).status == 502


async def test_to_send_a_message_that_is_too_large(both: Both) -> None:
    async with fake(both) as cell:
        asking = asyncio.create_task(both.server.ask("GET", LOGS))
        async with cell.open((await cell.asked()).id) as session:
            session.send(bytes(tunnel_messages.MESSAGE_BYTES_MAX + 1))
            assert (await asking).status in (502, 503)


async def test_to_send_rubbish_over_the_connection_that_stays(both: Both) -> None:
    for rubbish in ("{", b"\xff\xfe", '{"type":"hello"}', '{"type":"refusal","id":"x","code":"y"}'):
        async with fake(both) as cell:
            cell.control.send(rubbish)
            with pytest.raises(Closed):
                await cell.asked()
    backend = both.as_(both.tokens[CELL])
    for rubbish in ("{", b"\xff\xfe", tunnel_messages.said(Hello("another", 1))):
        async with backend.websocket(f"/v1/cells/{CELL}/reach", protocols=(tunnel_messages.PROTOCOL,)) as control:
            control.send(rubbish)
            with pytest.raises(Closed):
                await control.receive()
    # The hub goes on.
    both.connect()
    await both.connected()


async def test_a_command_that_a_cell_lies_about(both: Both) -> None:
    """Bytes that are nothing of a command's do not come through, and a status that is none is no success."""
    async with fake(both) as cell:
        opening = asyncio.create_task(_run(both))
        async with cell.open((await cell.asked()).id) as session:
            session.send(tunnel_messages.said(Head(101)))
            for message in ("text", b"", b"\x09zzz", b"\x00in", b"\x01out", b"\x03not json"):
                session.send(message)
            await session.close()
        shown, failed = await opening
    assert shown == [(1, b"out")] and "not known" in failed


async def _run(both: Both) -> tuple[list[tuple[int, bytes]], str]:
    shown: list[tuple[int, bytes]] = []

    async def show(channel: int, data: bytes) -> None:
        shown.append((channel, data))

    async with both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,)) as websocket:
        try:
            await channels.carry(websocket, show)
        except channels.ExecFailed as failed:
            return shown, str(failed)
    return shown, ""


async def test_to_go_on_as_a_cell_with_a_token_that_is_revoked(both: Both) -> None:
    async with fake(both) as cell:
        asking = asyncio.create_task(both.server.ask("GET", LOGS))
        async with cell.open((await cell.asked()).id) as session:
            session.send(tunnel_messages.said(Head(200, TEXT)))
            session.send(b"begun")
            await both.revoke(both.tokens[CELL])
            for websocket in (session, cell.control):
                with pytest.raises(Closed, match="no longer good"):
                    await websocket.receive()
            with contextlib.suppress(ValueError):  # It is cut in the midst of a chunk.
                await asking
    await until_async(lambda: _none(both))


async def _none(both: Both) -> bool:
    return await both.sessions() == 0


# Hubs.


async def test_to_ask_a_cell_for_what_it_does_not_run_for_its_hub(both: Both) -> None:
    """The hub says that it is its own; the cell knows better, says the same of all, and writes it down."""
    await both.instance("its-own", mirrored=False)
    await both.instance("another", uid="11111111-1111-1111-1111-111111111111")
    await both.instance("of-another-hub", source="22222222-2222-2222-2222-222222222222")
    both.connect()
    await both.connected()
    for name in ("its-own", "another", "of-another-hub"):
        for path in (f"/v1/logs/default/{name}", f"/v1/instances/default/{name}/files?path=/a"):
            status, message = await both.code(path)
            assert status == 404, (name, path)
            assert message.startswith(f'instance "default/{name}" is none that this cell runs for its hub, or')
    assert not both.asked
    lines = both.audited()
    assert [one["code"] for one in lines[-6:]] == [403] * 6
    assert {one["scope"] for one in lines[-6:]} == {"hub"} and {one["user"] for one in lines[-6:]} == {"rota-admin"}


async def test_to_wash_the_trail_of_a_cell_as_its_hub(both: Both) -> None:
    """By asking in the name of ever new people for ever new instances."""
    sent: list[str] = []
    tunnel = both.made()
    control: Any = SimpleNamespace(send=sent.append)
    for number in range(200):
        asked = ask(id=f"{number:022}", user=f"user{number}", uid=f"uid{number}")
        await tunnel._answer(control, both.as_(), asked)
    assert len(sent) == 200
    # In a second there are 10; it may have taken two or three of them.
    assert 10 <= len(both.audited()) < 100


def ask(**more: Any) -> Ask:
    about = {"id": "x" * 22, "method": "GET", "what": "logs", "namespace": "default", "name": NAME}
    return msgspec.convert({"type": "ask", **about, "uid": "u", "deployment": "d", **more}, Ask)


async def test_to_ask_a_cell_for_more_than_logs_commands_and_files(both: Both) -> None:
    copy = await both.hub.get(Instance, NAME)
    right = {"uid": copy.metadata.annotations["rota.dev/cell-uid"], "deployment": copy.metadata.owner_references[0].uid}
    assert tunnel_messages.sought(both.objects, ask(**right)).metadata.name == NAME
    for method, what in (("DELETE", "logs"), ("PUT", "logs"), ("PUT", "exec"), ("DELETE", "exec")):
        with pytest.raises(ApiError, match="is none that this cell runs"):
            tunnel_messages.sought(both.objects, ask(**right, method=method, what=what))
    for wrong in ({"what": "status"}, {"what": "../batch"}, {"method": "POST"}, {"id": "../../x"}, {"name": ""}):
        with pytest.raises(msgspec.ValidationError):
            ask(**right, **wrong)


async def test_somebody_at_the_hub_has_no_other_way_in(both: Both) -> None:
    """Whatever the hub sends, and wherever it gets to, the scope that it acts in allows nothing else."""
    instance = await both.cell.get(Instance, NAME)
    user = User("somebody", "hub", "default", instance.metadata.uid)
    reached = {"exec", "files", "archive", "logs"}
    where = {"namespace": "default", "name": NAME, "pool": "p", "digest": "d", "token_id": "t", "act": "cut"}
    for endpoint in ENDPOINTS.all:
        parts = set(endpoint.pattern.strip("/").split("/"))
        if endpoint.decision.name == "each object for itself":
            continue  # Those are the rights to objects, below.
        may = bool(parts & reached) and not parts & {"tasks", "functions"}
        for name in (NAME, "another"):
            asking = Asking(user, both.objects, {**where, "name": name})
            if may and name == NAME:
                endpoint.decision.check(asking)
                continue
            with pytest.raises(ApiError):
                endpoint.decision.check(asking)
    for kind in SERVED:
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
            for part in ("", "status", "exec", "files", "log", "call"):
                is_review = kind in REVIEWS and verb == "create"
                assert allows(user, verb, kind, "default", NAME, part) == is_review, (kind.name, verb, part)


async def test_a_stream_of_a_cell_is_written_down_in_both_places(both: Both) -> None:
    both.connect()
    await both.connected()

    async def some() -> AsyncIterator[bytes]:
        yield b"line"

    both.serve = lambda request, user: Stream(some(), TEXT)
    token = await both.token("viewer", "viewer", "default")
    assert await code(both, "GET", f"{LOGS}?tail=3", token) == 200
    told = both.audited()[-1]
    assert (told["user"], told["scope"], told["verb"], told["name"], told["subresource"]) == (
        "viewer",
        "hub",
        "get",
        NAME,
        "logs",
    )
