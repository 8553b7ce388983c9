"""By calling functions: from outside, with no key, and without waiting for an answer."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

from rota.client.http import HttpBackend
from rota.server import calls
from tests.server.test_edge import Running, running
from tests.until import until_so

__all__ = ["running"]  # the fixture

MIB = 1024 * 1024
CALLS = 12
SLOW = "import time\n\ndef handler(event, context):\n    time.sleep(30 if len(event['body']) > 9 else 0)\n"
CUT = struct.pack("ii", 1, 0)
"""A connection that is closed is cut: who is at the other end sees that at once."""


async def deploy(running: Running, name: str, *, public: bool) -> None:
    spec = {"entrypoint": "app:handler", "public": public, "scale": {"max": 1}, "source": {"inline": SLOW}}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": name}, "spec": spec}
    await running.client.create({**body, "spec": {**spec, "timeoutSeconds": 60}})


async def called(running: Running, name: str, body: bytes = b"", **headers: str) -> Any:
    return await until_so(
        lambda: running.ask("POST", f"/default/{name}", body, Host="127.0.0.1", **headers),
        lambda reply: reply.status not in (404, 503),
        f"an answer of {name}",
    )


async def test_to_fill_the_memory_with_calls_that_nobody_waits_for(running: Running) -> None:
    await deploy(running, "open", public=True)
    await deploy(running, "keyed", public=False)
    assert (await called(running, "open")).status == 200
    # Each byte is six of an event.
    body = b"\x01" * (MIB - 1024)
    head = f"POST /default/open HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    refused = 0
    for _ in range(CALLS):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head + body)
        await writer.drain()
        try:
            async with asyncio.timeout(0.2):
                refused += (await reader.read(12)).endswith(b"429")
        except TimeoutError:
            pass
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT)
        writer.transport.abort()
    taken = (CALLS - refused) * 6 * len(body)
    assert refused and taken <= calls.EVENTS_BYTES_MAX // 2
    # Who has a key has a share of their own.
    about = json.dumps({"name": "caller", "scope": "function", "namespace": "default"}).encode()
    backend = running.client.backend
    assert isinstance(backend, HttpBackend)
    made = await backend.raw("POST", "/v1/tokens", about, {"Content-Type": "application/json"})
    key = json.loads(made.body)["token"]
    assert (await called(running, "keyed", X_Rota_Key=key)).status == 200
