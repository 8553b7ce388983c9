"""Permissions of Roles, and the check that nobody grants permissions that they do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from rota.api import Kind, Role
from rota.api.core import PolicyRule
from rota.registry import errors

if TYPE_CHECKING:
    from rota.store import Store

ALL = "*"
COMPARED_MAX = 1000
"""Permissions of a Role, each of a verb, a group and a resource, that are compared with those of its writer."""
DECODED_MAX = 1024
"""Bound on the cached rules of Roles."""

Rules = tuple[PolicyRule, ...]


def rules_of(store: Store, namespace: str, name: str) -> Rules:
    """Return the rules of a Role; none if it does not exist or is being deleted."""
    entry = store.get(Role.api.key(namespace, name))
    return _rules(entry.value) if entry is not None else ()


@lru_cache(DECODED_MAX)
def _rules(value: bytes) -> Rules:
    role = Role.decode(value)
    return tuple(role.policy) if role.metadata.deletion_timestamp is None else ()


def allow(rules: Rules, verb: str, group: str, resource: str, name: str = "") -> bool:
    """Report whether a rule allows a verb. A subresource is written as `instances/exec`."""
    return any(_allows(rule, verb, group, resource) and _is_named(rule, name) for rule in rules)


def _allows(rule: PolicyRule, verb: str, group: str, resource: str) -> bool:
    return _has(rule.verbs, verb) and _has(rule.api_groups, group) and _has_resource(rule.resources, resource)


def _has(some: Sequence[str], one: str) -> bool:
    return ALL in some or one in some


def _has_resource(some: Sequence[str], one: str) -> bool:
    part = one.partition("/")[2]
    return _has(some, one) or (bool(part) and f"{ALL}/{part}" in some)


def _is_named(rule: PolicyRule, name: str) -> bool:
    return not rule.resource_names or name in rule.resource_names


def check(kind: Kind, new: dict[str, Any], held: Rules) -> None:
    """Raise Forbidden for a Role with permissions that its writer does not hold."""
    if kind is not Role.api:
        return
    name = new["metadata"].get("name", "")
    rules = [_once(rule) for rule in msgspec.convert(new.get("rules") or [], list[PolicyRule])]
    count = sum(len(rule.verbs) * len(rule.api_groups) * len(rule.resources) for rule in rules)
    if count > COMPARED_MAX:
        message = f"its rules have {count} permissions, and at most {COMPARED_MAX} are compared with your own: use `*`"
        raise errors.forbidden(kind, name, message)
    for i, rule in enumerate(rules):
        for lacking in _lacking(rule, held):
            message = f"rules[{i}]: {lacking}: nobody gives others what they do not have themselves"
            raise errors.forbidden(kind, name, message)


def _once(rule: PolicyRule) -> PolicyRule:
    """Return a rule in which nothing is repeated."""
    return PolicyRule(
        verbs=list(dict.fromkeys(rule.verbs)),
        api_groups=list(dict.fromkeys(rule.api_groups)),
        resources=list(dict.fromkeys(rule.resources)),
        resource_names=list(dict.fromkeys(rule.resource_names)),
    )


def _lacking(wanted: PolicyRule, held: Rules) -> Iterator[str]:
    """Yield the permissions of a rule that the held rules do not cover."""
    for verb in wanted.verbs:
        for group in wanted.api_groups:
            for resource in wanted.resources:
                meeting = [rule for rule in held if _allows(rule, verb, group, resource)]
                if any(not rule.resource_names for rule in meeting):
                    continue
                named = {name for rule in meeting for name in rule.resource_names}
                if not wanted.resource_names or not named.issuperset(wanted.resource_names):
                    yield f'{verb} of {resource} in the group "{group}"'
