"""Privileges: the fields of objects that reach beyond a sandbox to the host, which only an admin may set.

- A network beyond the server's default (`rota up --network`) is privileged, too.
- An object with a privileged field can be created and changed by admins only, whatever the change.
- An object that somebody else writes, and that runs something or can be referred to, is marked
  (`rota.dev/restricted`). Objects made of it inherit the mark, and the dispatch of work checks it, also on all objects
  that the work refers to: restricted work, and work with restricted inputs, runs isolated or not at all. So the order
  in which work, inputs and pool are created does not matter.
- A restricted object without an isolation gets a sandbox: a host without sandboxes does not run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rota.api import KINDS, Claim, Function, Kind, Schedule, Task, TaskSpawner, WorkerPool, Workload
from rota.api.conflicts import is_own
from rota.api.egress import Policy, beyond
from rota.api.references import targets_of
from rota.registry import deletion, errors, events
from rota.registry.options import Propagation

FILE_SCHEME = "file://"
FREE = frozenset(("payload", "podOverrides"))
"""Fields with free-form content, which is not checked."""
RESTRICTED = "rota.dev/restricted"
"""Annotation of an object that was written by a non-admin: it runs isolated only."""
SHARED = "rota.dev/shared"
"""Annotation by which an admin allows everybody to refer to a repository of the host."""
RUNNING = frozenset((Claim.api, Function.api, Schedule.api, Task.api, TaskSpawner.api, WorkerPool.api, Workload.api))
"""Kinds that run something."""
MAKING = frozenset((Function.api, Task.api, WorkerPool.api, Workload.api))
"""Kinds that own instances, which only admins can delete directly."""

Object = dict[str, Any]
NO_POLICY = Policy()


@cache
def marked() -> frozenset[Kind]:
    """Return the kinds that are marked: those that run something, and all that any kind refers to.

    Computed on first use: it needs the schemas of all kinds, which would delay the start of a command.
    """
    return RUNNING.union(*(targets_of(kind) for kind in KINDS.values()))


def check(kind: Kind, new: Object, old: Object | None, policy: Policy = NO_POLICY) -> None:
    """Raise Forbidden for a write of an object, old or new, that reaches the host or exceeds the network policy."""
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
    """Raise Forbidden for an owner reference that would block the deletion of a cluster-scoped object."""
    before = old["metadata"].get("ownerReferences", ()) if old is not None else ()
    for ref in new["metadata"].get("ownerReferences", ()):
        owner = KINDS.get(ref["kind"])
        if ref.get("blockOwnerDeletion") and owner is not None and not owner.namespaced and ref not in before:
            message = f"metadata.ownerReferences: only an admin can have {ref['kind']}/{ref['name']} wait for it"
            raise errors.forbidden(kind, new["metadata"].get("name", ""), f"{message}; leave out blockOwnerDeletion")


def check_orphans(kind: Kind, obj: Object, *, is_orphaned: bool) -> None:
    """Raise Forbidden for a deletion that orphans instances: they would run on, and only an admin could delete them."""
    if is_orphaned and kind in MAKING:
        message = "its instances would stay, and only an admin can delete those: delete it without orphaning them"
        raise errors.forbidden(kind, obj["metadata"].get("name", ""), message)


def _orphans(obj: Object) -> bool:
    return deletion.ORPHAN in obj["metadata"].get("finalizers", ())


def check_deletion(kind: Kind, obj: Object, propagation: Propagation = "", policy: Policy = NO_POLICY) -> None:
    """Raise Forbidden for the deletion of an object that reaches the host, or one that would orphan instances."""
    check(kind, obj, obj, policy)
    check_orphans(kind, obj, is_orphaned=propagation == "Orphan" or (not propagation and _orphans(obj)))


def differs(new: Object, old: Object) -> bool:
    """Report whether anything but managedFields, generation and version differs."""
    ignored = ("managedFields", "generation", "resourceVersion")
    metas = [{name: one for name, one in obj["metadata"].items() if name not in ignored} for obj in (new, old)]
    return metas[0] != metas[1] or {**new, "metadata": None} != {**old, "metadata": None}


def own(kind: Kind, new: Object, old: Object | None, user: str) -> None:
    """Mark an object of a restricted writer, and set its isolation, in place.

    Raises Forbidden if the writer names another holder of a claim, or changes the environment variables of one.
    """
    if kind not in marked():
        return
    if kind is Claim.api and old is None and new["spec"].setdefault("holder", user) != user:
        message = f'spec.holder: it is "{user}", as the token says; leave it out'
        raise errors.forbidden(kind, new["metadata"].get("name", ""), message)
    if kind is Claim.api and old is not None and (new["spec"].get("env") or []) != (old["spec"].get("env") or []):
        # At the creation, references to what the writer may not read were refused. A change must not get around that.
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
    """Restore Rota's own annotations of a claim, in place: they identify the token that created it."""
    others = {key: value for key, value in new["metadata"].get("annotations", {}).items() if not is_own(key)}
    before = old["metadata"].get("annotations", {}) if old is not None else {}
    new["metadata"]["annotations"] = others | {key: value for key, value in before.items() if is_own(key)}


def is_restricted(annotations: Mapping[str, str]) -> bool:
    """Report whether a non-admin has written an object, by its annotations."""
    return RESTRICTED in annotations


def is_shared(annotations: Mapping[str, str]) -> bool:
    """Report whether an admin has shared an object. The annotation of a restricted object does not count."""
    return annotations.get(SHARED) == "true" and RESTRICTED not in annotations


def inherited(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that objects made of this one inherit."""
    return {RESTRICTED: annotations[RESTRICTED]} if RESTRICTED in annotations else {}


def asked_for(obj: Object, policy: Policy = NO_POLICY) -> dict[str, str]:
    """Return the fields of an object that reach the host or exceed the network policy, each with the reason."""
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
    """Yield the configurations of workers and templates of instances in a spec."""
    if not isinstance(value, dict) or key in FREE:
        return
    is_role = above is not None and "containers" in above  # The worker in a template has no isolation of its own.
    if "containers" in value or (key == "worker" and not is_role):
        yield value
    for name, each in value.items():
        yield from _running(each, name, value)
