"""What instances, workers and functions have in common: environment, commands and sizes."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from rota.api.egress import HOST, NAME_MAX, PORTS_MAX, RANGE, TARGETS_MAX, target
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
from rota.api.texts import more_than_nothing, within_limits

Isolation = Literal["none", "sandbox"]
Containment = Literal["none", "sandbox", "gvisor"]
"""Of what may run in containers, too."""
NETWORK = doc(
    "Which network it has: none; egress, one of its own with a proxy as the only way out, which reaches what egress "
    "lists; or the host's. Omitted: as the server was started, which is the host's unless that says otherwise."
)


class ValueFrom(Model):
    """Where an environment value is read from."""

    rules = (exactly_one("secretKeyRef", "configMapKeyRef"),)
    secret_key_ref: Annotated[KeyRef | None, doc("A key of a Secret.", refers="Secret")] = None
    config_map_key_ref: Annotated[KeyRef | None, doc("A key of a ConfigMap.", refers="ConfigMap")] = None


def _has_nul(env: dict[str, Any]) -> Iterator[Wrong]:
    """A program's environment ends at a NUL. In CEL it would cost too much to look for one."""
    if "\0" in env.get("value", ""):
        yield Wrong("value", "\0", "it must not contain a NUL character")


class EnvVar(Model):
    """One environment variable."""

    rules = (
        exactly_one("value", "valueFrom"),
        Rule("!self.name.startsWith('ROTA_')", "names that begin with ROTA_ are Rota's own", "name"),
    )
    checks = (Check(_has_nul, ("value",)),)
    name: Annotated[
        str, doc("The variable's name.", min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    ]
    value: Annotated[Value | None, doc("Its value.")] = None
    value_from: Annotated[ValueFrom | None, doc("Where its value is read from.")] = None


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
    """What can be reached: a name, or a range of addresses."""

    rules = (exactly_one("host", "cidr"),)
    checks = (Check(_wrong_target, ("host", "cidr")),)
    host: Annotated[
        str | None,
        doc(
            "A name; *.example.com stands for all names below example.com.",
            min_length=1,
            max_length=NAME_MAX,
            pattern=HOST,
        ),
    ] = None
    cidr: Annotated[
        str | None,
        doc(
            "A range of addresses, such as 192.0.2.0/24. Loopback, link-local and metadata addresses are reached by a "
            "range of such ones alone.",
            min_length=1,
            max_length=64,
            pattern=RANGE,
        ),
    ] = None
    ports: Annotated[list[Annotated[int, Meta(ge=1, le=65535)]], doc("Ports. Omitted: all.", max_length=PORTS_MAX)] = []


Targets = Annotated[
    list[Egress],
    doc(
        "What it can reach, with network egress. Omitted: what the server was started with.",
        max_length=TARGETS_MAX,
    ),
]
EGRESS = Rule(
    "!has(self.egress) || size(self.egress) == 0 || (has(self.network) && self.network == 'egress')",
    "egress is for network egress: say `network: egress`, or leave out the list",
    "egress",
)


class Amounts(Model):
    """An amount of each resource."""

    cpu: Annotated[Quantity | None, doc("Virtual CPUs: 2, 500m.")] = None
    memory: Annotated[Quantity | None, doc("Memory: 512Mi, 2Gi.")] = None


class Limits(Amounts):
    """What may be used of each resource at most."""

    pids: Annotated[
        int | None, doc("Processes and threads at once. Omitted: the server's default.", ge=1, le=4_194_304)
    ] = None


class Resources(Model):
    """What a container is promised, and what it may use at most."""

    rules = (*more_than_nothing("limits.cpu", "limits.memory"), within_limits("cpu"), within_limits("memory"))
    requests: Annotated[Amounts | None, doc("What it is promised.")] = None
    limits: Annotated[Limits | None, doc("What it may use at most. Omitted: the server's defaults.")] = None
