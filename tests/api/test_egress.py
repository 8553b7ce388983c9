"""The destinations that a list allows, and the lists that a policy allows."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from rota.api.egress import Policy, Target, allows, beyond, covers, is_named, normal, special, target, written

MEANT = [
    ("example.com", {"host": "example.com"}),
    ("*.Example.com:443", {"host": "*.example.com", "ports": [443]}),
    ("a.example:443,80,80", {"host": "a.example", "ports": [80, 443]}),
    ("192.0.2.7", {"cidr": "192.0.2.7/32"}),
    ("10.0.0.0/8:5432", {"cidr": "10.0.0.0/8", "ports": [5432]}),
    ("2001:db8::/32", {"cidr": "2001:db8::/32"}),
    ("::/0", {"cidr": "::/0"}),
    ("[2001:db8::1]:22", {"cidr": "2001:db8::1/128", "ports": [22]}),
]


@pytest.mark.parametrize(("text", "entry"), MEANT)
def test_what_a_person_writes_is_an_entry_and_can_be_written_again(text: str, entry: dict[str, Any]) -> None:
    found = written(text)
    assert found.entry() == entry and target(entry) == found
    assert written(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["", ":80", "a:", "a:0", "a:70000", "a:x", "a:80,", "a b", "*", "*.", "a.*", "10.0.0.1/8", "[::1", "[::1]x",
     "1.2.3/8", "-a", "a..b", "x" * 254, "a:\u0661", "http://a", "a/b"],
)  # fmt: skip
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|such as|leave it out|write"):
        written(text)


def test_names() -> None:
    targets = [written("example.com:443"), written("*.wild.example")]
    assert is_named(targets, normal("EXAMPLE.com."), 443)
    assert is_named(targets, "a.wild.example", 1) and is_named(targets, "a.b.wild.example", 1)
    for name, port in (("example.com", 80), ("a.example.com", 443), ("wild.example", 1), ("awild.example", 1)):
        assert not is_named(targets, name, port), name


@pytest.mark.parametrize(
    ("address", "kind"),
    [("127.9.9.9", "loopback"), ("::1", "loopback"), ("::ffff:127.0.0.1", "loopback"), ("64:ff9b::7f00:1", "loopback"),
     ("2002:7f00:1::", "loopback"), ("169.254.169.254", "link-local"), ("::ffff:a9fe:a9fe", "link-local"),
     ("fe80::1", "link-local"), ("fd00:ec2::254", "metadata"), ("168.63.129.16", "metadata"),
     ("0.0.0.0", "unspecified or multicast"), ("::", "unspecified or multicast"),
     ("ff02::1", "unspecified or multicast"), ("239.1.1.1", "unspecified or multicast")],
)  # fmt: skip
def test_special_addresses_are_reached_by_a_range_of_their_own_kind_alone(address: str, kind: str) -> None:
    one = ipaddress.ip_address(address)
    found = special(one)
    assert found is not None and found[0] == kind
    everything = [written("0.0.0.0/0"), written("::/0"), written("a.example")]
    assert not allows(everything, one, 80, named=False) and not allows(everything, one, 80, named=True)
    assert allows([Target(range=found[1])], one, 80, named=False)
    assert not allows([Target(range=found[1], ports=(81,))], one, 80, named=False)


def test_other_addresses_are_reached_by_name_or_by_range() -> None:
    one = ipaddress.ip_address("10.1.2.3")
    assert allows([], one, 80, named=True) and not allows([], one, 80, named=False)
    assert allows([written("10.0.0.0/8:80")], one, 80, named=False)
    assert not allows([written("10.0.0.0/8:80")], one, 81, named=False)


def test_what_covers_what() -> None:
    for outer, inner in (("*.a.b", "x.a.b"), ("*.a.b", "*.x.a.b"), ("a.b", "a.b:1"), ("10.0.0.0/8", "10.1.0.0/16:1")):
        assert covers([written(outer)], written(inner)), (outer, inner)
        assert not covers([written(inner)], written(outer)), (outer, inner)
    for outer, inner in (("a.b:1", "a.b"), ("*.a.b", "a.b"), ("::/0", "10.0.0.0/8"), ("0.0.0.0/0", "127.0.0.1/32")):
        assert not covers([written(outer)], written(inner)), (outer, inner)


def test_what_is_beyond_a_policy() -> None:
    some = Policy("egress", (written("*.a.b:443"), written("127.0.0.1/32:80")))
    assert beyond(some, None, ()) == beyond(some, "none", ()) == beyond(some, "egress", ()) == ""
    assert beyond(some, "egress", [{"host": "x.a.b", "ports": [443]}]) == ""
    assert beyond(some, "egress", [{"cidr": "127.0.0.1/32", "ports": [80]}]) == ""
    assert "not within" in beyond(some, "egress", [{"host": "x.a.b"}])
    assert "loopback" in beyond(some, "egress", [{"cidr": "127.0.0.1/32"}])
    assert "network egress" in beyond(some, "host", ())
    assert beyond(Policy(), "host", ()) == beyond(Policy(), "egress", [{"host": "a"}, {"cidr": "0.0.0.0/0"}]) == ""
    assert "link-local" in beyond(Policy(), "egress", [{"cidr": "169.254.169.254/32"}])
    assert "network none" in beyond(Policy("none"), "egress", ())
