"""What there is to find: groups, versions, resources and their verbs, as clients ask for them first."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from typing import Any

import msgspec

from rota import __version__
from rota.api import Kind
from rota.api.openapi import base_path, document, goes_as_collection, group_versions, kinds_of

KUBERNETES_MINOR = 33
"""The minor version of Kubernetes whose API this is: clients decide by it what they may ask for."""
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
AGGREGATED = "apidiscovery.k8s.io"

_encode = msgspec.json.Encoder().encode


def verbs_of(kind: Kind) -> list[str]:
    """What can be done with objects of a kind."""
    return [verb for verb in VERBS if verb != "deletecollection" or goes_as_collection(kind)]


def version() -> dict[str, Any]:
    """The answer of /version."""
    return {
        "major": "1",
        "minor": str(KUBERNETES_MINOR),
        "gitVersion": f"v1.{KUBERNETES_MINOR}.0+rota-{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        "rotaVersion": __version__,
    }


def api_versions(address: str) -> dict[str, Any]:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list() -> dict[str, Any]:
    groups = [_group(group, version_) for group, version_ in group_versions() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str) -> dict[str, Any] | None:
    found = next(((g, v) for g, v in group_versions() if g == name and g), None)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(*found)} if found else None


def _group(name: str, version_: str) -> dict[str, Any]:
    gv = {"groupVersion": f"{name}/{version_}", "version": version_}
    return {"name": name, "versions": [gv], "preferredVersion": gv}


def resource_list(group_: str, version_: str) -> dict[str, Any] | None:
    """The resources of a group and version, subresources among them."""
    kinds = kinds_of(group_, version_)
    if not kinds and group_ != "authorization.k8s.io":
        return None
    resources = [entry for kind in kinds for entry in _resources(kind)]
    if group_ == "authorization.k8s.io":
        resources = REVIEWS
    gv = f"{group_}/{version_}" if group_ else version_
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": resources}


REVIEWS: list[dict[str, Any]] = [
    {"name": name, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]}
    for name, kind in (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    )
]


def _resources(kind: Kind) -> list[dict[str, Any]]:
    main: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": verbs_of(kind),
        "storageVersionHash": hashlib.sha256(f"{kind.group}/{kind.version}/{kind.name}".encode()).hexdigest()[:12],
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    out = [main]
    base = {"singularName": "", "namespaced": kind.namespaced, "verbs": ["get", "patch", "update"]}
    if kind.has_status:
        out.append({"name": f"{kind.plural}/status", **base, "kind": kind.name})
    if kind.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        out.append({"name": f"{kind.plural}/scale", **base, **scale})
    return out


def aggregated(core: bool) -> dict[str, Any]:
    """All of it in one answer: of the core group, or of all others."""
    items = [
        {
            "metadata": {"name": group_, "creationTimestamp": None},
            "versions": [
                {
                    "version": version_,
                    "freshness": "Current",
                    "resources": [_aggregated(kind) for kind in kinds_of(group_, version_)],
                }
            ],
        }
        for group_, version_ in group_versions()
        if core == (not group_)
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{AGGREGATED}/v2", "metadata": {}, "items": items}


def _aggregated(kind: Kind) -> dict[str, Any]:
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.name}
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": gvk,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    verbs = ["get", "patch", "update"]
    parts = [{"subresource": "status", "responseKind": gvk, "verbs": verbs}] if kind.has_status else []
    if kind.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        parts.append({"subresource": "scale", "responseKind": scale, "verbs": verbs})
    if parts:
        entry["subresources"] = parts
    return entry


V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_EMPTY = b"\x0a\x032.0\x12\x0c\x0a\x04Rota\x12\x04v1.0B\x00"
"""An OpenAPI v2 document without paths, in protobuf: fields swagger, info (title, version) and paths."""


def openapi_v2(accept: str) -> tuple[bytes, str]:
    """OpenAPI v2, and its content type. kubectl still asks for it before it says that a kind is unknown."""
    if "openapi.spec.v2" in accept:
        return V2_EMPTY, V2_PROTOBUF
    return _encode({"swagger": "2.0", "info": {"title": "Rota", "version": "v1.0"}, "paths": {}}), "application/json"


@cache
def openapi_index() -> bytes:
    """Where the OpenAPI documents are. The hash lets clients keep what they have."""
    paths = {}
    for gv in group_versions():
        path = base_path(*gv)
        digest = hashlib.sha256(openapi_document(path) or b"").hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return _encode({"paths": paths})


@cache
def openapi_document(path: str) -> bytes | None:
    """The OpenAPI document of a path like `apis/rota.dev/v1alpha1`."""
    for gv in group_versions():
        if base_path(*gv) == path:
            return _encode(document(*gv))
    return None
