"""Checks for conflicts between parts of an object: names, paths and numbers that two of them use.

The keys of maps are checked here too: their length is unbounded for an API server, which CEL does not accept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from rota.api.model import LABEL_LENGTH_MAX, LABEL_PATTERN, Check, Wrong

Json = dict[str, Any]

PORT_VARIABLE = "ROTA_PORT_"
WORKSPACE = "/workspace"
"""Default path of the storage inside an instance."""
OWN_DOMAIN = "rota.dev"
OWN_NETWORKS = ("none", "egress")
"""Networks in which the ports of an instance are not those of the host."""
LABEL_NAME_MAX = 63
LABEL_PREFIX_MAX = 253
LABEL_RULE = f"must have 1 to {LABEL_NAME_MAX} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
NOT_A_PATH = r"(^|[.])([.]|$)|\s"
PATH_RULE = "must be names with dots between them, such as issue.labels.name"
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART = re.compile(LABEL_PATTERN.strip("^$"))
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(r"[^\s.{}]+")
_NOT_A_PATH = re.compile(NOT_A_PATH)
_NOT_IN_VARIABLE = re.compile(r"[^A-Z0-9_]")


# Instances.


def port_variable(name: str) -> str:
    """Return the environment variable with the number of a port."""
    return PORT_VARIABLE + _NOT_IN_VARIABLE.sub("_", name.upper())


def _ports(template: Json) -> Iterator[Wrong]:
    names: dict[str, str] = {}
    numbers: dict[tuple[int, str], str] = {}
    for i, container in enumerate(template["containers"]):
        for j, port in enumerate(container.get("ports", ())):
            name, own, at = port["name"], container["name"], f"containers[{i}].ports[{j}]"
            other = names.setdefault(name, own)
            if other != own:
                yield Wrong(f"{at}.name", name, f"container {other} has a port of this name, too: rename one")
            if port.get("port") is None or template.get("network") in OWN_NETWORKS:
                continue
            other = numbers.setdefault((port["port"], port.get("protocol", "TCP")), own)
            if other != own:
                why = f"container {other} wants this port of the host, too: change one, or leave out its number"
                yield Wrong(f"{at}.port", port["port"], why)


def _places(template: Json) -> Iterator[Wrong]:
    """Yield the volumes whose path overlaps with that of another volume or of the storage."""
    storage = template.get("storage")
    taken: list[tuple[PurePosixPath, str]] = []
    if storage is not None:
        taken.append((PurePosixPath(storage.get("path", WORKSPACE)), "the storage"))
    for i, volume in enumerate(template.get("volumes", ())):
        path = PurePosixPath(volume["mountPath"])
        for other, whose in taken:
            if path.is_relative_to(other) or other.is_relative_to(path):
                beside = "is there already" if path == other else f"is at {other}, and one must not be inside the other"
                yield Wrong(f"volumes[{i}].mountPath", volume["mountPath"], f"{whose} {beside}")
                break
        taken.append((path, f"volume {volume['name']}"))


# Workspaces, agents and spawners.


def _files(workspace: Json) -> Iterator[Wrong]:
    paths = {file["path"] for file in workspace.get("files", ())}
    for i, file in enumerate(workspace.get("files", ())):
        for above in map(str, PurePosixPath(file["path"]).parents):
            if above in paths:
                yield Wrong(f"files[{i}].path", file["path"], f"{above} is a file, and not a folder")


def _headers(server: Json) -> Iterator[Wrong]:
    for name, value in server.get("headers", {}).items():
        if not _HEADER.fullmatch(name):
            yield Wrong("headers", name, "it cannot be the name of a header")
        elif not value.isprintable():
            yield Wrong(f"headers.{name}", "…", "a header has one line, of characters that can be printed")


def _mapped(source: Json) -> Iterator[Wrong]:
    for name, path in source.get("map", {}).items():
        if not _FIELD.fullmatch(name):
            yield Wrong("map", name, "it cannot be the name of a field: leave out dots, spaces and braces")
        if not path or _NOT_A_PATH.search(path):
            yield Wrong(f"map.{name}", path, f"it {PATH_RULE}")


# Workloads.

CITIES_IN_ALL_MAX = 256
"""Bound on the cities of all placements of a workload: each change of it is placed in every city anew."""


def _restarts(placement: Json) -> Iterator[Wrong]:
    for city in placement.get("restartedAt", {}):
        if len(city) > LABEL_LENGTH_MAX or not _PART.fullmatch(city):
            yield Wrong("restartedAt", city[:LABEL_LENGTH_MAX], "it cannot be the code of a city")


def _cities(spec: Json) -> Iterator[Wrong]:
    count = sum(len(placement["cityCodes"]) for placement in spec["placements"])
    if count > CITIES_IN_ALL_MAX:
        why = f"all placements together have at most {CITIES_IN_ALL_MAX} cities: make several workloads of it"
        yield Wrong("placements", count, why)


# Labels and annotations.


def _marks(holder: Json) -> Iterator[Wrong]:
    for field in ("labels", "annotations"):
        for key, value in holder.get(field, {}).items():
            if why := _key_problem(key):
                yield Wrong(field, key, why)
            if field == "labels" and value and (len(value) > LABEL_NAME_MAX or not _LABEL_NAME.fullmatch(value)):
                yield Wrong(f"labels.{key}", value, f"the value {LABEL_RULE}")


def _images(claim: Json) -> Iterator[Wrong]:
    for name in claim.get("images", {}):
        if len(name) > LABEL_LENGTH_MAX or not _PART.fullmatch(name):
            yield Wrong("images", name, "it cannot be the name of a container")


def _key_problem(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if len(name) > LABEL_NAME_MAX or not _LABEL_NAME.fullmatch(name):
        return f"the name {LABEL_RULE}"
    if slash and (len(prefix) > LABEL_PREFIX_MAX or not _LABEL_PREFIX.fullmatch(prefix)):
        return "what is before the / must be a domain"
    return f"{OWN_DOMAIN} is Rota's own; choose another prefix" if is_own(key) else ""


def is_own(key: str) -> bool:
    """Report whether only Rota may set a label or annotation of this name."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain == OWN_DOMAIN or domain.endswith(f".{OWN_DOMAIN}"))


PORTS = Check(_ports, ("containers", "network"))
PLACES = Check(_places, ("volumes", "storage"))
FILES = Check(_files, ("files",))
HEADERS = Check(_headers, ("headers",))
MAPPED = Check(_mapped, ("map",))
RESTARTS = Check(_restarts, ("restartedAt",))
CITIES = Check(_cities, ("placements",))
IMAGES = Check(_images, ("images",))
MARKS = Check(_marks, ("labels", "annotations"))
