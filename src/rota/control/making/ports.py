"""The ports of an instance: their numbers, variables and addresses.

A name stands for one port of the whole instance, since an address is found by its name: the same name in two containers
is refused. With the host's network, two containers cannot listen at the same number, which is refused as well; with
networks of their own they can. Two names of one number in a container are one port.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Mapping

import msgspec

from rota.api.conflicts import PORTS, port_variable
from rota.api.egress import Network
from rota.api.instance import Address, Instance, Port
from rota.api.problems import invalid
from rota.runtime import egress
from rota.runtime.interface import Refused

HOST = "127.0.0.1"
OWN_NETWORK_FIRST = 20_000
"""The first number that is handed out in an instance's own network: unprivileged, and no well-known port."""
PORT_MAX = 65_535
TRIES_MAX = 64
"""Numbers that the host offers at random before it counts as having no free one."""
ONLY_VARIABLE = "PORT"

_KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}


def allot(instance: Instance, taken: Collection[int], network: Network = "host") -> dict[str, dict[str, int]]:
    """Allot the number of every port, by container and name. Raises Refused.

    A number in the spec is used as it is. A recorded number stays, since what runs listens there. Other ports get a
    number that is free on this host and not in `taken`, the numbers of other instances. Another program may take it
    before the instance listens: then the instance fails as with any port in use.
    """
    _check(instance)
    has_own = network != "host"
    ports = [port for container in instance.spec.containers for port in container.ports]
    numbers = {port.name: port.port for port in ports if port.port is not None}
    explicit = {*numbers.values()}
    if network == "egress" and egress.PORT in explicit:
        raise _refused(f"port {egress.PORT} is that of the proxy, with network egress: choose another number")
    if not has_own and (twice := explicit & {*taken}):
        raise _refused(
            f"port {min(twice)} is another instance's on this host: leave the number out to be given one that is free"
        )
    for address in instance.status.addresses if instance.status else []:
        if address.port not in explicit:
            numbers.setdefault(address.name, address.port)
    with contextlib.ExitStack() as held:
        for port in ports:
            if port.name in numbers:
                continue
            if has_own:
                numbers[port.name] = _free_inside({*numbers.values(), egress.PORT})
            else:
                numbers[port.name] = _free_on_host(port, {*taken, *numbers.values()}, held)
    return {
        container.name: {port.name: numbers[port.name] for port in container.ports}
        for container in instance.spec.containers
    }


def environment(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the variables of a container with the numbers of its ports."""
    found = {port_variable(name): str(number) for name, number in ports.items()}
    if len(ports) == 1:
        found[ONLY_VARIABLE] = str(*ports.values())
    return found


def addresses(allotted: Mapping[str, Mapping[str, int]], network: Network = "host") -> list[Address]:
    """Return the addresses of ports. Ports in an instance's own network have none: nobody reaches them."""
    if network != "host":
        return []
    return [Address(name=name, host=HOST, port=n) for ports in allotted.values() for name, n in ports.items()]


def _check(instance: Instance) -> None:
    """Refuse invalid ports that the API server of a cluster has accepted, since it only checks CEL."""
    if any(container.ports for container in instance.spec.containers):
        for field, value, why in PORTS.find(msgspec.to_builtins(instance.spec)):
            raise _refused(str(invalid(f"spec.{field}", value, why)))


def _free_inside(used: Collection[int]) -> int:
    """Return the lowest free number: the same each time, since it is not recorded."""
    for number in range(OWN_NETWORK_FIRST, PORT_MAX + 1):
        if number not in used:
            return number
    raise Refused("Provisioning", "no port is free")


def _free_on_host(port: Port, used: Collection[int], held: contextlib.ExitStack) -> int:
    """Return a free number. Unusable numbers stay bound in `held`, so that the host offers others."""
    try:
        for _ in range(TRIES_MAX):
            opened = held.enter_context(socket.socket(socket.AF_INET, _KINDS[port.protocol]))
            opened.bind((HOST, 0))
            number: int = opened.getsockname()[1]
            if number not in used:
                return number
    except OSError as error:
        raise Refused("Provisioning", f"port {port.name} can be given no number: {error.strerror}") from error
    raise Refused("Provisioning", f"port {port.name} can be given no number: none is free")


def _refused(message: str) -> Refused:
    return Refused("ConfigurationError", message)
