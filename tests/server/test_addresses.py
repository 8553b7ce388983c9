"""Where a server says it is, and by which names it lets itself be asked for."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from rota.server.addresses import dialled, names_of
from tests.server.conftest import served

ANY = ["0.0.0.0", "::"]


@pytest.mark.parametrize(("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3")])
def test_all_addresses_are_dialled_at_one_that_can_be(host: str, address: str) -> None:
    assert dialled(host) == address


def test_a_server_on_one_address_is_asked_for_by_that_and_by_loopback() -> None:
    assert names_of("10.1.2.3") == {"localhost", "127.0.0.1", "::1", "10.1.2.3"}
    assert not names_of("0.0.0.0") & {"0.0.0.0", "::", ""}


@pytest.mark.parametrize("host", ANY)
async def test_the_kubeconfig_of_a_server_on_all_addresses_can_be_used(tmp_path: Path, host: str) -> None:
    if host == "::" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    async with served(tmp_path / "home", host=host, with_controllers=False) as server:
        cluster = json.loads(server.kubeconfig.read_text())["clusters"][0]["cluster"]
        shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]"
        assert cluster["server"] == server.url == f"https://{shown}:{server.port}"
        for name in sorted(names_of(host)):
            # Whatever it is asked for by, its certificate holds, and it is not taken for a page of somebody else's.
            said = await _ask(server.port, shown.strip("[]"), name, server.tls, server.token)
            assert said.startswith(b"HTTP/1.1 200 "), (name, said)
        said = await _ask(server.port, shown.strip("[]"), "evil.example", None, server.token)
        assert said.startswith(b"HTTP/1.1 403 ")


async def _ask(port: int, address: str, name: str, tls: ssl.SSLContext | None, token: str) -> bytes:
    """Ask for the version at an address, by a name that the certificate must cover unless `tls` is None."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(address, port, ssl=tls or unverified, server_hostname=name)
    shown = f"[{name}]" if ":" in name else name
    head = (
        f"GET /version HTTP/1.1\r\nHost: {shown}:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode())
    try:
        return await reader.read(-1)
    finally:
        writer.close()
