"""What only an admin may ask for: what reaches beyond an instance's own sandbox, to the host.

- More network than the server gives to all (`rota up --network`) is such a thing, too.
- An object that asks for it can be made and changed by an admin alone, whatever it is that changes of it.
- Whatever somebody else writes, and that runs something or can be referred to, is marked (`rota.dev/restricted`). The
  mark goes to what is made of it, and whoever hands out work looks for it, also at all that the work refers to: marked
  work, and work of marked inputs, runs where it is isolated, or not at all. So it does not matter which came first, the
  work, its inputs or the place for it.
- What somebody else writes is isolated where it does not say so: a host that cannot isolate it runs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rota.api import KINDS, Claim, Function, Kind, Schedule, Task, TaskSpawner, WorkerPool, Workload
from rota.api.egress import Policy, beyond
from rota.api.references import targets_of
from rota.api.sharing import is_own
from rota.registry import deletion, errors, events
from rota.registry.options import Propagation

FILE_SCHEME = "file://"
FREE = frozenset(("payload", "podOverrides"))
"""Fields whose content is somebody else's, and means nothing here."""
RESTRICTED = "rota.dev/restricted"
"""Annotation of what was written by somebody who is no admin: it gets nothing that is not isolated."""
SHARED = "rota.dev/shared"
"""Annotation by which an admin hands a repository of the host to all who may refer to it."""
RUNNING = frozenset((Claim.api, Function.api, Schedule.api, Task.api, TaskSpawner.api, WorkerPool.api, Workload.api))
"""Kinds that run something."""
MAKING = frozenset((Function.api, Task.api, WorkerPool.api, Workload.api))
"""Kinds that have instances, which nobody but an admin can delete by themselves."""

Object = dict[str, Any]
NO_POLICY = Policy()


@cache
def marked() -> frozenset[Kind]:
    """Return the kinds that run something, and those of their inputs: all that any kind refers to.

    Looking through the schemas of all kinds takes a while, which the start of a command has no use for.
    """
    return RUNNING.union(*(targets_of(kind) for kind in KINDS.values()))


def check(kind: Kind, new: Object, old: Object | None, policy: Policy = NO_POLICY) -> None:
    """Raise Forbidden when an object that reaches the host, or more network than the policy has, is made or changed."""
    check_owners(kind, new, old)
    if not (old is not None and _orphans(old)):
        check_orphans(kind, new, is_orphaned=_orphans(new))
    if kind.name == "Event":
        events.check_reporter(kind, new, old)
    for obj in (new, old):
        for path, why in asked_for(obj, policy).items() if obj is not None else ():
            message = f"{path}: {why}; this takes a token of scope admin, whatever is to change of it"
            raise errors.forbidden(kind, new["metadata"].get("name", ""), message)


def check_owners(kind: Kind, new: Object, old: Object | None) -> None:
    """Raise Forbidden when an object would hold up the deletion of something that is of the whole cluster."""
    before = old["metadata"].get("ownerReferences", ()) if old is not None else ()
    for ref in new["metadata"].get("ownerReferences", ()):
        owner = KINDS.get(ref["kind"])
        if ref.get("blockOwnerDeletion") and owner is not None and not owner.namespaced and ref not in before:
            message = f"metadata.ownerReferences: only an admin can have {ref['kind']}/{ref['name']} wait for it"
            raise errors.forbidden(kind, new["metadata"].get("name", ""), f"{message}; leave out blockOwnerDeletion")


def check_orphans(kind: Kind, obj: Object, *, is_orphaned: bool) -> None:
    """Raise Forbidden when an object is to leave its instances behind: they would run on, and nobody could end them."""
    if is_orphaned and kind in MAKING:
        message = "its instances would stay, and only an admin can delete those: delete it without orphaning them"
        raise errors.forbidden(kind, obj["metadata"].get("name", ""), message)


def _orphans(obj: Object) -> bool:
    return deletion.ORPHAN in obj["metadata"].get("finalizers", ())


def check_deletion(kind: Kind, obj: Object, propagation: Propagation = "", policy: Policy = NO_POLICY) -> None:
    """Raise Forbidden when what is to be deleted reaches the host, or would leave behind what others cannot delete."""
    check(kind, obj, obj, policy)
    check_orphans(kind, obj, is_orphaned=propagation == "Orphan" or (not propagation and _orphans(obj)))


