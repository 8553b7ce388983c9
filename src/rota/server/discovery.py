"""Discovery: groups, versions, resources and their verbs."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from typing import Any

import msgspec

from rota import __version__
from rota.api import Kind
from rota.api.openapi import base_path
from rota.api.served import group_versions, kinds_of
from rota.server.negotiation import JSON, YAML, Negotiated, Transformation, negotiated

KUBERNETES_MINOR = 37
"""The minor version of Kubernetes whose API this is. Clients choose features by it."""
AGGREGATED = "apidiscovery.k8s.io"
AGGREGATED_VERSIONS = ("v2", "v2beta1")
AGGREGATED_KIND = "APIGroupDiscoveryList"
SUBRESOURCE_VERBS = ("get", "patch", "update")

_encode = msgspec.json.Encoder().encode


def version() -> dict[str, Any]:
    """Return the answer of /version."""
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


# One document for each group and version.


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
    """Return the resources of a group and version, subresources included."""
    kinds = kinds_of(group_, version_)
    if not kinds:
        return None
    resources = [entry for kind in kinds for entry in _resources(kind)]
    gv = f"{group_}/{version_}" if group_ else version_
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": resources}


def _resources(kind: Kind) -> list[dict[str, Any]]:
    main: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.verbs),
    }
    if "get" in kind.verbs:
        stored = kind.storage
        identity = f"{stored.group}/{stored.version}/{stored.name}"
        main["storageVersionHash"] = hashlib.sha256(identity.encode()).hexdigest()[:12]
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    return [main, *({"namespaced": kind.namespaced, **entry} for entry in _subresources(kind))]


def _subresources(kind: Kind) -> list[dict[str, Any]]:
    """Return the subresources of a kind, each with group, version, kind and verbs."""
    verbs = [verb for verb in SUBRESOURCE_VERBS if verb in kind.verbs]
    base = {"singularName": "", "verbs": verbs, "kind": kind.name}
    out: list[dict[str, Any]] = []
    if kind.name == "Namespace":
        out.append({**base, "name": f"{kind.plural}/finalize", "verbs": ["update"]})
    if kind.has_status:
        out.append({**base, "name": f"{kind.plural}/status"})
    if kind.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        out.append({**base, "name": f"{kind.plural}/scale", **scale})
    return out


# All of it in one document.


def discovery_form(accept: str) -> Negotiated:
    """Return the form of `/api` and `/apis` to send: aggregated in one of its versions, or one document for each group.

    As on Kubernetes, a client that accepts the aggregated form gets it. A client that accepts neither form gets
    separate documents, as JSON.
    """
    whole = (
        negotiated(accept, (JSON, YAML), lambda _, into: into is not None and _is_aggregated(into)) if accept else None
    )
    return whole or negotiated(accept, (JSON, YAML), lambda _, into: into is None) or Negotiated(JSON)


def _is_aggregated(into: Transformation | None) -> bool:
    if into is None:
        return False
    return into.group == AGGREGATED and into.kind == AGGREGATED_KIND and into.version in AGGREGATED_VERSIONS


@cache
def aggregated(core: bool, api_version: str) -> bytes:
    """Return the core group, or all others, with all their resources. The two versions have the same form."""
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
    frame = {"kind": AGGREGATED_KIND, "apiVersion": f"{AGGREGATED}/{api_version}", "metadata": {}}
    return _encode({**frame, "items": items})


def _aggregated(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    parts = [
        {
            "subresource": part["name"].partition("/")[2],
            "responseKind": {
                "group": part.get("group", kind.group),
                "version": part.get("version", kind.version),
                "kind": part["kind"],
            },
            "verbs": part["verbs"],
        }
        for part in _subresources(kind)
    ]
    if parts:
        entry["subresources"] = parts
    return entry


def paths() -> list[str]:
    """Return the paths that `/` lists."""
    groups = [f"/apis/{group_}" for group_, _ in group_versions() if group_]
    versions = [f"/{base_path(*gv)}" for gv in group_versions()]
    others = ("/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/v1", "/version")
    return sorted({*groups, *versions, *others})
