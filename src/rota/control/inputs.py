"""The inputs of what runs: an object is trusted no more than its inputs.

The author of a Secret, a ConfigMap, an AgentConfig, a Workspace or a task that others depend on can decide what is run
with it: a variable such as BASH_ENV is a program. So what runs outside a sandbox, or with more network than the policy
gives to all, takes inputs from admins only. A Workspace with a repository of the host (a `file://` address) reaches the
host as well, unless an admin shares it. The references are those that kinds declare (`rota.api.references`).
"""

from __future__ import annotations

import msgspec

from rota.api import KINDS, Instance, Object, Task, Workspace
from rota.api.model import Ref
from rota.control.instances.names import controller_of
from rota.control.instances.states import is_isolated, why_open
from rota.engine.objects import Objects, get
from rota.engine.references import id_of, kind_of, references_of, shown, target_of
from rota.registry.privileges import RESTRICTED, SHARED, asked_for, is_restricted, is_shared

FIX = f"an admin can delete it and make it again, or look at it and remove its annotation {RESTRICTED}"


def foreign(objects: Objects, *roots: Object | None) -> str:
    """Name a restricted object among these and all that they refer to, the nearest first; empty: all are an admin's.

    The inputs of a referenced task are not followed. Its controller checked them when the task began, and annotated the
    task if they were restricted.
    """
    wave = [root for root in roots if root is not None]
    visited = {id_of(root) for root in wave}
    while wave:
        found: list[Object] = []
        for obj in wave:
            if is_restricted(obj.metadata.annotations):
                return shown(id_of(obj))
        for id_ in (target_of(obj, reference) for obj in wave for reference in references_of(obj)):
            kind = kind_of(id_)
            if kind is None or id_ in visited:
                continue
            visited.add(id_)
            _, namespace, name = id_.split("/", 2)
            target = objects.find(kind, namespace, name)
            if target is not None and kind is Task.api and is_restricted(target.metadata.annotations):
                return shown(id_)
            if target is not None and kind is not Task.api:
                found.append(target)
        wave = found
    return ""


def refusal(objects: Objects, where: str, why_open: str, *roots: Object | None) -> str:
    """Say that an object must not run because of `why_open`, its way to reach the host; empty: it may run."""
    whose = foreign(objects, *roots)
    return f"{where} {why_open}, and {whose} was written by somebody who is no admin: {FIX}" if whose else ""


def reach(objects: Objects, instance: Instance) -> str:
    """Say how an instance reaches the host; empty: it is confined."""
    if not is_isolated(instance):
        return why_open(instance)
    return host_files(objects, instance.metadata.namespace, instance.spec.workspace_ref)


def host_files(objects: Objects, namespace: str, workspace_ref: Ref | None) -> str:
    """Say that a workspace is a repository of this host that no admin has shared; empty: it is none."""
    workspace = get(objects, Workspace, workspace_ref.name, namespace) if workspace_ref is not None else None
    if workspace is None or is_shared(workspace.metadata.annotations):
        return ""
    if not asked_for({"spec": msgspec.to_builtins(workspace.spec)}):
        return ""
    name = shown(id_of(workspace))
    return f'has {name}, a repository of this host that no admin has shared (annotation {SHARED}: "true")'


def marks(objects: Objects, obj: Object) -> dict[str, str]:
    """Return the annotations of objects that are made from this one: restricted if it or its inputs are."""
    return {RESTRICTED: "true"} if foreign(objects, obj) else {}


def made_for(objects: Objects, instance: Instance) -> Object | None:
    """Return the owner of an instance, such as a pool or a task; None: it does not exist any more."""
    owner = controller_of(instance)
    kind = KINDS.get(owner.kind) if owner is not None else None
    if owner is None or kind is None:
        return None
    found = objects.find(kind, instance.metadata.namespace, owner.name)
    return found if found is not None and found.metadata.uid == owner.uid else None
