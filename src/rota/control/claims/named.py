"""What a claim wants, and how it is named."""

from __future__ import annotations

from typing import NamedTuple

from rota.api import Claim
from rota.client import Key
from rota.control.holds.members import PoolKey


class Wanted(NamedTuple):
    """A claim that wants an instance, or has one."""

    pool: PoolKey
    key: Key


def pool_of(claim: Claim) -> PoolKey:
    return PoolKey(claim.metadata.namespace, claim.spec.pool_ref.name)


def key_of(claim: Claim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)
