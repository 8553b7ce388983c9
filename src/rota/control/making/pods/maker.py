"""The maker of a cluster: an Instance becomes a Pod, its storage a PersistentVolumeClaim."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec

from rota.api import Condition, Instance
from rota.api.cluster import NetworkPolicy, PersistentVolumeClaim, Pod
from rota.api.egress import Policy
from rota.client import Cache, Client, Key, Update
from rota.control import networks, values
from rota.control.gate import status_of
from rota.control.holds.options import as_held
from rota.control.instances import Size, storage_name
from rota.control.instances.names import owner_of, subject_of
from rota.control.making.interface import Description, Observed, Obstacle
from rota.control.making.pods import specs, statuses
from rota.control.making.pods.specs import INSTANCE, MANAGED_LABEL, STORAGE_OWNER
from rota.control.sizes import share_of
from rota.control.writing import unless_overtaken
from rota.engine.fence import Deposed
from rota.engine.objects import Objects
from rota.registry import ApiError
from rota.runtime.interface import Owner, Refused, Subject
from rota.runtime.runners import Runners

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
"""Pause before the creation of a Pod is tried again that the API server refused for now, such as by a ResourceQuota."""
NO_POLICY = Policy()
"""A policy that gives every Pod the network of the cluster."""
GRACE_SECONDS_MIN = 1
"""The shortest grace. With 0, Kubernetes would delete the Pod by force while its node may still run it."""
CLUSTER_NETWORK = (
    "it has the network of the cluster, within the cluster's own NetworkPolicies; `network: none` closes it"
)
RESTARTS_MAX = 64
"""The most Pods that are restarted at the same time, in the background."""


class PodMaker:
    """Makes instances real as Pods. Create it by `pod_maker`, which keeps its caches up to date."""

    copies_gates = True
    is_cluster = True

    def __init__(
        self,
        client: Client,
        pods: Cache[Pod],
        storage: Cache[PersistentVolumeClaim],
        *,
        policy: Policy = NO_POLICY,
        runtime_class: str = "",
    ) -> None:
        """`runtime_class`: the RuntimeClass of Pods whose instances ask for a sandbox; empty: there is none."""
        self.runners = Runners()
        self._client = client
        self._pods = pods
        self._storage = storage
        self._policy = policy
        self._runtime_class = runtime_class
        self._fresh: dict[Key, Pod] = {}
        """Pods that this maker has created, until the watch brings the first event of each."""
        self._numbers: dict[Subject, int] = {}
        """The number of the last known run of each instance."""
        self._graces: dict[str, int] = {}
        """The shortest grace of each deletion that this maker has requested, by the uid of the Pod."""
        self._restarts: set[asyncio.Task[None]] = set()

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        ends = [
            self._pods.subscribe(partial(self._pod_changed, wake)),
            self._storage.subscribe(partial(_storage_changed, wake)),
        ]

        def stop() -> None:
            for end in ends:
                end()
            for one in self._restarts:
                one.cancel()

        return stop

    def _pod_changed(self, wake: Callable[[Key], None], update: Update[Pod]) -> None:
        fresh = self._fresh.get(update.key)
        if fresh is not None and fresh.metadata.uid == (update.new or update.old or fresh).metadata.uid:
            del self._fresh[update.key]
        if update.old is not None and update.new is None:
            self._graces.pop(update.old.metadata.uid, None)
        wake(update.key)

    # Reporting.

    def _pod(self, obj: Instance) -> Pod | None:
        """Return the Pod of an instance; None: there is none, or it is of an earlier instance of this name."""
        found = self._named(Key(obj.metadata.namespace, obj.metadata.name))
        return found if found is not None and _uid_of_maker(found) == obj.metadata.uid else None

    def _named(self, key: Key) -> Pod | None:
        return self._pods.get(key.name, key.namespace) or self._fresh.get(key)

    def observe(self, obj: Instance) -> Observed:
        pod = self._pod(obj)
        found = statuses.observed(obj, pod, is_deleted=pod is not None and pod.metadata.uid in self._graces)
        if found.runs:
            last = max(run.number for run in found.runs.values())
            self._numbers[subject_of(obj)] = max(last, self._numbers.get(subject_of(obj), 0))
        return found

    def warnings(self, obj: Instance) -> Iterable[tuple[str, str]]:
        return ()  # Its kubelet records Events on the Pod.

    def describe(self, obj: Instance) -> Description:
        pod, network = self._pod(obj), networks.network_of(obj.spec, self._policy)
        said = statuses.addresses(obj, pod) if network == "host" else []
        return Description(
            addresses=said if pod is not None else None,
            conditions=[self._kept_apart(obj), self._confined(obj)],
            unhonoured=[],
            limits_unmet=[
                f"spec.containers[{i}].resources.limits.pids is not held: the kubelet has one limit for all Pods"
                for i, one in enumerate(obj.spec.containers)
                if one.resources is not None and one.resources.limits is not None and one.resources.limits.pids
            ],
        )

    def _kept_apart(self, obj: Instance) -> Condition:
        how = f"RuntimeClass {self._runtime_class}" if self._runtime_class else ""
        if obj.spec.isolation in ("sandbox", "gvisor"):
            return Condition(type="Isolated", status="True", reason="Sandboxed", message=how)
        return Condition(type="Isolated", status="True", reason="Contained", message="it is a Pod")

    def _confined(self, obj: Instance) -> Condition:
        said = networks.condition(obj, self._policy, isolated=True)
        if said.reason != "HostNetwork":
            return said
        # A Pod never has the network of its node.
        return msgspec.structs.replace(said, reason="ClusterNetwork", message=CLUSTER_NETWORK)

    def storages(self) -> Iterable[tuple[str, Owner]]:
        there = [one for one in self._storage.list() if one.metadata.deletion_timestamp is None]
        owners = ((one.metadata.namespace, _storage_owner(one)) for one in there)
        return {(namespace, owner) for namespace, owner in owners if owner is not None}

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        return {}  # Only a metrics server knows.

    # Making.

    def refusal(self, objects: Objects, obj: Instance) -> Obstacle | None:
        network = networks.network_of(obj.spec, self._policy)
        found = specs.unmakeable(obj, network, self._runtime_class)
        if found is not None:
            return Obstacle(*found)
        why = networks.check(objects, obj, self._policy)
        why = why or networks.foreign_input(objects, obj, self._policy, isolated=True)
        return Obstacle("ConfigurationError", why) if why else None

    async def make(self, objects: Objects, obj: Instance, start: Collection[str] = ()) -> Observed:
        refused = self.refusal(objects, obj)
        if refused is not None:
            return msgspec.structs.replace(self.observe(obj), obstacle=refused)
        key = Key(obj.metadata.namespace, obj.metadata.name)
        found = self._named(key)
        if found is not None and key in self._fresh:
            # Made a moment ago. Somebody may have deleted it before the watch brought it.
            found = await self._read(key)
        if found is not None and _uid_of_maker(found) != obj.metadata.uid:
            return self._with(obj, await self._give_way(found))
        try:
            if found is None:
                return self._with(obj, await self._create(objects, obj))
            if start and statuses.is_ended(found):
                await self._delete(found, GRACE_SECONDS_MIN)
                return self._with(obj, Obstacle("Provisioning", "its earlier Pod is ending"))
            await self._keep(obj, found)
        except ApiError as error:
            return self._with(obj, _refused(error))
        return self.observe(obj)

    def _with(self, obj: Instance, obstacle: Obstacle | None) -> Observed:
        found = self.observe(obj)
        return found if obstacle is None else msgspec.structs.replace(found, obstacle=obstacle)

    async def _read(self, key: Key) -> Pod | None:
        try:
            return await self._client.get(Pod, key.name, namespace=key.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            self._fresh.pop(key, None)
            return self._pods.get(key.name, key.namespace)

    async def _give_way(self, other: Pod) -> Obstacle:
        """Delete a Pod in the way if it is of an earlier instance of this name. Any other one is left alone."""
        name = other.metadata.name
        if MANAGED_LABEL in other.metadata.labels and _uid_of_maker(other):
            await self._delete(other, GRACE_SECONDS_MIN)
            return Obstacle("Provisioning", "the Pod of an earlier instance of this name is ending")
        return Obstacle("NameTaken", f"Pod/{name} is there and is not Rota's: delete it, or rename the owner")

    async def _create(self, objects: Objects, obj: Instance) -> Obstacle | None:
        """Create the Pod of an instance, after its storage and its NetworkPolicy."""
        try:
            for container in obj.spec.containers:
                for one in as_held(obj, container).env:
                    values.value(objects, obj, one)  # That it is there: the cluster fills it in.
            made = specs.pod(
                obj,
                self._sizes(objects, obj),
                run=self._next_run(obj),
                network=networks.network_of(obj.spec, self._policy),
                runtime_class=self._runtime_class,
            )
        except Refused as error:
            return Obstacle(error.reason, str(error))
        if obj.spec.storage is not None and (obstacle := await self._provide_storage(obj)) is not None:
            return obstacle
        if networks.network_of(obj.spec, self._policy) == "none":
            await self._isolate(obj.metadata.namespace)
        try:
            pod = await self._client.create(made, field_validation="Warn")
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            there = await self._client.get(Pod, obj.metadata.name, namespace=obj.metadata.namespace)
            if _uid_of_maker(there) != obj.metadata.uid:
                return await self._give_way(there)
            pod = there
        self._remember(pod)
        return None

    def _remember(self, pod: Pod) -> None:
        """Remember a created Pod until the watch brings it."""
        key = Key(pod.metadata.namespace, pod.metadata.name)
        known = self._pods.get(key.name, key.namespace)
        if known is None or known.metadata.uid != pod.metadata.uid:
            self._fresh[key] = pod

    def _sizes(self, objects: Objects, obj: Instance) -> dict[str, Size]:
        if obj.spec.instance_type is None and obj.spec.requests is None:
            return {}
        return {one.name: share_of(objects, obj.spec, one.name) for one in obj.spec.containers}

    def _next_run(self, obj: Instance) -> int:
        status, last = status_of(obj), self._numbers.get(subject_of(obj), -1)
        return max(last, status.restarts if status.runtime_id is not None else -1) + 1

    async def _provide_storage(self, obj: Instance) -> Obstacle | None:
        name, namespace = storage_name(obj), obj.metadata.namespace
        there = self._storage.get(name, namespace)
        if there is None:
            try:
                await self._client.create(specs.storage_claim(obj))
                return None
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                there = await self._client.get(PersistentVolumeClaim, name, namespace=namespace)
        owner = _storage_owner(there)
        if owner is None:
            return Obstacle(
                "NameTaken", f"PersistentVolumeClaim/{name} is there and is not Rota's: delete it, or rename the owner"
            )
        if there.metadata.deletion_timestamp is not None:
            return Obstacle("Provisioning", f"the earlier PersistentVolumeClaim/{name} is being removed")
        if owner != owner_of(obj):
            return Obstacle(
                "ConfigurationError",
                f"PersistentVolumeClaim/{name} has the files of an earlier {owner.name}: delete it",
            )
        return None

    async def _isolate(self, namespace: str) -> None:
        """Create the NetworkPolicy of Pods without a network, unless it exists."""
        wanted = specs.isolated_policy(namespace)
        try:
            await self._client.create(wanted)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            there = await self._client.get(NetworkPolicy, wanted.metadata.name, namespace=namespace)
            if any(there.spec.get(name) != value for name, value in wanted.spec.items()):
                raise ApiError(
                    403,
                    "Forbidden",
                    f"NetworkPolicy/{wanted.metadata.name} is there and is not Rota's: delete it",
                ) from None

    async def _keep(self, obj: Instance, pod: Pod) -> None:
        """Remove gates from a Pod that its instance does not have any more. Nothing else of a Pod can change."""
        wanted, there = specs.gates(obj), pod.spec.get("schedulingGates") or []
        left = [one for one in there if one in wanted]
        if left != there and not statuses.is_ending(pod) and pod.metadata.uid not in self._graces:
            change = {"metadata": {"uid": pod.metadata.uid}, "spec": {"schedulingGates": left}}
            self._remember(await self._client.patch(Pod, pod.metadata.name, change, namespace=pod.metadata.namespace))

    # Ending.

    async def renew(self, obj: Instance) -> bool:
        pod = self._pod(obj)
        if pod is not None:
            await self._delete(pod, GRACE_SECONDS_MIN)
        return True

    def restart(self, obj: Instance, container: str) -> None:
        """Delete the Pod, so that it is recreated: only the kubelet can restart a single container."""
        pod = self._pod(obj)
        if pod is None or len(self._restarts) >= RESTARTS_MAX:
            return
        task = asyncio.create_task(self._restart(pod, obj.spec.termination_grace_period_seconds))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _restart(self, pod: Pod, grace_seconds: int) -> None:
        try:
            await self._delete(pod, grace_seconds)
        except (ApiError, Deposed, OSError) as error:
            log.warning("Pod %s could not be deleted: %s", pod.metadata.name, error)

    async def discard(self, obj: Instance) -> None:
        pod = self._pod(obj)
        if pod is not None:
            await self._delete(pod, GRACE_SECONDS_MIN)
        await self._drop_storage(obj)

    async def end(self, obj: Instance, grace_seconds: float, *, keep_storage: bool) -> bool:
        pod = self._pod(obj)
        if pod is not None and await self._delete(pod, grace_seconds):
            return False
        self._numbers.pop(subject_of(obj), None)
        if obj.spec.storage is not None and not keep_storage:
            await self._drop_storage(obj)
        return True

    async def gone(self, key: Key) -> None:
        pod = self._named(key)
        if pod is not None and _uid_of_maker(pod):
            await self._delete(pod, GRACE_SECONDS_MIN)
        for subject in [one for one in self._numbers if (one.namespace, one.name) == key]:
            del self._numbers[subject]

    async def _delete(self, pod: Pod, grace_seconds: float) -> bool:
        """Request the deletion of a Pod. Returns whether the Pod still exists."""
        meta, grace = pod.metadata, max(int(grace_seconds), GRACE_SECONDS_MIN)
        if self._graces.get(meta.uid, grace + 1) <= grace:
            return True
        self._graces[meta.uid] = grace
        try:
            await self._client.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=grace)
        except ApiError as error:
            del self._graces[meta.uid]
            if not error.is_overtaken:
                raise
            # The watch brings its end, unless it never brought it.
            return self._fresh.pop(Key(meta.namespace, meta.name), None) is None
        except BaseException:
            del self._graces[meta.uid]
            raise
        return True

    async def drop_storage(self, namespace: str, owner: Owner) -> None:
        for one in self._storage.list(namespace):
            if _storage_owner(one) == owner:
                await self._delete_storage(one)

    async def _drop_storage(self, obj: Instance) -> None:
        name, namespace = storage_name(obj), obj.metadata.namespace
        there = self._storage.get(name, namespace)
        if there is None:
            # It may be so new that the watch has not brought it yet.
            try:
                there = await self._client.get(PersistentVolumeClaim, name, namespace=namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
                return
        if _storage_owner(there) == owner_of(obj):
            await self._delete_storage(there)

    async def _delete_storage(self, claim: PersistentVolumeClaim) -> None:
        meta = claim.metadata
        if meta.deletion_timestamp is not None:
            return
        await unless_overtaken(
            self._client.delete(PersistentVolumeClaim, meta.name, namespace=meta.namespace, uid=meta.uid)
        )


def _uid_of_maker(pod: Pod) -> str:
    """Return the uid of the Instance that a Pod was made for; empty: for none."""
    if MANAGED_LABEL not in pod.metadata.labels:
        return ""
    owners = pod.metadata.owner_references
    return next((one.uid for one in owners if one.controller and one.kind == Instance.api.name), "")


def _storage_changed(wake: Callable[[Key], None], update: Update[PersistentVolumeClaim]) -> None:
    changed = update.new or update.old
    if changed is not None:
        wake(Key(update.key.namespace, changed.metadata.annotations.get(INSTANCE, update.key.name)))


def _storage_owner(claim: PersistentVolumeClaim) -> Owner | None:
    """Return the owner of a PersistentVolumeClaim; None: Rota did not create it."""
    name, _, uid = claim.metadata.annotations.get(STORAGE_OWNER, "").partition("/")
    return Owner(name, uid) if uid and MANAGED_LABEL in claim.metadata.labels else None


def _refused(error: ApiError) -> Obstacle:
    """Return the obstacle of a Pod that the API server refused. It is retried if no event can show a change."""
    if error.code == 422:
        return Obstacle("ConfigurationError", f"the cluster refuses its Pod: {error.message}")
    # A ResourceQuota, Pod Security or an admission webhook; or the API server is short of something.
    reason = "QuotaExceeded" if "exceeded quota" in error.message else "ConfigurationError"
    if error.code in (400, 403, 409):
        return Obstacle(reason, f"the cluster refuses its Pod: {error.message}", again_seconds=RETRY_SECONDS)
    raise error


@asynccontextmanager
async def pod_maker(
    client: Client, *, policy: Policy = NO_POLICY, runtime_class: str = "", namespace: str = ""
) -> AsyncIterator[PodMaker]:
    """Yield a maker for a cluster, or for one namespace of it, with caches of its Pods and storage."""
    async with AsyncExitStack() as opening:
        mine = f"{MANAGED_LABEL}=true"
        pods = await opening.enter_async_context(Cache(client, Pod, namespace=namespace, labels=mine))
        storage = await opening.enter_async_context(
            Cache(client, PersistentVolumeClaim, namespace=namespace, labels=mine)
        )
        yield PodMaker(client, pods, storage, policy=policy, runtime_class=runtime_class)
