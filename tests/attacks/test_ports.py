"""To answer in the place of the server, from a box that is on the host's network."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.runtime.keeper import ports
from rota.runtime.keeper.client import Keeper
from rota.runtime.keeper.loop import Loop
from rota.server.addresses import address_of
from rota.server.sockets import AddressInUse, bind, twins
from tests.runtime.conftest import cleaned
from tests.runtime.homes import Home

LOOPBACK = "127.0.0.1"
SECONDS_MAX = 30.0


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    made = Home(tmp_path)
    yield made
    await cleaned(made)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with bind(LOOPBACK, 0, "--port") as sock:
        sock.listen()
        yield sock


def taken(address: tuple[str, int]) -> bool:
    """Try to take the address in every way that there is. Returns whether one succeeded."""
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as sock:
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                sock.bind(address)
                sock.listen()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return True
    return False


def served(home: Home, listening: socket.socket) -> Keeper:
    keeper = home.keeper()
    keeper.hold_listeners([listening])
    return keeper


async def test_to_take_the_port_of_a_server_that_restarts(home: Home, listening: socket.socket) -> None:
    address = listening.getsockname()
    async with served(home, listening):
        pass
    # The server is gone, and what it runs goes on.
    listening.close()
    assert not taken(address)
    with socket.create_connection(address, SECONDS_MAX) as caller:
        held = await asyncio.to_thread(ports.held_listeners, home.path, LOOPBACK)
        with bind(LOOPBACK, address[1], "--port", held=held) as again:
            for one in held:
                one.close()
            again.settimeout(SECONDS_MAX)
            # Who came meanwhile is served by the next server, and by nobody else.
            with again.accept()[0] as came:
                assert came.getpeername() == caller.getsockname()
            assert not taken(address)


@pytest.mark.parametrize("host", ["localhost", "127.1", LOOPBACK])
async def test_to_take_the_port_of_a_server_whose_address_is_written_as_a_name(
    home: Home, listening: socket.socket, host: str
) -> None:
    address = listening.getsockname()
    async with served(home, listening):
        pass
    listening.close()
    found = address_of(host)
    held = await asyncio.to_thread(ports.held_listeners, home.path, found)
    assert not taken(address), "it is given up to nobody"
    with bind(found, address[1], "--port", held=held) as again:
        for one in held:
            one.close()
        assert again.getsockname() == address


async def test_the_port_is_free_when_nothing_runs_any_more(home: Home, listening: socket.socket) -> None:
    address = listening.getsockname()
    async with served(home, listening) as keeper:
        listening.close()
        await keeper.shutdown(grace_seconds=0)
    assert taken(address)


async def test_a_server_on_another_address_has_the_port_that_was_held(home: Home, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    async with served(home, listening):
        pass
    listening.close()
    assert await asyncio.to_thread(ports.held_listeners, home.path, "0.0.0.0") == []
    with bind("0.0.0.0", port, "--port") as everywhere:
        everywhere.listen()


async def test_a_server_at_another_port_gives_up_the_one_before(home: Home, listening: socket.socket) -> None:
    address = listening.getsockname()
    async with served(home, listening):
        pass
    listening.close()
    with bind(LOOPBACK, 0, "--port") as other:
        other.listen()
        async with served(home, other):
            assert taken(address)
            assert not taken(other.getsockname())


def test_who_waits_for_a_server_that_does_not_come_is_turned_away(listening: socket.socket) -> None:
    loop = Loop()
    held = ports.Ports(loop)
    held.hold([listening.dup().detach()])
    held.reject_connections()
    with socket.create_connection(listening.getsockname(), SECONDS_MAX) as caller:
        loop.run_once()
        assert caller.recv(1) == b""
    # The next one has them to itself.
    held.stop_rejecting()
    listening.settimeout(SECONDS_MAX)
    with socket.create_connection(listening.getsockname(), SECONDS_MAX), listening.accept()[0] as came:
        assert came.fileno() >= 0
    held.hold([])


@pytest.mark.parametrize("host", [LOOPBACK, "0.0.0.0"])
def test_to_answer_under_the_name_of_this_host_at_its_other_address(host: str) -> None:
    with bind(host, 0, "--port") as listening:
        listening.listen()
        has_twin(listening)


def has_twin(listening: socket.socket) -> None:
    found = twins(listening, "--port")
    if not found:
        pytest.skip("this host has no ::1")
    with closing(found[0]) as twin:
        twin.listen()
        assert twin.getsockname()[:2] == ("::1", listening.getsockname()[1])
        assert not taken(("::1", listening.getsockname()[1]))
        with pytest.raises(AddressInUse):
            bind("::1", listening.getsockname()[1], "--port")
        # It is said, and no reason not to start.
        assert twins(listening, "--port") == []
