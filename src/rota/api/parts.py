"""What instances, workers and functions have in common: environment, commands and sizes."""

from typing import Annotated, Literal

from rota.api.model import LIST_ITEMS_MAX, KeyRef, Model, Quantity, Value, doc, exactly_one

Isolation = Literal["none", "sandbox"]
Network = Literal["none", "host"]


class ValueFrom(Model):
    """Where an environment value is read from."""

    rules = (exactly_one("secretKeyRef", "configMapKeyRef"),)
    secret_key_ref: Annotated[KeyRef | None, doc("A key of a Secret.", refers="Secret")] = None
    config_map_key_ref: Annotated[KeyRef | None, doc("A key of a ConfigMap.", refers="ConfigMap")] = None


class EnvVar(Model):
    """One environment variable."""

    rules = (exactly_one("value", "valueFrom"),)
    name: Annotated[
        str, doc("The variable's name.", min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    ]
    value: Annotated[Value | None, doc("Its value.")] = None
    value_from: Annotated[ValueFrom | None, doc("Where its value is read from.")] = None


Env = Annotated[list[EnvVar], doc("Environment variables.", max_length=LIST_ITEMS_MAX, keys=("name",))]
Argv = list[Value]


class Amounts(Model):
    """An amount of each resource."""

    cpu: Annotated[Quantity | None, doc("Virtual CPUs: 2, 500m.")] = None
    memory: Annotated[Quantity | None, doc("Memory: 512Mi, 2Gi.")] = None


class Resources(Model):
    """What a container is promised, and what it may use at most."""

    requests: Annotated[Amounts | None, doc("What it is promised.")] = None
    limits: Annotated[Amounts | None, doc("What it may use at most.")] = None
