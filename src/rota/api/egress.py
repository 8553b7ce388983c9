"""Destinations on a network: those that an egress list allows, and those that a server's policy lets callers request.

A host name is allowed by an entry with that name or a wildcard, an address by an entry with a range of addresses.
Special addresses (loopback, link-local, a cloud's metadata, unspecified, multicast) are allowed neither by a name nor
by a range that is wider than the special one.

This module imports the standard library alone: the proxy of a sandbox loads it by its path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Range = ipaddress.IPv4Network | ipaddress.IPv6Network

Network = Literal["none", "egress", "host"]
NETWORKS: tuple[Network, ...] = ("none", "egress", "host")
"""The networks, from the most to the least isolated."""
NAME_MAX = 253
PORTS_MAX = 32
TARGETS_MAX = 64
HOST = r"^(\*\.)?([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?$"
RANGE = r"^[0-9a-fA-F.:]+(/[0-9]{1,3})?$"
HOST_RULE = "must be a name such as example.com, or *.example.com for all names below it"
WILDCARD = "*."
_HOST = re.compile(HOST.removesuffix("$") + r"\Z")
# A name in which every part is a number: resolvers take 127.1 and 0x7f000001 for addresses.
_NUMBERS = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\Z")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_STANDS_FOR_IPV4 = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("2002::/16"), _NAT64)
_LOOPBACK = ("127.0.0.0/8", "::1/128")
_LINK = ("169.254.0.0/16", "fe80::/10")
# The metadata services of clouds, which hand out credentials, unless they have a link-local address.
_METADATA = ("fd00:ec2::254/128", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32")
_NOBODY = ("0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32")
SPECIAL: dict[str, tuple[Range, ...]] = {
    "loopback": tuple(map(ipaddress.ip_network, _LOOPBACK)),
    "link-local": tuple(map(ipaddress.ip_network, _LINK)),
    "metadata": tuple(map(ipaddress.ip_network, _METADATA)),
    "unspecified or multicast": tuple(map(ipaddress.ip_network, _NOBODY)),
}


CLOSED = (*SPECIAL["link-local"], *SPECIAL["metadata"])
"""Closed to sandboxes on the host's network too, where the kernel can do that."""


class Target(NamedTuple):
    """An entry of an egress list: a name or a range of addresses, and its ports. Without ports, all are allowed."""

    host: str = ""
    range: Range | None = None
    ports: tuple[int, ...] = ()

    def has_port(self, port: int) -> bool:
        return not self.ports or port in self.ports

    def entry(self) -> dict[str, Any]:
        """Return the entry as an object of the API has it."""
        where = {"host": self.host} if self.range is None else {"cidr": str(self.range)}
        return {**where, **({"ports": list(self.ports)} if self.ports else {})}

    def __str__(self) -> str:
        """Return the entry in the form that `written` reads."""
        where = self.host if self.range is None else str(self.range)
        if not self.ports:
            return where
        return f"{f'[{where}]' if ':' in where else where}:{','.join(map(str, self.ports))}"


class Policy(NamedTuple):
    """The default network of a server, which is also the most that callers without the admin scope may request."""

    network: Network = "host"
    targets: tuple[Target, ...] = ()


def target(entry: Mapping[str, Any]) -> Target:
    """Read an entry of a list. Raises ValueError, which says what is wrong."""
    ports = tuple(sorted({*(entry.get("ports") or ())}))
    if ("host" in entry) == ("cidr" in entry):
        raise ValueError("it must have a host or a cidr, and not both")
    if "cidr" in entry:
        return Target(range=_range(entry["cidr"]), ports=ports)
    host = str(entry["host"])
    if len(host) > NAME_MAX or not _HOST.match(host):
        raise ValueError(f"{host!r} {HOST_RULE}")
    if _NUMBERS.match(host):
        raise ValueError(f"{host!r} is an address: write it as a cidr, such as 192.0.2.1/32")
    return Target(host=host, ports=ports)


