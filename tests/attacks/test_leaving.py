"""To have something done and no trace of it, by not waiting for the answer, or by having the last of many refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.attacks.conftest import API, TENANT, Deployer
from tests.attacks.test_trail import lines
from tests.server.conftest import Server, pool

MAPS = f"/api/v1/namespaces/{TENANT}/configmaps"
COUNT = 40
PATIENCE_SECONDS = 20


async def leave(who: Deployer, method: str, path: str, body: Any, *, turns: int) -> None:
    """Send a request whole, and go after so many turns of the event loop, which is the server's too."""
    content = b"" if body is None else json.dumps(body).encode()
    _, writer = await who.server.connect()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {who.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    for _ in range(turns):
        await asyncio.sleep(0)
    writer.transport.abort()


async def there(server: Server) -> set[str]:
    """The ConfigMaps that there are, once nothing is under way any more."""
    before: set[str] | None = None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            # What is asked for behind it is answered after what was under way has been stored.
            await server.ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "g-"}})
            found = (await server.ask("GET", MAPS)).json["items"]
            names = {one["metadata"]["name"] for one in found}
            if names == before:
                return names
            before = names


def recorded(server: Server, verb: str) -> set[str]:
    about = {"resource": "configmaps", "namespace": TENANT, "verb": verb, "code": 200 if "delete" in verb else 201}
    return {line["name"] for line in lines(server.home) if about.items() <= line.items()}


def made(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def test_to_write_unseen_by_not_waiting_for_the_answer(bare: Server, attacker: Deployer) -> None:
    for turns in range(COUNT):
        await leave(attacker, "POST", MAPS, made(f"m{turns}"), turns=turns)
    names = await there(bare)
    assert names and names <= recorded(bare, "create")


async def test_to_send_a_batch_unseen_by_not_waiting_for_the_answer(bare: Server, attacker: Deployer) -> None:
    about = {"verb": "create", "apiVersion": "v1", "kind": "ConfigMap", "namespace": TENANT}
    for turns in range(COUNT):
        batch = [{**about, "body": made(f"m{turns}-{i}")} for i in range(2)]
        await leave(attacker, "POST", "/v1/batch", {"operations": batch, "atomic": turns % 2 == 0}, turns=turns)
    names = await there(bare)
    found = {line["name"] for line in lines(bare.home) if line["verb"] == "create" and line["code"] in (200, 201)}
    assert names and names <= found


async def test_to_delete_many_unseen_by_not_waiting_for_the_answer(bare: Server, attacker: Deployer) -> None:
    names = {f"m{i}" for i in range(100)}
    for name in names:
        await attacker.ask("POST", MAPS, made(name))
    left, turns = names, COUNT
    while left == names:
        await leave(attacker, "DELETE", MAPS, None, turns=turns)
        left, turns = await there(bare), turns * 2
    assert names - left == recorded(bare, "deletecollection")


async def test_to_delete_many_unseen_by_one_that_is_refused(bare: Server, attacker: Deployer) -> None:
    """The pools of a deployer go, and then comes one that is an admin's."""
    pools = f"{API}/{TENANT}/workerpools"
    for i in range(3):
        assert (await attacker.ask("POST", pools, pool(f"m{i}"))).status == 201
    admins = pool("z", worker={"type": "shell", "isolation": "none"})
    assert (await bare.ask("POST", pools, admins)).status == 201
    assert (await attacker.ask("DELETE", pools)).status == 403
    about = {"resource": "workerpools.rota.dev", "verb": "deletecollection", "code": 200}
    assert {line["name"] for line in lines(bare.home) if about.items() <= line.items()} == {"m0", "m1", "m2"}
