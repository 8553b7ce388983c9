"""Kubernetes' reviews of one's own identity and rights, for `kubectl auth`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rota.api import KINDS, Kind
from rota.api import problems as p
from rota.api.form import form
from rota.api.reviews import SelfSubjectAccessReview
from rota.api.served import SERVED
from rota.registry.admission import check_frame, check_metadata_types, refuse_malformed
from rota.registry.errors import invalid
from rota.server import media
from rota.server.auth import User, allows
from rota.server.http import Request, Response

OPEN_PATHS = ("/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version")
"""Paths, with everything below them, that every credential may read."""
GROUP_OF_ALL = "system:authenticated"
GROUP_OF_ADMINS = "system:masters"
EXTRA = "rota.dev/"
LOG = {"log": ("get",)}
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "Function": {"call": ("create",), **LOG},
    "Instance": {"exec": ("create",), "files": ("delete", "get", "update"), **LOG},
    "Task": {"result": ("get",), **LOG},
    "WorkerPool": {"claims": ("create",)},
}
"""Parts of objects that only the gateway and the edge serve, with their verbs."""

_encode = msgspec.json.Encoder().encode


def review(request: Request, kind: Kind, user: User) -> Response:
    """Answer a review."""
    wanted = media.wanted(request.headers.get("accept", ""), "", kind, "one")
    body = media.decoded(request.body, request.headers.get("content-type", ""))
    check_metadata_types(kind, check_frame(kind, body))
    _, found = form(kind).conform(body)
    refuse_malformed(kind, found)
    if found:
        raise invalid(kind, "", found)
    if kind.name == "SelfSubjectReview":
        status = {"userInfo": _user_info(user)}
    elif kind.name == "SelfSubjectAccessReview":
        status = _access(body["spec"], user)
    else:
        status = _rules(body["spec"].get("namespace") or "", user)
    answer = _encode({**body, "metadata": {}, "status": status})
    return Response(201, media.encoded(answer, wanted.media_type), wanted.media_type)


def _user_info(user: User) -> dict[str, Any]:
    groups = [f"rota:{user.scope}", *([GROUP_OF_ADMINS] if user.scope == "admin" else []), GROUP_OF_ALL]
    about = {"scope": user.scope, "namespace": user.namespace, "role": user.role}
    extra = {f"{EXTRA}{name}": [value] for name, value in about.items() if value}
    return {
        "username": user.name,
        **({"uid": user.token_id} if user.token_id else {}),
        "groups": groups,
        "extra": extra,
    }


def _access(spec: dict[str, Any], user: User) -> dict[str, Any]:
    asked: dict[str, Any] | None = spec.get("resourceAttributes")
    path: dict[str, Any] | None = spec.get("nonResourceAttributes")
    if (asked is None) == (path is None):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid(SelfSubjectAccessReview.api, "", [p.invalid("spec", None, why)])
    if user.scope == "admin":
        return {"allowed": True, "reason": "the scope admin allows everything"}
    if asked is None:
        assert path is not None
        allowed = path.get("verb") in ("get", "head") and _is_open(path.get("path") or "")
    else:
        allowed = _may(user, {name: text for name, text in asked.items() if isinstance(text, str)})
    by = f'the Role "{user.role}" in "{user.namespace}"' if user.role else f"the scope {user.scope}"
    return {"allowed": True} if allowed else {"allowed": False, "reason": f"{by} does not allow it"}


def _is_open(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in OPEN_PATHS)


def _may(user: User, asked: dict[str, str]) -> bool:
    """Report whether all requested access is allowed. Access to unknown resources is not."""
    resource, group = asked.get("resource", ""), asked.get("group", "")
    plural, _, part = resource.partition("/")
    part = asked.get("subresource", "") or part
    kinds = [kind for kind in SERVED if plural in ("*", kind.plural) and group in ("*", kind.group)]
    verb, namespace, name = (asked.get(key, "") for key in ("verb", "namespace", "name"))
    return bool(kinds) and all(
        allows(user, each, kind, namespace if kind.namespaced else "", name, part)
        for kind in kinds
        for each in (kind.verbs if verb == "*" else (verb,))
    )


def _rules(namespace: str, user: User) -> dict[str, Any]:
    rules = [entry for part in _by_rule(user) for entry in _resource_rules(namespace, *part)]
    paths = [pattern for path in OPEN_PATHS for pattern in (path, f"{path}/*")]
    open_ = {"verbs": ["get"], "nonResourceURLs": paths}
    if user.scope != "admin":
        return {"resourceRules": rules, "nonResourceRules": [open_], "incomplete": False}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    everywhere = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    return {"resourceRules": [everything, *rules], "nonResourceRules": [everywhere, open_], "incomplete": False}


def _by_rule(user: User) -> Iterator[tuple[User, list[str]]]:
    """Yield the user once for each rule of its Role, with the names of the rule; other users once."""
    # Without rules, the rights of everybody remain.
    yield msgspec.structs.replace(user, rules=()), []
    for rule in user.rules:
        yield msgspec.structs.replace(user, rules=(rule,)), rule.resource_names


def _resource_rules(namespace: str, user: User, names: list[str]) -> Iterator[dict[str, Any]]:
    bound = {"resourceNames": names} if names else {}
    for kind in SERVED if not user.rules else KINDS.values():
        for part, verbs in _parts(kind).items():
            where = namespace if kind.namespaced else ""
            allowed = [verb for verb in verbs if allows(user, verb, kind, where, names[0] if names else "", part)]
            if allowed:
                resource = f"{kind.plural}/{part}" if part else kind.plural
                yield {"verbs": allowed, "apiGroups": [kind.group], "resources": [resource], **bound}


def _parts(kind: Kind) -> dict[str, tuple[str, ...]]:
    """Return the parts of a kind to which there are rights, and the verbs of each."""
    written = dict.fromkeys(kind.parts, ("get", "patch", "update"))
    return {"": kind.verbs, **written, **PARTS.get(kind.name, {})}
