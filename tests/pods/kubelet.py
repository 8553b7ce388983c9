"""A kubelet for tests: takes Pods, runs the commands of their containers as real processes, and says how they are.

Of images it knows names only. What a test wants to go wrong it says by name: images that cannot be had, nodes without
room, a node that is away.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.api import ConfigMap, Secret
from rota.api.cluster import PersistentVolumeClaim, Pod
from rota.client import ALL_NAMESPACES, Cache, Client, Update
from rota.registry import ApiError
from tests.pods.memory import GRACE

NODE = "node-1"
BACKOFF_SECONDS = 0.05
CRASHES_BEFORE_PAUSE = 1
KILLED = 137


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelet:
    """Use it in an `async with`. What runs ends with it."""

    def __init__(self, client: Client, *, is_real: bool = False) -> None:
        """`is_real`: the API server is a real one, which wants Pods bound and their end confirmed."""
        self._client = client
        self._is_real = is_real
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Event()
        self._processes: list[asyncio.Task[int]] = []
        """The end of each process that was started."""
        self.missing_images: set[str] = set()
        self.has_room = True
        self.is_away = False
        self.evictions: dict[str, str] = {}
        """By the name of a Pod that is to be evicted, why."""
        self._said: dict[str, dict[str, Any]] = {}
        """By the uid of a Pod, the status of each container as it was last written."""
        self.environments: dict[str, dict[str, str]] = {}
        """By the uid of a Pod, what its first container was started with."""
        self.pids: dict[str, dict[str, int]] = {}
        """By the uid of a Pod, the process of each container."""

    async def __aenter__(self) -> Kubelet:
        self._cache = Cache(self._client, Pod, namespace=ALL_NAMESPACES)
        await self._cache.__aenter__()
        self._cache.subscribe(self._hear)
        self._storage = Cache(self._client, PersistentVolumeClaim, namespace=ALL_NAMESPACES)
        await self._storage.__aenter__()
        self._releasing = asyncio.create_task(self._release())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._releasing.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(self._releasing, *self._tasks.values(), return_exceptions=True)
        for pids in self.pids.values():
            for pid in pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        await asyncio.gather(*self._processes)
        await self._storage.__aexit__(None, None, None)
        await self._cache.__aexit__(None, None, None)

    def _hear(self, update: Update[Pod]) -> None:
        pod = update.new
        if pod is not None:
            uid = pod.metadata.uid
            if uid not in self._tasks:
                self._ends[uid] = asyncio.Event()
                self._tasks[uid] = asyncio.create_task(self._keep(pod))
            if pod.metadata.deletion_timestamp is not None:
                self._ends[uid].set()
        self.look()

    async def _release(self) -> None:
        """Let go of storage that was deleted and is in no Pod, as a cluster's controller does."""
        self._storage.subscribe(lambda _: self.look())
        while True:
            changed = self._changed
            volumes = [one for pod in self._cache.list() for one in pod.spec.get("volumes", [])]
            used = {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}
            for each in self._storage.list():
                meta = each.metadata
                if meta.deletion_timestamp is not None and meta.finalizers and meta.name not in used:
                    none = {"metadata": {"uid": meta.uid, "finalizers": None}}
                    with contextlib.suppress(ApiError):
                        await self._client.patch(PersistentVolumeClaim, meta.name, none, namespace=meta.namespace)
            await changed.wait()

    def look(self) -> None:
        """Have every Pod looked at once more: something that a test has set is another."""
        self._changed.set()
        self._changed = asyncio.Event()

    def kill(self, uid: str, container: str = "main", number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[uid][container], number)

    def is_running(self, uid: str) -> bool:
        return any(self.pids.get(uid, {}).values())

    async def _until(self, pod: Pod, so: Callable[[Pod], bool]) -> Pod | None:
        """Wait until something is so of a Pod. None: it is to end before that."""
        meta = pod.metadata
        while True:
            changed = self._changed
            found = self._cache.get(meta.name, meta.namespace)
            if found is None or found.metadata.uid != meta.uid or found.metadata.deletion_timestamp is not None:
                return None
            if so(found):
                return found
            await changed.wait()

    async def _keep(self, pod: Pod) -> None:
        try:
            await self._run(pod)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        await self._confirm(pod)

    async def _run(self, pod: Pod) -> None:
        if pod.spec.get("schedulingGates"):
            await self._say(pod, conditions=[condition("PodScheduled", "False", "SchedulingGated", "it has gates")])
            if await self._until(pod, lambda found: not found.spec.get("schedulingGates")) is None:
                return
        if not self.has_room:
            why = "0/1 nodes are available: 1 Insufficient memory."
            await self._say(pod, conditions=[condition("PodScheduled", "False", "Unschedulable", why)])
            if await self._until(pod, lambda _: self.has_room) is None:
                return
        await self._bind(pod)
        await asyncio.gather(*(self._keep_container(pod, one) for one in pod.spec["containers"]))

    async def _bind(self, pod: Pod) -> None:
        if self._is_real:
            meta: Any = pod.metadata
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta.name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            backend: Any = self._client.backend
            path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/binding"
            await backend.raw("POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"})

    # Containers.

    async def _keep_container(self, pod: Pod, container: dict[str, Any]) -> None:
        name, restarts, last = container["name"], 0, None
        while True:
            waits: dict[str, Any] | None = None
            if container["image"] in self.missing_images:
                waits = {"reason": "ErrImagePull", "message": f'pull of "{container["image"]}" failed: not found'}
            else:
                try:
                    environment = await self._environment(pod, container)
                except KeyError as missing:
                    waits = {"reason": "CreateContainerConfigError", "message": str(missing.args[0])}
            if waits is not None:
                await self._say_container(pod, name, {"waiting": waits}, last, restarts)
                if await self._until(pod, lambda _: container["image"] not in self.missing_images) is None:
                    return
                continue
            last, is_over = await self._run_once(pod, container, environment, last, restarts)
            if is_over:
                return
            restarts += 1
            if restarts > CRASHES_BEFORE_PAUSE:
                pause = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
                await self._say_container(pod, name, {"waiting": pause}, last, restarts)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ends[pod.metadata.uid].wait(), BACKOFF_SECONDS)
                    return

    async def _run_once(
        self, pod: Pod, container: dict[str, Any], environment: dict[str, str], last: Any, restarts: int
    ) -> tuple[Any, bool]:
        """Run a container once. Returns how it ended, and whether it is not started again."""
        uid, name = pod.metadata.uid, container["name"]
        argv = [*container.get("command", []), *container.get("args", [])]
        process = await asyncio.create_subprocess_exec(*argv, env=environment, start_new_session=True)
        self.pids.setdefault(uid, {})[name] = process.pid
        self.environments[uid] = environment
        began = now()
        ended = asyncio.create_task(process.wait())
        self._processes.append(ended)
        asked = asyncio.create_task(self._ends[uid].wait())
        evicted = asyncio.create_task(self._evicted(pod))
        try:
            await self._say_container(pod, name, {"running": {"startedAt": began}}, last, restarts, is_ready=True)
            await asyncio.wait((ended, asked, evicted), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._end_process(pod, process, ended, 0 if evicted.done() else None)
        finally:
            asked.cancel()
            is_evicted = evicted.done()
            evicted.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            self.pids[uid].pop(name, None)
        code = await asyncio.shield(ended)
        code = code if code >= 0 else 128 - code
        why = "Error" if code else "Completed"
        end = {"terminated": {"exitCode": code, "reason": why, "startedAt": began, "finishedAt": now()}}
        policy = pod.spec.get("restartPolicy", "Always")
        if is_evicted:
            why = self.evictions.pop(pod.metadata.name)
            await self._say(pod, phase="Failed", reason="Evicted", message=why)
            return end, True
        is_over = self._ends[uid].is_set() or policy == "Never" or (policy == "OnFailure" and code == 0)
        phase = ("Failed" if code else "Succeeded") if is_over and not self._ends[uid].is_set() else "Running"
        await self._say_container(pod, name, end, last, restarts, phase=phase)
        return end, is_over

    async def _evicted(self, pod: Pod) -> None:
        await self._until(pod, lambda _: pod.metadata.name in self.evictions)
        if pod.metadata.name not in self.evictions:
            await asyncio.Event().wait()

    async def _end_process(
        self, pod: Pod, process: asyncio.subprocess.Process, ended: asyncio.Task[int], grace: float | None
    ) -> None:
        found = self._cache.get(pod.metadata.name, pod.metadata.namespace) or pod
        if grace is None:
            said = found.metadata.annotations.get(GRACE)
            real = found.metadata.deletion_grace_period_seconds if self._is_real else None
            grace = float(said if said is not None else real if real is not None else 30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended), grace)

    async def _environment(self, pod: Pod, container: dict[str, Any]) -> dict[str, str]:
        found = {"PATH": os.environ["PATH"]}
        for one in container.get("env", []):
            source = one.get("valueFrom")
            if source is None:
                found[one["name"]] = one.get("value", "").replace("$$(", "$(")
                continue
            ref = source.get("secretKeyRef") or source["configMapKeyRef"]
            kind: Any = Secret if "secretKeyRef" in source else ConfigMap
            try:
                obj = await self._client.get(kind, ref["name"], namespace=pod.metadata.namespace)
            except ApiError:
                raise KeyError(f'{kind.api.name.lower()} "{ref["name"]}" not found') from None
            value = obj.data.get(ref["key"])
            if value is None:
                raise KeyError(f"couldn't find key {ref['key']} in {kind.api.name} {ref['name']}")
            found[one["name"]] = base64.b64decode(value).decode() if kind is Secret else value
        return found

    # Statuses.

    async def _say_container(
        self,
        pod: Pod,
        name: str,
        state: dict[str, Any],
        last: dict[str, Any] | None,
        restarts: int,
        *,
        is_ready: bool = False,
        phase: str = "",
    ) -> None:
        mine: dict[str, Any] = {
            "name": name,
            "state": state,
            "ready": is_ready,
            "restartCount": restarts,
            "image": "image:1",
            "imageID": "",
            **({"lastState": last} if last is not None else {}),
        }
        said = self._said.setdefault(pod.metadata.uid, {})
        said[name] = mine
        every = [said[one["name"]] for one in pod.spec["containers"] if one["name"] in said]
        runs = any("running" in one["state"] for one in every)
        await self._say(
            pod,
            phase=phase if phase and not runs else "Running" if runs else "Pending",
            conditions=[condition("PodScheduled", "True"), condition("Ready", str(is_ready))],
            containerStatuses=every,
            podIP="127.0.0.1",
            startTime=now(),
        )

    async def _say(self, pod: Pod, **status: Any) -> None:
        if self.is_away:
            return
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        with contextlib.suppress(ApiError):
            await self._client.patch(Pod, meta.name, patch, namespace=meta.namespace, subresource="status")

    async def lose_node(self, pod: Pod) -> None:
        """Say what a cluster says of the Pods of a node that is silent."""
        self.is_away = True
        lost = condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [lost]}}
        await self._client.patch(Pod, pod.metadata.name, patch, namespace=pod.metadata.namespace, subresource="status")

    async def _confirm(self, pod: Pod) -> None:
        """Wait until a Pod is to go, and let it go: nothing of it runs any more."""
        await self._ends[pod.metadata.uid].wait()
        meta = pod.metadata
        while self.is_away:
            changed = self._changed
            if self.is_away:
                await changed.wait()
        try:
            if self._is_real:
                await self._client.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)
            else:
                patch = {"metadata": {"uid": meta.uid, "finalizers": None}}
                await self._client.patch(Pod, meta.name, patch, namespace=meta.namespace)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def condition(type_: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now()}
