"""The network of an instance: what its spec says, or else the server's policy; and whether it is beyond the policy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.api import Condition, Instance
from rota.api.egress import Network, Policy, Target, beyond, target
from rota.api.instance import InstanceTemplate
from rota.api.parts import Egress
from rota.api.worker import WorkerConfig
from rota.control.inputs import made_for
from rota.engine.objects import Objects
from rota.registry.privileges import is_restricted

NETWORK_CONFINED = "NetworkConfined"
BEYOND_POLICY = "BeyondPolicy"
HOSTS = (
    "it has the host's network: what the host reaches it reaches, link-local and metadata addresses "
    "(169.254.0.0/16, fe80::/10) included; `network: egress` or none closes them"
)

Part = InstanceTemplate | WorkerConfig


def network_of(spec: InstanceTemplate, policy: Policy) -> Network:
    """The network that an instance has. One that an admin made without isolation is on the host anyway."""
    if spec.network is not None:
        return spec.network
    return "host" if spec.isolation == "none" else policy.network


def targets_of(spec: InstanceTemplate, policy: Policy) -> tuple[Target, ...]:
    """What an instance with network egress can reach."""
    return tuple(target(entry) for entry in _entries(spec.egress)) if spec.egress else policy.targets


def beyond_policy(network: Network | None, egress: Sequence[Egress], policy: Policy) -> str:
    """Say in which way a network is more than others than admins get; empty: in none."""
    return beyond(policy, network, _entries(egress))


def check(objects: Objects, obj: Instance, policy: Policy) -> str:
    """Say why an instance must not be started: somebody who is no admin asked for it under another policy."""
    why = beyond_policy(obj.spec.network, obj.spec.egress, policy)
    if not why:
        return ""
    owner = made_for(objects, obj)
    # It has the mark itself where its owner had it when it was made: the owner may be gone.
    is_others = any(is_restricted(one.metadata.annotations) for one in (obj, owner) if one is not None)
    return (
        f"spec.network: {why}; an admin can ask for more, or start the server with another --network"
        if is_others
        else ""
    )


def condition(obj: Instance, policy: Policy, *, isolated: bool) -> Condition:
    """What its network keeps an instance from."""
    network = network_of(obj.spec, policy) if isolated else "host"
    if why := beyond_policy(obj.spec.network, obj.spec.egress, policy):
        said = f"{why}: only what an admin has written runs in it"
        return Condition(type=NETWORK_CONFINED, status="False", reason=BEYOND_POLICY, message=said)
    if network == "host":
        return Condition(type=NETWORK_CONFINED, status="False", reason="HostNetwork", message=HOSTS)
    return Condition(type=NETWORK_CONFINED, status="True", reason="Egress" if network == "egress" else "NoNetwork")


def _entries(egress: Sequence[Egress]) -> list[dict[str, object]]:
    return [msgspec.to_builtins(one) for one in egress]
