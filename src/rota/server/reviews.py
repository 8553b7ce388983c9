"""What may I do? Kubernetes' own questions about access, for `kubectl auth`."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.api import KINDS, Kind
from rota.registry import ApiError
from rota.registry.errors import bad_request
from rota.server import media
from rota.server.auth import User, allows
from rota.server.discovery import VERBS
from rota.server.http import Request, Response

_encode = msgspec.json.Encoder().encode

OPEN_PATHS = ("/api", "/healthz", "/livez", "/openapi", "/readyz", "/version")
"""Where everyone with a credential may look."""
KINDS_OF_REVIEWS = {
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
}


def review(request: Request, user: User) -> Response:
    """Answer a SelfSubjectAccessReview or a SelfSubjectRulesReview."""
    body = media.decoded(request.body, request.headers.get("content-type", ""))
    if not isinstance(body, dict) or not isinstance(body.get("spec"), dict):
        raise bad_request("a review with a spec was expected")
    asked = request.path.rpartition("/")[2]
    if asked == "selfsubjectaccessreviews":
        status = _access(body["spec"], user)
    elif asked == "selfsubjectrulesreviews":
        status = _rules(str(body["spec"].get("namespace", "")), user)
    else:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    frame = {"apiVersion": "authorization.k8s.io/v1", "metadata": {}}
    return Response(201, _encode({**frame, "kind": KINDS_OF_REVIEWS[asked], "spec": body["spec"], "status": status}))


def _access(spec: dict[str, Any], user: User) -> dict[str, Any]:
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(path, dict) and not asked:
        open_ = path.get("verb") == "get" and str(path.get("path", "")).startswith(OPEN_PATHS)
        return {"allowed": user.scope == "admin" or open_}
    if not isinstance(asked, dict):
        raise bad_request("exactly one of resourceAttributes and nonResourceAttributes must be set")
    plural, group, verb = (str(asked.get(k) or "") for k in ("resource", "group", "verb"))
    kinds = [k for k in KINDS.values() if plural in ("*", k.plural) and group in ("*", k.group)]
    namespace, name = str(asked.get("namespace") or ""), str(asked.get("name") or "")
    verbs = VERBS if verb == "*" else [verb]
    allowed = bool(kinds) and all(_allowed(user, v, kind, namespace, name) for kind in kinds for v in verbs)
    return (
        {"allowed": allowed} if allowed else {"allowed": False, "reason": f"the scope {user.scope} does not allow it"}
    )


def _allowed(user: User, verb: str, kind: Kind, namespace: str, name: str) -> bool:
    return allows(user, verb, kind, namespace if kind.namespaced else "", name)


def _rules(namespace: str, user: User) -> dict[str, Any]:
    rules = []
    for kind in KINDS.values():
        verbs = [verb for verb in VERBS if _allowed(user, verb, kind, namespace, "")]
        if verbs:
            parts = [kind.plural]
            parts += [f"{kind.plural}/status"] if kind.has_status else []
            parts += [f"{kind.plural}/scale"] if kind.scale else []
            rules.append({"verbs": verbs, "apiGroups": [kind.group], "resources": parts})
    health = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi/*", "/readyz", "/version"]
    return {
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": health}],
        "incomplete": False,
    }
