"""The migration from client-side to server-side apply.

`kubectl apply` without `--server-side` keeps its last configuration in an annotation. When its server-side successor
first applies, fields of that configuration that are unchanged since are no conflicts; and the annotation is kept up,
so that a user can go back. This is for the manager `kubectl` only: any other name opts out.
"""

from __future__ import annotations

import json
from typing import Any

from rota.api.structure import Structure
from rota.registry import fieldset
from rota.registry.elements import json_text
from rota.registry.fieldset import FieldSet

MANAGER = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATIONS_BYTES_MAX = 256 * 1024
"""Bound on the size of all annotations of an object. The last configuration is dropped rather than exceed it."""


def unchanged_since(live: dict[str, Any], node: Structure, api_version: str) -> FieldSet:
    """Return the paths of the last client-side configuration whose values are unchanged; empty if there is none."""
    text = _annotations(live).get(ANNOTATION)
    if not text:
        return {}
    try:
        last = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != api_version:
        return {}
    changed, removed = fieldset.compare(last, live, node)
    return fieldset.difference(fieldset.difference(fieldset.of(last, node), changed), removed)


def synced(applied: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return `applied` with its annotation, if it has one, set to `config`. `applied` itself is not changed."""
    annotations = _annotations(applied)
    if not annotations.get(ANNOTATION):
        return applied
    text = _encoded(config)
    if annotations[ANNOTATION] == text:
        return applied
    current = {**annotations, ANNOTATION: text}
    if sum(len(key.encode()) + len(value.encode()) for key, value in current.items()) > ANNOTATIONS_BYTES_MAX:
        del current[ANNOTATION]
    return {**applied, "metadata": {**applied["metadata"], "annotations": current}}


def _annotations(of: dict[str, Any]) -> dict[str, str]:
    annotations: dict[str, str] = (of.get("metadata") or {}).get("annotations") or {}
    return annotations


def _encoded(config: dict[str, Any]) -> str:
    if ANNOTATION in _annotations(config):
        annotations = {key: value for key, value in _annotations(config).items() if key != ANNOTATION}
        config = {**config, "metadata": {**config["metadata"], "annotations": annotations}}
    return json_text(config) + "\n"
