"""The network of an instance, by its spec or the server's policy, and the checks against that policy.

A tenant gets no more network than the server gives to all, and gives no input to what reaches the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.api import Condition, Instance
from rota.api.egress import Network, Policy, Target, beyond, target
from rota.api.instance import InstanceTemplate
from rota.api.parts import Egress
from rota.api.worker import WorkerConfig
from rota.control import inputs
from rota.control.inputs import made_for
from rota.control.instances.states import MORE_NETWORK, NOT_ISOLATED
from rota.engine.objects import Objects
from rota.registry.privileges import is_restricted

NETWORK_CONFINED = "NetworkConfined"
BEYOND_POLICY = "BeyondPolicy"
HOSTS = (
    "it has the host's network: what the host reaches it reaches, link-local and metadata addresses "
    "(169.254.0.0/16, fe80::/10) included; `network: egress` or none closes them"
)

CLOSED = (
    "it has the host's network: what the host reaches it reaches, but for link-local and metadata addresses "
    "(169.254.0.0/16, fe80::/10), which the kernel closes to it; `network: egress` or none closes the rest"
)

Part = InstanceTemplate | WorkerConfig


def network_of(spec: InstanceTemplate, policy: Policy) -> Network:
    """Return the network of an instance: its own, else the host's with isolation `none`, else the policy's."""
    if spec.network is not None:
        return spec.network
    return "host" if spec.isolation == "none" else policy.network


def targets_of(spec: InstanceTemplate, policy: Policy) -> tuple[Target, ...]:
    """Return the targets that an instance with network egress can reach."""
    return tuple(target(entry) for entry in _entries(spec.egress)) if spec.egress else policy.targets


def beyond_policy(network: Network | None, egress: Sequence[Egress], policy: Policy) -> str:
    """Say how a network exceeds the policy, which only an admin may ask for; empty: it does not."""
    return beyond(policy, network, _entries(egress))


def check(objects: Objects, obj: Instance, policy: Policy) -> str:
    """Say why a tenant's instance must not be started, since its network exceeds the policy; empty: it may be."""
    why = beyond_policy(obj.spec.network, obj.spec.egress, policy)
    if not why:
        return ""
    owner = made_for(objects, obj)
    # The instance has its owner's mark from when it was made: the owner may be gone.
    is_others = any(is_restricted(one.metadata.annotations) for one in (obj, owner) if one is not None)
    return (
        f"spec.network: {why}; an admin can ask for more, or start the server with another --network"
        if is_others
        else ""
    )


def foreign_input(objects: Objects, obj: Instance, policy: Policy, *, isolated: bool) -> str:
    """Name a restricted input of an instance that reaches the host; empty: there is none."""
    has_more = beyond_policy(obj.spec.network, obj.spec.egress, policy)
    # An instance with isolation `sandbox` gets one, or is not started.
    if (isolated or obj.spec.isolation == "sandbox") and not has_more:
        why_open = inputs.host_files(objects, obj.metadata.namespace, obj.spec.workspace_ref)
    else:
        why_open = NOT_ISOLATED if not isolated else MORE_NETWORK
    if not why_open:
        return ""
    owner = made_for(objects, obj) or obj
    where = f"{owner.api.name}/{owner.metadata.name}"
    return inputs.refusal(objects, where, why_open, obj, owner)


def condition(obj: Instance, policy: Policy, *, isolated: bool, is_closed: bool = False) -> Condition:
    """Return the condition NetworkConfined of an instance.

    `is_closed`: on the host's network, the kernel closes link-local and metadata addresses to everything in it.
    """
    network = network_of(obj.spec, policy) if isolated else "host"
    if why := beyond_policy(obj.spec.network, obj.spec.egress, policy):
        said = f"{why}: only what an admin has written runs in it"
        return Condition(type=NETWORK_CONFINED, status="False", reason=BEYOND_POLICY, message=said)
    if network == "host":
        return Condition(
            type=NETWORK_CONFINED, status="False", reason="HostNetwork", message=CLOSED if is_closed else HOSTS
        )
    return Condition(type=NETWORK_CONFINED, status="True", reason="Egress" if network == "egress" else "NoNetwork")


def _entries(egress: Sequence[Egress]) -> list[dict[str, object]]:
    return [msgspec.to_builtins(one) for one in egress]
