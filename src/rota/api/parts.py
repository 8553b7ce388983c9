"""Fields that instances, workers and functions share: environment, commands, network and sizes."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from rota.api.egress import HOST, NAME_MAX, PORTS_MAX, RANGE, TARGETS_MAX, target
from rota.api.field_rules import more_than_nothing, within_limits
from rota.api.model import (
    LIST_ITEMS_MAX,
    Argument,
    Check,
    KeyRef,
    Model,
    Quantity,
    Rule,
    Value,
    Wrong,
    doc,
    exactly_one,
)

Isolation = Literal["none", "sandbox"]
Containment = Literal["none", "sandbox", "gvisor"]
"""Isolation of instances that may run in containers too."""
NETWORK = doc(
    "Network of the instance. egress: one of its own, with a proxy as the only way out, which reaches the "
    "destinations in the field egress. Omitted: the server's default, which is host unless configured otherwise."
)


class ValueFrom(Model):
    """Source of an environment value. Exactly one of the fields must be set."""

    rules = (exactly_one("secretKeyRef", "configMapKeyRef"),)
    secret_key_ref: Annotated[KeyRef | None, doc("Key of a Secret.", refers="Secret")] = None
    config_map_key_ref: Annotated[KeyRef | None, doc("Key of a ConfigMap.", refers="ConfigMap")] = None


def _has_nul(env: dict[str, Any]) -> Iterator[Wrong]:
    """A program's environment ends at a NUL. In CEL it would cost too much to look for one."""
    if "\0" in env.get("value", ""):
        yield Wrong("value", "\0", "it must not contain a NUL character")


class EnvVar(Model):
    """An environment variable."""

    rules = (
        exactly_one("value", "valueFrom"),
        Rule("!self.name.startsWith('ROTA_')", "names that begin with ROTA_ are Rota's own", "name"),
    )
    checks = (Check(_has_nul, ("value",)),)
    name: Annotated[
        str, doc("Name of the variable.", min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    ]
    value: Annotated[Value | None, doc("Value of the variable.")] = None
    value_from: Annotated[ValueFrom | None, doc("Source of the value.")] = None


Env = Annotated[list[EnvVar], doc("Environment variables.", max_length=LIST_ITEMS_MAX, keys=("name",))]
Argv = list[Argument]


def _wrong_target(entry: dict[str, Any]) -> Iterator[Wrong]:
    named = {field: entry[field] for field in ("host", "cidr") if isinstance(entry.get(field), str)}
    if len(named) != 1:
        return  # a rule says so
    try:
        target(named)
    except ValueError as error:
        [(field, value)] = named.items()
        yield Wrong(field, value, str(error))


class Egress(Model):
    """An allowed destination: a name, or a range of addresses."""

    rules = (exactly_one("host", "cidr"),)
    checks = (Check(_wrong_target, ("host", "cidr")),)
    host: Annotated[
        str | None,
        doc(
            "Host name. *.example.com stands for all names below example.com.",
            min_length=1,
            max_length=NAME_MAX,
            pattern=HOST,
        ),
    ] = None
    cidr: Annotated[
        str | None,
        doc(
            "Range of addresses, such as 192.0.2.0/24. Loopback, link-local and metadata addresses are allowed by a "
            "range within theirs only.",
            min_length=1,
            max_length=64,
            pattern=RANGE,
        ),
    ] = None
    ports: Annotated[
        list[Annotated[int, Meta(ge=1, le=65535)]], doc("Allowed ports. Omitted: all ports.", max_length=PORTS_MAX)
    ] = []


Targets = Annotated[
    list[Egress],
    doc(
        "Allowed destinations of network egress. Omitted: the server's default.",
        max_length=TARGETS_MAX,
    ),
]
EGRESS = Rule(
    "!has(self.egress) || size(self.egress) == 0 || (has(self.network) && self.network == 'egress')",
    "egress is for network egress: say `network: egress`, or leave out the list",
    "egress",
)


class Amounts(Model):
    """Amounts of resources."""

    cpu: Annotated[Quantity | None, doc("Virtual CPUs, such as 2 or 500m.")] = None
    memory: Annotated[Quantity | None, doc("Memory, such as 512Mi or 2Gi.")] = None


class Limits(Amounts):
    """Maximum amounts of resources."""

    pids: Annotated[
        int | None, doc("Number of processes and threads at once. Omitted: the server's default.", ge=1, le=4_194_304)
    ] = None


class Resources(Model):
    """Resource requests and limits."""

    rules = (*more_than_nothing("limits.cpu", "limits.memory"), within_limits("cpu"), within_limits("memory"))
    requests: Annotated[Amounts | None, doc("Guaranteed amounts.")] = None
    limits: Annotated[Limits | None, doc("Maximum amounts. Omitted: the server's defaults.")] = None