def differs(new: Object, old: Object) -> bool:
    """Report whether something of an object changes beside who wrote what of it."""
    ignored = ("managedFields", "generation", "resourceVersion")
    metas = [{name: one for name, one in obj["metadata"].items() if name not in ignored} for obj in (new, old)]
    return metas[0] != metas[1] or {**new, "metadata": None} != {**old, "metadata": None}


def own(kind: Kind, new: Object, old: Object | None, user: str) -> None:
    """Write down that somebody who is no admin wrote an object, and have it isolated. In place.

    A claim is on the account of who asks for it, and keeps the variables that it was asked for with.
    """
    if kind not in marked():
        return
    if kind is Claim.api and old is None and new["spec"].setdefault("holder", user) != user:
        message = f'spec.holder: it is "{user}", as the token says; leave it out'
        raise errors.forbidden(kind, new["metadata"].get("name", ""), message)
    if kind is Claim.api and old is not None and (new["spec"].get("env") or []) != (old["spec"].get("env") or []):
        # Whoever asked for it may have been refused what they may not read. To change a claim is not to make one.
        message = "spec.env: it stays as it was when the claim was made; release this one and ask for another"
        raise errors.forbidden(kind, new["metadata"].get("name", ""), message)
    if kind is Claim.api:
        _keep_own(new, old)
    new["metadata"].setdefault("annotations", {})[RESTRICTED] = "true"
    if kind not in RUNNING:
        return
    if kind is Function.api:
        new["spec"].setdefault("isolation", "sandbox")
    for running in _running(new.get("spec")):
        running.setdefault("isolation", "sandbox")


def _keep_own(new: Object, old: Object | None) -> None:
    """Have Rota's own annotations as they were: they say with which token it was asked for. In place."""
    others = {key: value for key, value in new["metadata"].get("annotations", {}).items() if not is_own(key)}
    before = old["metadata"].get("annotations", {}) if old is not None else {}
    new["metadata"]["annotations"] = others | {key: value for key, value in before.items() if is_own(key)}


def is_restricted(annotations: Mapping[str, str]) -> bool:
    """Report whether somebody who is no admin has written an object, by its annotations."""
    return RESTRICTED in annotations


def is_shared(annotations: Mapping[str, str]) -> bool:
    """Report whether an admin has handed an object to all. What somebody else has written of it counts for nothing."""
    return annotations.get(SHARED) == "true" and RESTRICTED not in annotations


def inherited(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that an object passes on to what is made of it."""
    return {RESTRICTED: annotations[RESTRICTED]} if RESTRICTED in annotations else {}


def asked_for(obj: Object, policy: Policy = NO_POLICY) -> dict[str, str]:
    """Return the fields of an object that reach the host, or more network than the policy has, and how."""
    found: dict[str, str] = {}
    _walk(obj.get("spec"), "spec", found, policy)
    return found


def _walk(value: Any, path: str, found: dict[str, str], policy: Policy) -> None:
    if isinstance(value, dict):
        if value.get("isolation") == "none":
            found[f"{path}.isolation"] = "without a sandbox it is as powerful as the server"
        if why := beyond(policy, value.get("network"), value.get("egress") or ()):
            found[f"{path}.{'egress' if value['network'] == policy.network else 'network'}"] = why
        for key in ("repo", "url"):
            if isinstance(address := value.get(key), str) and address.startswith(FILE_SCHEME):
                found[f"{path}.{key}"] = "a repository of this host is read with the rights of the server"
        for key, each in value.items():
            if key not in FREE:
                _walk(each, f"{path}.{key}", found, policy)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            _walk(each, f"{path}[{i}]", found, policy)


def _running(value: Any, key: str = "", above: Object | None = None) -> Iterator[Object]:
    """Find the parts of a spec that say what runs: configurations of workers and templates of instances."""
    if not isinstance(value, dict) or key in FREE:
        return
    is_role = above is not None and "containers" in above  # The worker in a template has no isolation of its own.
    if "containers" in value or (key == "worker" and not is_role):
        yield value
    for name, each in value.items():
        yield from _running(each, name, value)
