"""Preview an apply by a dry run on the server: each object as it is and as it would be."""

from __future__ import annotations

import sys
from typing import Any, Literal, NamedTuple

from rota.cli.naming import reference
from rota.cli.session import CommandError, bad_usage
from rota.client import Client
from rota.manifest import Manifest, load
from rota.registry import ApiError

Object = dict[str, Any]
Outcome = Literal["created", "configured", "unchanged"]

BOOKKEEPING = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
"""Fields of the metadata that the server writes by itself."""


class Refused(CommandError):  # noqa: N818 - says what became of it
    """All problems that the server found in the manifests, each with its line."""


class Preview(NamedTuple):
    """One manifest, the live object if there is one, and the object that the server would store."""

    manifest: Manifest
    live: Object | None
    planned: Object

    @property
    def outcome(self) -> Outcome:
        if self.live is None:
            return "created"
        return "unchanged" if substance(self.live) == substance(self.planned) else "configured"

    @property
    def reference(self) -> str:
        return reference(self.manifest.kind, self.manifest.name)


def manifests(files: list[str] | None, namespace: str | None, otherwise: str = "") -> list[Manifest]:
    """Load the manifests of `-f`, namespaces first, because the other objects may be in them.

    `namespace` is the one of the command line: manifests may not name another. `otherwise` is the namespace of
    manifests that name none.
    """
    if not files:
        raise bad_usage("name what to read with -f: a file, a folder, or - for standard input")
    found = load(files, read_stdin=sys.stdin.buffer.read, namespace=namespace or otherwise)
    elsewhere = [m for m in found if namespace and m.kind.namespaced and m.namespace not in (None, namespace)]
    if elsewhere:
        places = [
            f"{m.source}:{m.line_number}: {m.kind.name} {m.name} is in namespace {m.namespace}" for m in elsewhere
        ]
        raise bad_usage("\n".join([*places, f"leave --namespace {namespace} out, or the namespace there"]))
    return sorted(found, key=lambda manifest: manifest.kind.name != "Namespace")


async def preview_all(client: Client, found: list[Manifest], *, force: bool) -> list[Preview]:
    """Dry-run all manifests. Raises `Refused`."""
    to_be = {manifest.name for manifest in found if manifest.kind.name == "Namespace"}
    out: list[Preview] = []
    refused: list[str] = []
    for manifest in found:
        live = await _live(client, manifest)
        try:
            planned = await client.apply(manifest.object, dry_run=True, force=force)
        except ApiError as error:
            if live is None and _is_missing_namespace(error, to_be):
                out.append(Preview(manifest, None, manifest.object))
                continue
            hint = "; leave these fields out, or take them over with --force" if error.code == 409 else ""
            refused.append(f"{manifest.source}:{manifest.line_number}: {error.message}{hint}")
        else:
            out.append(Preview(manifest, live, planned))
    if refused:
        raise Refused("\n".join(refused))
    return out


async def _live(client: Client, manifest: Manifest) -> Object | None:
    try:
        return await client.get(manifest.kind, manifest.name, namespace=manifest.namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def _is_missing_namespace(error: ApiError, to_be: set[str]) -> bool:
    details = error.details or {}
    return error.code == 404 and details.get("kind") == "namespaces" and details.get("name") in to_be


def substance(obj: Object) -> Object:
    """Return the parts of an object that a manifest declares: without the status, and without what the server keeps."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in BOOKKEEPING}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": meta}
