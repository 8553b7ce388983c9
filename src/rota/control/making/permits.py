"""The rule for what may be made where: the network policy of a maker, and the inputs of what reaches its host.

For every maker: what a tenant wrote gets no more than the server gives to all.
"""

from __future__ import annotations

from rota.api import Instance
from rota.api.egress import Policy
from rota.control import inputs, networks
from rota.control.instances.states import MORE_NETWORK, NOT_ISOLATED
from rota.engine.objects import Objects


def foreign_input(objects: Objects, obj: Instance, policy: Policy, *, isolated: bool) -> str:
    """Say which input of an instance that reaches the host is not an admin's; empty: all are, or it does not."""
    has_more = networks.beyond_policy(obj.spec.network, obj.spec.egress, policy)
    # What asks for a sandbox gets one, or is not started.
    if (isolated or obj.spec.isolation == "sandbox") and not has_more:
        why_open = inputs.host_files(objects, obj.metadata.namespace, obj.spec.workspace_ref)
    else:
        why_open = NOT_ISOLATED if not isolated else MORE_NETWORK
    if not why_open:
        return ""
    owner = inputs.made_for(objects, obj) or obj
    where = f"{owner.api.name}/{owner.metadata.name}"
    return inputs.refusal(objects, where, why_open, obj, owner)
