"""Claims over the gateway of a real server, on real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from rota.client.upgrading import Refused, connect_unix
from rota.client.websocket import Closed, WebSocket
from tests.server.conftest import POOLS, Reply, Server, served
from tests.until import until_async, until_so

PATIENCE_SECONDS = 20
API = "/apis/rota.dev/v1alpha1/namespaces/default"
OPEN = "/v1/pools/default/boxes/claims"
PROTOCOL = "v5.channel.k8s.io"


def pool(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    template = {
        "containers": [{"name": "main", "command": ["sleep", "100500"]}],
        "isolation": "none",
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": name, "namespace": "default"}
    whole = {"replicas": replicas, "template": template, "reset": "Keep", **spec}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": metadata, "spec": whole}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as running:
        assert (await running.ask("POST", POOLS, pool("boxes", 2))).status == 201
        await until(running, 2)
        yield running
        await running.ask("DELETE", f"{POOLS}/boxes")


async def until(server: Server, free: int, name: str = "boxes") -> None:
    """Go on when so many instances of a pool can be had, and nobody has any."""

    async def instances() -> list[Any]:
        found = (await server.ask("GET", f"{API}/instances")).json["items"]
        return [one for one in found if one["metadata"]["name"].startswith(f"{name}-")]

    async def so() -> bool:
        return len([one for one in await instances() if _is_idle(one)]) >= free

    await until_async(so, instances)


def _is_idle(one: Any) -> bool:
    ready = [each for each in one.get("status", {}).get("conditions", ()) if each["type"] == "Ready"]
    return bool(ready) and ready[0]["status"] == "True" and "assignment" not in one["spec"]


async def claim(server: Server, name: str = "", *, token: str = "", path: str = OPEN, **asked: Any) -> Reply:
    body = {**({"name": name} if name else {}), **asked}
    return await server.ask("POST", path, body, token=token)


async def release(server: Server, name: str, token: str = "") -> Reply:
    return await server.ask("DELETE", f"/v1/claims/default/{name}", token=token)


async def phase(server: Server, name: str) -> str:
    reply = await server.ask("GET", f"{API}/claims/{name}")
    # One that was just made may have no status yet.
    return str(reply.json.get("status", {}).get("phase", "")) if reply.status == 200 else "gone"


async def until_phase(server: Server, name: str, wanted: str) -> None:
    await until_so(lambda: phase(server, name), lambda found: found == wanted, f"{name} is {wanted}")


async def token_of(server: Server, name: str, scope: str = "deployer") -> str:
    made = await server.ask("POST", "/v1/tokens", {"name": name, "scope": scope, "namespace": "default"})
    return str(made.json["token"])


async def command(server: Server, instance: str, token: str, *argv: str) -> WebSocket:
    path = f"/v1/exec/default/{instance}?{urlencode({'command': argv, 'stdout': 'true'}, doseq=True)}"
    return await connect_unix(
        str(server.socket), path, headers={"Authorization": f"Bearer {token}"}, protocols=(PROTOCOL,)
    )


async def hang_up(server: Server, body: dict[str, Any], *, when: Any) -> None:
    """Ask for a claim, and go when something is so, without having read the answer."""
    content = json.dumps(body).encode()
    head = (
        f"POST {OPEN} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    _, writer = await server.connect()
    writer.write(head.encode() + content)
    await writer.drain()
    await until_async(when)
    writer.transport.abort()


# Asking.


async def test_a_claim_is_answered_with_its_instance_and_a_token(server: Server) -> None:
    reply = await claim(server, "mine", leaseSeconds=60, labels={"who": "me"})
    assert reply.status == 201, reply.body
    found = reply.json["claim"]
    assert (found["kind"], found["status"]["phase"]) == ("Claim", "Bound") and reply.json["token"]
    instance = found["status"]["instanceName"]
    held = (await server.ask("GET", f"{API}/instances/{instance}")).json
    assert held["spec"]["assignment"]["name"] == "mine" and held["metadata"]["labels"]["who"] == "me"
    released = await release(server, "mine")
    assert released.status == 200 and released.json["claim"]["status"]["phase"] == "Released"
    again = await release(server, "mine")
    assert again.status == 200 and again.json["claim"]["status"] == released.json["claim"]["status"]
    await until(server, 2)
    assert "who" not in (await server.ask("GET", f"{API}/instances/{instance}")).json["metadata"]["labels"]


async def test_asking_again_under_the_same_name_is_the_same_as_asking_once(server: Server) -> None:
    replies = await asyncio.gather(*(claim(server, "mine") for _ in range(5)))
    assert sorted(one.status for one in replies) == [200, 200, 200, 200, 201]
    assert len({one.json["claim"]["metadata"]["uid"] for one in replies}) == 1
    assert len({one.json["token"] for one in replies}) == 1
    await release(server, "mine")
    over = await claim(server, "mine")
    assert over.status == 409 and over.json["reason"] == "ClaimOver" and "another name" in over.json["message"]


async def test_a_name_is_its_callers_and_nobody_elses(server: Server) -> None:
    assert (await claim(server, "mine", holder="x")).status == 201
    other = await claim(server, "mine", holder="y")
    assert other.status == 409 and "token" not in other.json
    assert (await claim(server, "mine", path="/v1/pools/default/none/claims", holder="x")).status in (404, 409)
    await release(server, "mine")


async def test_somebody_elses_name_is_refused_at_once_though_it_waits(server: Server) -> None:
    for name in ("a", "b"):
        await claim(server, name)
    waiting = asyncio.create_task(claim(server, "mine", holder="x", waitSeconds=60))
    await until_phase(server, "mine", "Waiting")
    other = await asyncio.wait_for(claim(server, "mine", holder="y", waitSeconds=60), PATIENCE_SECONDS / 2)
    assert other.status == 409
    await release(server, "a")
    assert (await waiting).status == 201


async def test_a_pool_that_is_not_there_is_answered_with_those_that_are(server: Server) -> None:
    reply = await claim(server, path="/v1/pools/default/boxen/claims")
    assert reply.status == 404 and "boxen" in reply.json["message"] and "boxes" in reply.json["message"]
    nowhere = await claim(server, path="/v1/pools/nowhere/boxes/claims")
    assert nowhere.status == 404


async def test_who_cannot_be_served_in_time_is_told_when_to_come_again(server: Server) -> None:
    for name in ("a", "b"):
        assert (await claim(server, name)).status == 201
    for wait in (0, 1):
        reply = await claim(server, "late", waitSeconds=wait)
        assert reply.status == 429, reply.body
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert reply.json["details"]["retryAfterSeconds"] == int(reply.headers["retry-after"])
    await release(server, "a")
    assert (await claim(server, "other")).status == 201


async def test_a_pool_that_the_quota_has_no_room_for_is_not_waited_for(server: Server) -> None:
    quota = {"apiVersion": "rota.dev/v1alpha1", "kind": "Quota", "metadata": {"name": "default"}}
    assert (await server.ask("POST", f"{API}/quotas", {**quota, "spec": {"hard": {"instances": 2}}})).status == 201
    assert (await server.ask("POST", POOLS, pool("more", 1))).status == 201

    async def refused() -> str:
        reply = await claim(server, path="/v1/pools/default/more/claims", waitSeconds=0)
        assert reply.status == 429
        return str(reply.json["message"])

    await until_so(refused, lambda message: "QuotaExceeded" in message, "a refusal by the quota")
    reply = await asyncio.wait_for(
        claim(server, path="/v1/pools/default/more/claims", waitSeconds=600), PATIENCE_SECONDS
    )
    assert reply.status == 429 and "WorkerPool/boxes 2" in reply.json["message"]
    assert (await server.ask("DELETE", f"{API}/quotas/default")).status == 200
    await until(server, 1, "more")


async def test_a_pool_with_nothing_in_it_is_waited_for(server: Server) -> None:
    assert (await server.ask("POST", POOLS, pool("empty", 0))).status == 201
    reply = await asyncio.wait_for(
        claim(server, path="/v1/pools/default/empty/claims", waitSeconds=1), PATIENCE_SECONDS
    )
    assert reply.status == 429


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "JSON"),
        (b"[]", "JSON"),
        (b'{"nmae": "x"}', "nmae"),
        (b'{"priority": "high"}', "priority"),
        (b'{"labels": {"rota.dev/pool": "x"}}', "labels"),
        (b'{"images": {"main": "x"}}', "images"),
        (b'{"name": "../etc"}', "name"),
        (b'{"name": "x", "leaseSeconds": 0}', "leaseSeconds"),
        (b'{"name": "x", "waitSeconds": -1}', "waitSeconds"),
        (b'{"labels": {"no such key": "x"}}', "no such key"),
    ],
)
async def test_what_is_no_request_is_refused_with_what_is_wrong_and_costs_nothing(
    server: Server, body: bytes, why: str
) -> None:
    reply = await asyncio.wait_for(server.ask("POST", OPEN, body), PATIENCE_SECONDS / 2)
    assert reply.status in (400, 422) and why in reply.json["message"], reply.body
    assert (await server.ask("GET", f"{API}/claims")).json["items"] == []
    assert (await claim(server, "next")).status == 201, "nothing is benched by it"


# Going before the answer.


async def test_who_hangs_up_while_waiting_leaves_nothing(server: Server) -> None:
    for name in ("a", "b"):
        await claim(server, name)

    async def waits() -> bool:
        return await phase(server, "gone-soon") == "Waiting"

    async def is_gone() -> bool:
        return await phase(server, "gone-soon") == "gone"

    await hang_up(server, {"name": "gone-soon", "waitSeconds": 60}, when=waits)
    await until_async(is_gone)
    for name in ("a", "b"):
        await release(server, name)
    await until(server, 2)


async def test_who_hangs_up_at_any_moment_while_being_served_keeps_nothing_or_can_be_found(server: Server) -> None:
    for turns in range(12):

        async def is_time(left: list[int] = [turns]) -> bool:  # noqa: B006 - it counts
            left[0] -= 1
            return left[0] < 0

        await hang_up(server, {"name": f"brief{turns}", "leaseSeconds": 1}, when=is_time)
    # What was answered before its caller went ends with its lease.
    await until(server, 2)
    found = (await server.ask("GET", f"{API}/claims")).json["items"]
    assert {one["status"]["phase"] for one in found} <= {"Released", "Expired"}


# Having one.


async def test_a_lease_is_renewed_and_ends_when_it_is_not(server: Server) -> None:
    opened = await claim(server, "mine", leaseSeconds=2)
    token, before = opened.json["token"], opened.json["claim"]["status"]["expiresAt"]
    renewed = await server.ask("POST", "/v1/claims/default/mine/renew", token=token)
    assert renewed.status == 200 and renewed.json["claim"]["status"]["expiresAt"] > before
    await until_phase(server, "mine", "Expired")
    assert (await server.ask("POST", "/v1/claims/default/mine/renew", token=token)).status == 401
    late = await server.ask("POST", "/v1/claims/default/mine/renew")
    assert late.status == 409 and "LeaseExpired" in late.json["message"]
    await until(server, 2)


async def test_claims_are_listed_and_looked_at(server: Server) -> None:
    for name in ("a", "b"):
        await claim(server, name)
    listed = (await server.ask("GET", OPEN)).json
    assert [one["metadata"]["name"] for one in listed["claims"]] == ["a", "b"] and listed["remaining"] == 0
    one = await server.ask("GET", "/v1/claims/default/a")
    assert one.json["claim"]["status"]["phase"] == "Bound" and "token" not in one.json
    assert (await server.ask("GET", "/v1/claims/default/nothing")).status == 404
    assert (await server.ask("GET", "/v1/pools/default/nothing/claims")).status == 404


async def test_a_claims_token_is_good_for_its_own_instance_and_nothing_else(server: Server) -> None:
    mine, other = (await claim(server, "a")).json, (await claim(server, "b")).json
    token = mine["token"]
    here, there = (one["claim"]["status"]["instanceName"] for one in (mine, other))
    websocket = await command(server, here, token, "echo", "hello")
    assert await websocket.receive() == b"\x01"
    assert await websocket.receive() == b"\x01hello\n"
    await websocket.close()
    refused = [
        ("GET", f"/v1/exec/default/{there}?command=true&stdout=true"),
        ("GET", "/v1/claims/default/b"),
        ("POST", "/v1/claims/default/b/renew"),
        ("DELETE", "/v1/claims/default/b"),
        ("POST", OPEN),
        ("GET", OPEN),
        ("GET", f"{API}/claims/a"),
        ("GET", f"{API}/instances/{here}"),
        ("GET", "/api/v1/namespaces/default/secrets"),
        ("GET", "/v1/tokens"),
    ]
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": PROTOCOL,
    }
    for method, path in refused:
        headers = upgrade if "exec" in path else {}
        reply = await server.ask(method, path, None if method == "GET" else {}, token=token, headers=headers)
        assert reply.status in (401, 403), (method, path, reply.status, reply.body)
    operation = {"verb": "create", "apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "namespace": "default"}
    batch = {"operations": [{**operation, "body": pool("more", 1)}]}
    assert (await server.ask("POST", "/v1/batch", batch, token=token)).status in (401, 403)
    assert (await release(server, "a", token)).status == 200
    for method, path in (("GET", "/v1/claims/default/a"), ("DELETE", "/v1/claims/default/a")):
        assert (await server.ask(method, path, token=token)).status == 401, "it ends with the claim"
    forged = token[:-4] + ("aaaa" if token[-4:] != "aaaa" else "bbbb")
    assert (await server.ask("GET", "/v1/claims/default/b", token=forged)).status == 401


@pytest.mark.parametrize("how", ["release", "expiry", "delete"])
async def test_what_runs_for_a_claim_ends_with_it(server: Server, how: str) -> None:
    opened = (await claim(server, "mine", leaseSeconds=1 if how == "expiry" else 60)).json
    instance = opened["claim"]["status"]["instanceName"]
    websocket = await command(server, instance, opened["token"], "sleep", "100600")
    assert await websocket.receive() == b"\x01"
    if how == "release":
        await release(server, "mine")
    elif how == "delete":
        await server.ask("DELETE", f"{API}/claims/mine")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ended(websocket)
    await until(server, 2)


async def ended(websocket: WebSocket) -> None:
    try:
        while True:
            await websocket.receive()
    except Closed:
        return


async def test_who_is_no_admin_claims_nothing_that_is_not_isolated_and_for_nobody_else(server: Server) -> None:
    token = await token_of(server, "somebody")
    refused = await claim(server, "a", token=token)
    assert refused.status == 403 and "not isolated" in refused.json["message"]
    viewer = await token_of(server, "watcher", "viewer")
    assert (await claim(server, "a", token=viewer)).status == 403
    other = await claim(server, "a", token=token, holder="else")
    assert other.status in (400, 403)
    assert (await server.ask("GET", f"{API}/claims")).json["items"] == []


async def test_who_is_no_admin_does_not_get_onto_the_host_by_another_way(server: Server) -> None:
    token = await token_of(server, "alice")
    with pytest.raises(Refused, match="403"):
        await command(server, "boxes-0", token, "id")
    reply = await server.ask("GET", "/v1/instances/default/boxes-0/files?path=x", token=token)
    assert reply.status == 403 and "not isolated" in reply.json["message"]
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Claim", "metadata": {"name": "a"}}
    made = await server.ask("POST", f"{API}/claims", {**body, "spec": {"poolRef": {"name": "boxes"}}}, token=token)
    assert made.status == 201 and made.json["spec"]["holder"] == "alice"
    await until_phase(server, "a", "Failed")
    await until(server, 2)
    forged = {**body, "spec": {"poolRef": {"name": "boxes"}, "holder": "bob"}}
    assert (await server.ask("POST", f"{API}/claims", forged, token=token)).status == 403


async def test_a_token_is_not_led_elsewhere_by_what_a_claim_says_of_itself(server: Server) -> None:
    first, second = await claim(server, "a"), await claim(server, "b")
    there = second.json["claim"]["status"]["instanceName"]
    status = {"status": {"instanceName": there}}
    patch = {"Content-Type": "application/merge-patch+json"}
    where = f"{API}/claims/a/status"
    alice = await token_of(server, "alice")
    assert (await server.ask("PATCH", where, status, token=alice, headers=patch)).status == 403
    assert (await server.ask("PATCH", where, status, headers=patch)).status == 200
    with pytest.raises(Refused, match=r"401|403"):
        await command(server, there, first.json["token"], "id")


async def test_a_claim_that_could_never_be_is_refused_before_it_waits(server: Server) -> None:
    wrongs: list[dict[str, Any]] = [{"leaseSeconds": 10**12}, {"waitSeconds": -1}, {"labels": {"x y": "1"}}]
    for wrong in wrongs:
        reply = await claim(server, "wrong", **wrong)
        assert reply.status == 422, reply.body
    await until(server, 2)
    assert (await claim(server, "right", leaseSeconds=60)).status == 201
    assert (await claim(server, "right")).status == 200
    other = await claim(server, "right", leaseSeconds=61)
    assert other.status == 409 and "leaseSeconds" in other.json["message"]