def written(text: str) -> Target:
    """Read HOST, HOST:PORTS, CIDR or CIDR:PORTS, as a person writes it; an address of IPv6 with ports in brackets."""
    where, ports = text, ""
    if text.startswith("["):
        where, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r}: write an address of IPv6 as [2001:db8::/32] or [2001:db8::/32]:443")
        ports = rest.removeprefix(":")
    elif text.count(":") == 1:
        where, _, ports = text.partition(":")
        if not ports:
            raise ValueError(f"{text!r}: say a port after the colon, or leave it out")
    numbers = [int(port) if port.isascii() and port.isdigit() else 0 for port in ports.split(",")] if ports else []
    if any(not 0 < number < 1 << 16 for number in numbers) or len(numbers) > PORTS_MAX:
        raise ValueError(f"{text!r}: ports are numbers from 1 to 65535, such as :443 or :80,443")
    is_address = "/" in where or ":" in where or _NUMBERS.match(where.lower())
    return target({"cidr" if is_address else "host": where.lower(), "ports": numbers})


def _range(cidr: str) -> Range:
    try:
        found = ipaddress.ip_network(cidr)
    except ValueError as error:
        raise ValueError(f"{cidr!r} must be a range of addresses such as 192.0.2.0/24: {error}") from None
    # Addresses are translated before they are compared, so a range of these would never match.
    if any(_is_within(found, one) for one in _STANDS_FOR_IPV4):
        raise ValueError(f"{cidr!r} stands for addresses of IPv4: write those, such as 192.0.2.0/24")
    return found


def meant(address: Address) -> Address:
    """Return the address that packets to this one reach: the IPv4 address for an IPv6 one that stands for it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def special(address: Address) -> tuple[str, Range] | None:
    """Return the kind of a special address and its range; None for an ordinary address.

    An egress list allows a special address only by a range within the returned one.
    """
    end = meant(address)
    for kind, ranges in SPECIAL.items():
        for one in ranges:
            if end in one:
                return kind, one
    return None


def is_name(text: str) -> bool:
    """Report whether a text has the form of one host name, without a wildcard."""
    return len(text) <= NAME_MAX and bool(_HOST.match(text)) and not text.startswith(WILDCARD)


def is_named(targets: Iterable[Target], name: str, port: int) -> bool:
    """Report whether a list allows a name and port. Only such names may be resolved: a DNS query leaks the name."""
    return any(one.host and one.has_port(port) and _matches(one.host, name) for one in targets)


def allows(targets: Iterable[Target], address: Address, port: int, *, named: bool) -> bool:
    """Report whether an address may be dialled. `named`: it was resolved from a name that the list allows."""
    kind = special(address)
    if named and kind is None:
        return True
    end = meant(address)
    ranges = (one.range for one in targets if one.range is not None and one.has_port(port))
    return any(end in one and (kind is None or _is_within(one, kind[1])) for one in ranges)


def normal(name: str) -> str:
    """Return a name in lower case, without a final dot."""
    return name.lower().removesuffix(".")


def covers(targets: Iterable[Target], wanted: Target) -> bool:
    """Report whether a single entry of a list allows everything that `wanted` allows."""
    for one in targets:
        if one.ports and (not wanted.ports or not {*wanted.ports} <= {*one.ports}):
            continue
        if wanted.range is not None and one.range is not None and _is_within(wanted.range, one.range):
            # A special range is covered only by an entry within the same special range.
            kind = special(wanted.range[0])
            if kind is None or not _is_within(wanted.range, kind[1]) or _is_within(one.range, kind[1]):
                return True
        if wanted.host and one.host and (one.host == wanted.host or _matches(one.host, wanted.host)):
            return True
    return False


def beyond(policy: Policy, network: Any, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason why a network and its egress list exceed a policy; empty if they do not."""
    if network not in NETWORKS:
        return ""
    if NETWORKS.index(network) > NETWORKS.index(policy.network):
        return f"the most that this server gives is network {policy.network}"
    for entry in entries:
        try:
            wanted = target(entry)
        except ValueError as error:
            return str(error)
        kind = special(wanted.range[0]) if wanted.range is not None else None
        is_special = kind is not None and wanted.range is not None and _is_within(wanted.range, kind[1])
        is_covered = covers(policy.targets, wanted)
        if kind is not None and is_special and not is_covered:
            return f"{wanted} is of the {kind[0]} addresses of the host"
        if policy.network == "egress" and not is_covered:
            allowed = ", ".join(map(str, policy.targets)) or "nothing"
            return f"{wanted} is not within what this server allows, which is {allowed}"
    return ""


def _matches(pattern: str, name: str) -> bool:
    """Report whether a name matches. A wildcard matches the names below it, and not the name itself."""
    if pattern.startswith(WILDCARD):
        return name.removeprefix(WILDCARD).endswith(pattern[1:]) or name == pattern
    return name == pattern


def _is_within(inner: Range, outer: Range) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
