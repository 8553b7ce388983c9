"""The addresses and names by which a server can be reached, also one that listens on all addresses."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7443
LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean all addresses. Clients cannot connect to them; each has an address to connect to instead."""
ADDRESSES_MAX = 64
"""Addresses of the host that a certificate names."""
SIOCGIFADDR = 0x8915
INTERFACE_NAME_BYTES = 16
ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
"""Documentation addresses. Connecting a datagram socket to one reveals the outgoing address without sending."""


def dialled(host: str) -> str:
    """Return the address by which clients on this host reach a server that listens on `host`."""
    return ANY.get(host, host)


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class NoSuchAddress(OSError):  # noqa: N818
    """An address to listen on that this host does not have."""


def address_of(host: str) -> str:
    """Return the address of `host` as the kernel writes it.

    Raises NoSuchAddress, with the existing addresses, if nothing can listen on it here.
    """
    try:
        with socket.socket(family_of(host), socket.SOCK_STREAM) as trial:
            trial.bind((host, 0))
            return str(trial.getsockname()[0])
    except (OSError, UnicodeError):
        there = sorted({"127.0.0.1", *(each for each in _addresses() if _is_reachable(each))})[:ADDRESSES_MAX]
        wanted = "an address of this machine, without a port"
        raise NoSuchAddress(
            errno.EADDRNOTAVAIL,
            f"--host {host}: this machine has no such address; it takes {wanted}: {', '.join(there)}, "
            "or 0.0.0.0 for all of them (--port and --edge-port say the ports)",
        ) from None


def from_elsewhere(host: str) -> list[str]:
    """Return the addresses by which others on the network reach a server that listens on `host`."""
    if host not in ANY:
        return [] if host == "localhost" or _is_loopback(host) else [host]
    found = {each for each in _addresses() if _is_reachable(each) and not _is_loopback(each)}
    if host == "0.0.0.0":
        found = {each for each in found if ":" not in each}
    return sorted(found)[:ADDRESSES_MAX]


def names_of(host: str) -> frozenset[str]:
    """Return the names and addresses by which clients can address a server that listens on `host`."""
    if host not in ANY:
        return frozenset((*LOOPBACK, host))
    found = sorted({each for each in _addresses() if _is_reachable(each)})[:ADDRESSES_MAX]
    return frozenset((*LOOPBACK, socket.gethostname().lower(), *found))


def _addresses() -> Iterator[str]:
    for address, family in ELSEWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((address, 9))
            yield asking.getsockname()[0]
    if sys.platform == "linux":
        yield from _of_interfaces()


def _of_interfaces() -> Iterator[str]:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[: INTERFACE_NAME_BYTES - 1])
            with contextlib.suppress(OSError):
                yield socket.inet_ntoa(fcntl.ioctl(asking.fileno(), SIOCGIFADDR, request)[20:24])
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            yield str(ipaddress.IPv6Address(int(line.split()[0], 16)))


def is_address(name: str) -> bool:
    """Report whether a name is an IP address: nobody can make an address lead elsewhere by DNS, as they can a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False  # A name may resolve to an address of the network.


def _is_reachable(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_link_local or parsed.is_unspecified or parsed.is_multicast)
