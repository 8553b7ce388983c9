"""A cluster in memory: a registry that serves Pods too, whose end takes as long as their kubelet does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.api import Kind
from rota.api.cluster import NetworkPolicy, PersistentVolumeClaim, Pod
from rota.client.backend import Batches, Written
from rota.client.local import LocalBackend
from rota.registry import Answer, ApiError, Listing, ListOptions, Operation, Registry, WatchOptions

KUBELET = "test.rota.dev/kubelet"
"""The finalizer in the place of the grace that an API server gives a Pod."""
GRACE = "test.rota.dev/grace"


class MemoryCluster(LocalBackend):
    """An API server for Pods. `refusals` names those that are refused, as by an admission webhook."""

    atomic = False

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.refusals: list[ApiError] = []
        self.writes: list[str] = []

    @property
    def registry(self) -> None:
        """It stands for a server elsewhere."""
        return None

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        return self._registry.get(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        return await self._registry.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._registry.watch(kind, namespace, options)

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        done: list[Answer | ApiError] = []
        for one in operations:
            if one.kind in (Pod.api, PersistentVolumeClaim.api, NetworkPolicy.api):
                self.writes.append(f"{one.verb} {one.kind.name}{'/' + one.subresource if one.subresource else ''}")
            try:
                done += await self._registry.write([await self._admitted(one)])
            except ApiError as error:
                if atomic:
                    raise
                done.append(error)
        return done

    async def _admitted(self, one: Operation) -> Operation:
        if one.kind is not Pod.api:
            return one
        if one.verb == "create":
            if self.refusals:
                raise self.refusals.pop(0)
            body: Any = one.body
            meta = {**body["metadata"], "finalizers": [KUBELET]}
            return msgspec.structs.replace(one, body={**body, "metadata": meta})
        if one.verb == "delete" and one.delete.grace_seconds is not None:
            found = msgspec.json.decode(self._registry.get(Pod.api, one.namespace, one.name).value)
            if one.delete.uid in (None, found["metadata"]["uid"]):
                mark = {"metadata": {"annotations": {GRACE: str(one.delete.grace_seconds)}}}
                marking = Operation("patch", Pod.api, one.namespace, one.name, mark, patch_type="merge")
                await self._registry.write([marking])
        return one
