"""The numbers of the ports of an instance, and their variables and addresses."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from rota.api import Instance, ObjectMeta
from rota.api.instance import Address, Container, InstanceSpec, InstanceStatus, Port
from rota.control.making import ports as module
from rota.control.making.ports import OWN_NETWORK_FIRST, addresses, allot, environment
from rota.runtime import egress
from rota.runtime.interface import Refused

HTTP, METRICS = Port(name="http"), Port(name="metrics")


def listening(*ports: Port, name: str = "main") -> Container:
    return Container(name=name, command=["serve"], ports=list(ports))


def an_instance(*containers: Container, recorded: dict[str, int] | None = None, **spec: Any) -> Instance:
    found = [Address(name=name, host="127.0.0.1", port=port) for name, port in (recorded or {}).items()]
    return Instance(
        metadata=ObjectMeta(name="agents-0", namespace="default"),
        spec=InstanceSpec(containers=list(containers), template_hash="h", ordinal=0, **spec),
        status=InstanceStatus(addresses=found) if recorded is not None else None,
    )


def test_a_port_that_says_its_number_has_it() -> None:
    assert allot(an_instance(listening(Port(name="http", port=8080))), [8081]) == {"main": {"http": 8080}}


def test_a_number_that_another_instance_has_is_refused_unless_the_network_is_its_own() -> None:
    listener = listening(Port(name="http", port=8080))
    with pytest.raises(Refused, match="port 8080 is another instance's"):
        allot(an_instance(listener), [8080])
    assert allot(an_instance(listener, network="none"), [8080], "none") == {"main": {"http": 8080}}


def test_a_container_without_ports_has_none() -> None:
    assert allot(an_instance(listening()), []) == {"main": {}}


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_a_port_without_a_number_gets_one_that_is_free(protocol: Any) -> None:
    number = allot(an_instance(listening(Port(name="http", protocol=protocol))), [])["main"]["http"]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", number))


def test_every_port_gets_another_number() -> None:
    many = [Port(name=f"p{n}") for n in range(64)]
    numbers = allot(an_instance(listening(*many)), [])["main"].values()
    assert len(set(numbers)) == 64


def test_what_others_have_is_not_handed_out_even_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = iter([4001, 4002, 4003])

    class Offering(socket.socket):
        def bind(self, address: Any) -> None:
            self.offered = next(offered)

        def getsockname(self) -> Any:
            return "127.0.0.1", self.offered

    monkeypatch.setattr(socket, "socket", Offering)
    assert allot(an_instance(listening(HTTP)), {4001, 4002}) == {"main": {"http": 4003}}


def test_that_no_number_is_free_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES_MAX", 3)
    with pytest.raises(Refused, match="port http can be given no number: none is free") as refused:
        allot(an_instance(listening(HTTP)), range(65_536))
    assert refused.value.reason == "Provisioning"


def test_a_number_that_was_recorded_stays() -> None:
    instance = an_instance(listening(HTTP, METRICS), recorded={"http": 40_001})
    numbers = allot(instance, [])["main"]
    assert numbers["http"] == 40_001 and numbers["metrics"] != 40_001


def test_a_number_that_is_said_is_worth_more_than_one_that_was_recorded() -> None:
    said = Port(name="http", port=8080)
    assert allot(an_instance(listening(said), recorded={"http": 40_001}), []) == {"main": {"http": 8080}}
    numbers = allot(an_instance(listening(said, METRICS), recorded={"metrics": 8080}), [])["main"]
    assert numbers["http"] == 8080 != numbers["metrics"]


def test_in_a_network_of_its_own_the_numbers_are_always_the_same() -> None:
    instance = an_instance(listening(Port(name="a"), Port(name="b", port=OWN_NETWORK_FIRST), HTTP), network="none")
    first, second, third = OWN_NETWORK_FIRST, OWN_NETWORK_FIRST + 1, OWN_NETWORK_FIRST + 2
    assert allot(instance, range(65_536), "none") == {"main": {"a": second, "b": first, "http": third}}


def test_the_same_name_in_two_containers_is_refused_for_an_address_is_found_by_its_name() -> None:
    with pytest.raises(Refused, match="container main has a port of this name, too: rename one") as refused:
        allot(an_instance(listening(HTTP), listening(HTTP, name="beside")), [])
    assert refused.value.reason == "ConfigurationError"


def test_two_containers_cannot_have_the_same_number_of_the_host() -> None:
    both = [listening(Port(name="a", port=8080)), listening(Port(name="b", port=8080), name="beside")]
    with pytest.raises(Refused, match="container main wants this port of the host, too"):
        allot(an_instance(*both), [])
    assert allot(an_instance(*both, network="none"), [], "none") == {"main": {"a": 8080}, "beside": {"b": 8080}}


def test_one_number_can_be_had_by_two_protocols_and_by_two_names_of_a_container() -> None:
    of_both = [
        listening(Port(name="dns", port=5353, protocol="UDP"), Port(name="again", port=5353, protocol="UDP")),
        listening(Port(name="dns-tcp", port=5353), name="beside"),
    ]
    assert allot(an_instance(*of_both), []) == {"main": {"dns": 5353, "again": 5353}, "beside": {"dns-tcp": 5353}}


def test_a_container_is_told_its_ports_by_name() -> None:
    assert environment({"http": 1, "dns-tcp": 2}) == {"ROTA_PORT_HTTP": "1", "ROTA_PORT_DNS_TCP": "2"}
    assert environment({}) == {}


def test_the_only_port_has_a_short_name_too() -> None:
    assert environment({"http": 8080}) == {"ROTA_PORT_HTTP": "8080", "PORT": "8080"}


@pytest.mark.parametrize("name", ["a=b", "a\0b", "a b", "ä.b"])
def test_whatever_a_port_is_called_its_variable_is_a_variable(name: str) -> None:
    assert all(variable.isascii() and variable.isidentifier() for variable in environment({name: 1}))


def test_the_addresses_are_on_this_host() -> None:
    allotted = {"main": {"http": 1}, "beside": {"metrics": 2}}
    assert [(one.name, one.host, one.port) for one in addresses(allotted)] == [
        ("http", "127.0.0.1", 1),
        ("metrics", "127.0.0.1", 2),
    ]


def test_the_port_of_the_proxy_is_taken() -> None:
    instance = an_instance(listening(Port(name="a", port=egress.PORT)), network="egress")
    with pytest.raises(Refused, match="that of the proxy"):
        allot(instance, [], "egress")
    assert allot(instance, [], "none") == {"main": {"a": egress.PORT}}


def test_what_has_a_network_of_its_own_has_no_address() -> None:
    instance = an_instance(listening(HTTP), network="none")
    assert addresses(allot(instance, [], "none"), "none") == []


def test_what_was_recorded_as_addresses_is_allotted_again() -> None:
    instance = an_instance(listening(HTTP, METRICS))
    allotted = allot(instance, [])
    recorded = {one.name: one.port for one in addresses(allotted)}
    assert allot(an_instance(listening(HTTP, METRICS), recorded=recorded), []) == allotted
