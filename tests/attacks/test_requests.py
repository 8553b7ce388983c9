"""By what a request says of itself."""

from __future__ import annotations

import asyncio
import contextlib
import resource

import pytest

from rota.registry import ApiError
from rota.server import exec as exec_module
from rota.server import http_parsing
from tests.attacks.conftest import API, TENANT, Deployer
from tests.server.conftest import Server, parsed

CHUNKED = "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{head}\r\n"
SENT_BYTES_MAX = 64 * 1024 * 1024


def resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_to_be_somebody_by_a_header_that_comes_after_the_body(bare: Server) -> None:
    head = CHUNKED.format(method="GET", path=f"{API}/default/workerpools", head="")
    trailer = f"0\r\nAuthorization: Bearer {bare.token}\r\n\r\n"
    assert (await bare.raw((head + trailer).encode())).status == 401
    # Nor is what a header says replaced.
    head = CHUNKED.format(method="GET", path="/version", head=f"Authorization: Bearer {bare.token}\r\n")
    reply = await bare.raw(f"{head}0\r\nHost: evil.example\r\nOrigin: https://evil.example\r\n\r\n".encode())
    assert reply.status == 200


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("trailers", ["one", "many", "extension"])
async def test_to_fill_the_memory_with_trailers(bare: Server, trailers: str, is_known: bool) -> None:
    before = resident_bytes()
    reader, writer = await bare.connect()
    head = f"Authorization: Bearer {bare.token}\r\n" if is_known else ""
    writer.write(CHUNKED.format(method="POST", path=f"{API}/default/workerpools", head=head).encode())
    writer.write({"one": b"0\r\nX-Long: ", "many": b"0\r\n", "extension": b"1;long="}[trailers])
    piece = b"X-Many: yyyyyyyyyyyyyyyyyyyy\r\n" * 2048 if trailers == "many" else b"z" * 64 * 1024
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < SENT_BYTES_MAX and not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    assert sent < SENT_BYTES_MAX, "it was read to the end"
    with contextlib.suppress(ConnectionError):
        assert parsed(await asyncio.wait_for(reader.read(-1), 10)).status in (400, 401, 431)
    writer.close()
    assert resident_bytes() - before < SENT_BYTES_MAX // 2
    assert (await bare.ask("GET", "/version")).status == 200


async def test_a_body_of_chunks_of_one_byte_is_no_attack(bare: Server) -> None:
    content = b'{"metadata": {"name": "small"}}' + b" " * 4 * http_parsing.HEAD_BYTES_MAX
    head = f"Authorization: Bearer {bare.token}\r\nContent-Type: application/json\r\n"
    start = CHUNKED.format(method="POST", path="/api/v1/namespaces", head=head).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in content)
    assert (await bare.raw(start + chunks + b"0\r\nX-Checksum: abc\r\n\r\n")).status == 201


@pytest.mark.parametrize("header", ["Impersonate-User", "impersonate-group", "Impersonate-Extra-scopes"])
async def test_to_be_taken_for_somebody_else(bare: Server, attacker: Deployer, header: str) -> None:
    """Ignored, such a header would have the request done as whoever asks: as an admin who meant to do less."""
    for token in (bare.token, attacker.token):
        reply = await bare.ask("GET", f"{API}/{TENANT}/workerpools", token=token, headers={header: "bob"})
        assert (reply.status, reply.json["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("subresource", ["exec", "assignment", "status/../exec", "finalize", "log"])
async def test_to_make_an_instance_by_calling_it_something_else(attacker: Deployer, subresource: str) -> None:
    template = {"templateHash": "x", "ordinal": 0, "containers": [{"name": "a", "command": ["sleep", "1"]}]}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Instance", "metadata": {"name": "sly"}, "spec": template}
    operation = {
        "verb": "create",
        "apiVersion": body["apiVersion"],
        "kind": "Instance",
        "namespace": TENANT,
        "name": "sly",
        "subresource": subresource,
        "body": body,
    }
    reply = await attacker.ask("POST", "/v1/batch", {"operations": [operation]})
    assert reply.status in (400, 403)
    listed = await attacker.ask("GET", f"{API}/{TENANT}/instances")
    assert listed.json["items"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/api/v1/namespaces/{TENANT}/configmaps?{'&' * 100}"),
        ("DELETE", f"/api/v1/namespaces/{TENANT}/configmaps/a?{'&' * 100}"),
        ("PATCH", f"/api/v1/namespaces/{TENANT}/configmaps/a?{'&' * 100}"),
    ],
)
async def test_to_fill_the_log_with_errors_of_the_server(attacker: Deployer, method: str, path: str) -> None:
    """A faulty request is answered with its fault, and is no error of the server."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    reply = await attacker.ask(method, path, {}, headers={"Content-Type": kind})
    assert reply.status == 400, reply.json


@pytest.mark.parametrize("size", ["9" * 5000, "65536", "-1", "\u0661", "1_0", ""])
def test_to_have_a_terminal_of_no_size(size: str) -> None:
    with pytest.raises(ApiError) as refusal:
        exec_module._asked(f"command=sh&stdout=true&width={size}")
    assert refusal.value.code == 400
    assert len(refusal.value.message) < 200
