"""The official `kubernetes` package against `rota up`: typed, custom and dynamic clients, and its watch."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, ResourceNotFoundError
from kubernetes.watch import Watch

from kubernetes import client as k8s
from tests.server.live import Live, live

GROUP, VERSION, PLURAL = "rota.dev", "v1alpha1", "workerpools"
POOLS = (GROUP, VERSION)


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("kubernetes"), "--no-controllers") as server:
        yield server


@pytest.fixture
def api(rota: Live) -> Iterator[Any]:
    with new_client_from_config(config_file=str(rota.kubeconfig)) as made:  # type: ignore[no-untyped-call]
        yield made
        # Its own end leaves connections open.
        made.rest_client.pool_manager.clear()


@pytest.fixture
def core(api: Any) -> Any:
    return k8s.CoreV1Api(api)


@pytest.fixture
def custom(api: Any) -> Any:
    return k8s.CustomObjectsApi(api)


@pytest.fixture
def namespace(core: Any, request: pytest.FixtureRequest) -> str:
    """A namespace of its own for each test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:50].strip("-")
    core.create_namespace({"metadata": {"name": name}})
    return name


@pytest.fixture
def dynamic(api: Any, tmp_path: Path) -> Any:
    return DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))  # type: ignore[no-untyped-call]


@pytest.fixture
def watch() -> Any:
    return Watch()  # type: ignore[no-untyped-call]


def pool(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "WorkerPool",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"worker": {"type": "shell"}, **spec},
    }


def settings(name: str, **data: str) -> Any:
    return k8s.V1ConfigMap(metadata=k8s.V1ObjectMeta(name=name), data=data)


def names(listed: Any) -> list[str]:
    if isinstance(listed, dict):
        return [obj["metadata"]["name"] for obj in listed["items"]]
    return [obj.metadata.name for obj in listed.items]


def refused(error: pytest.ExceptionInfo[ApiException]) -> tuple[int, str]:
    """The code and the reason of a refusal, whose body is a Status in every respect."""
    failure: Any = error.value
    assert failure.headers["Content-Type"] == "application/json"
    status = json.loads(failure.body)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["metadata"] == {}
    assert status["message"] and status["code"] == failure.status
    return status["code"], status["reason"]


def details(error: pytest.ExceptionInfo[ApiException]) -> dict[str, Any]:
    failure: Any = error.value
    found: dict[str, Any] = json.loads(failure.body)["details"]
    return found


# A kind of ours, as CustomObjectsApi sees it.


def test_what_is_created_is_read_back(custom: Any, namespace: str) -> None:
    made = custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a", replicas=2))
    assert made["metadata"]["uid"]
    assert custom.get_namespaced_custom_object(*POOLS, namespace, PLURAL, "a") == made
    with pytest.raises(ApiException) as error:
        custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a"))
    assert refused(error) == (409, "AlreadyExists")


def test_refusals_say_what_and_why(custom: Any, namespace: str) -> None:
    with pytest.raises(ApiException) as error:
        custom.get_namespaced_custom_object(*POOLS, namespace, PLURAL, "nobody")
    assert refused(error) == (404, "NotFound")
    assert details(error) == {"name": "nobody", "group": GROUP, "kind": PLURAL}
    with pytest.raises(ApiException) as error:
        custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a", replicas=5000))
    assert refused(error) == (422, "Invalid")
    assert [cause["field"] for cause in details(error)["causes"]] == ["spec.replicas"]
    with pytest.raises(ApiException) as error:
        custom.list_namespaced_custom_object(*POOLS, namespace, "gadgets")
    assert refused(error) == (404, "NotFound")
    with pytest.raises(ApiException) as error:
        custom.create_namespaced_custom_object(
            *POOLS, namespace, PLURAL, pool("a", colour="red"), field_validation="Strict"
        )
    assert refused(error) == (400, "BadRequest")


def test_who_has_no_token_is_refused(api: Any, namespace: str) -> None:
    api.configuration.api_key = {}
    with pytest.raises(ApiException) as error:
        k8s.CoreV1Api(api).list_namespaced_config_map(namespace)
    assert refused(error) == (401, "Unauthorized")


def test_lists_are_by_selectors_pages_and_of_all_namespaces(custom: Any, core: Any, namespace: str) -> None:
    suite = {"suite": "official"}
    for name in "abc":
        custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool(name, {**suite, "name": name}))
    core.create_namespace({"metadata": {"name": "official-elsewhere"}})
    custom.create_namespaced_custom_object(*POOLS, "official-elsewhere", PLURAL, pool("d", suite))
    here = (*POOLS, namespace, PLURAL)
    assert names(custom.list_namespaced_custom_object(*here, label_selector="name in (a,c)")) == ["a", "c"]
    assert names(custom.list_namespaced_custom_object(*here, label_selector="!name")) == []
    assert names(custom.list_namespaced_custom_object(*here, field_selector="metadata.name=b")) == ["b"]
    first = custom.list_namespaced_custom_object(*here, limit=2)
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 1)
    rest = custom.list_namespaced_custom_object(*here, limit=2, _continue=first["metadata"]["continue"])
    assert (names(rest), rest["metadata"].get("continue")) == (["c"], None)
    everywhere = custom.list_cluster_custom_object(*POOLS, PLURAL, label_selector="suite=official")
    assert sorted(names(everywhere)) == ["a", "b", "c", "d"]
    with pytest.raises(ApiException) as error:
        custom.list_namespaced_custom_object(*here, label_selector="a=b=c")
    assert refused(error) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"replicas": 4}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 4}]),
        ("application/apply-patch+yaml", pool("a", replicas=4)),
    ],
    ids=["merge", "json", "apply"],
)
def test_a_patch_is_what_its_content_type_says(custom: Any, namespace: str, content_type: str, patch: Any) -> None:
    custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a", replicas=1), field_manager="me")
    patched = custom.patch_namespaced_custom_object(
        *POOLS,
        namespace,
        PLURAL,
        "a",
        patch,
        field_manager="me",
        force=True if "apply" in content_type else None,
        _content_type=content_type,
    )
    assert patched["spec"]["replicas"] == 4


def test_a_patch_that_does_not_fit_is_refused(custom: Any, namespace: str) -> None:
    here = (*POOLS, namespace, PLURAL, "a")
    custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a", replicas=1))
    test = [{"op": "test", "path": "/spec/replicas", "value": 9}]
    with pytest.raises(ApiException) as error:
        custom.patch_namespaced_custom_object(*here, test, _content_type="application/json-patch+json")
    assert refused(error) == (422, "Invalid")
    with pytest.raises(ApiException) as error:
        custom.patch_namespaced_custom_object(*here, test, _content_type="application/merge-patch+json")
    assert refused(error) == (400, "BadRequest")


def test_apply_meets_a_conflict_and_takes_over(custom: Any, namespace: str) -> None:
    here = (*POOLS, namespace, PLURAL, "a")
    apply = {"_content_type": "application/apply-patch+yaml"}
    custom.patch_namespaced_custom_object(*here, pool("a", replicas=1), field_manager="alice", **apply)
    with pytest.raises(ApiException) as error:
        custom.patch_namespaced_custom_object(*here, pool("a", replicas=2), field_manager="bob", **apply)
    assert refused(error) == (409, "Conflict")
    assert [cause["reason"] for cause in details(error)["causes"]] == ["FieldManagerConflict"]
    taken = custom.patch_namespaced_custom_object(
        *here, pool("a", replicas=2), field_manager="bob", force=True, **apply
    )
    assert taken["spec"]["replicas"] == 2


def test_a_stale_object_does_not_replace_a_newer_one(custom: Any, namespace: str) -> None:
    here = (*POOLS, namespace, PLURAL, "a")
    stale = custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a", replicas=1))
    fresh = custom.replace_namespaced_custom_object(*here, stale | {"spec": {**stale["spec"], "replicas": 2}})
    assert fresh["spec"]["replicas"] == 2
    with pytest.raises(ApiException) as error:
        custom.replace_namespaced_custom_object(*here, stale)
    assert refused(error) == (409, "Conflict")


def test_status_and_scale_are_subresources(custom: Any, namespace: str) -> None:
    here = (*POOLS, namespace, PLURAL, "a")
    made = custom.create_namespaced_custom_object(*POOLS, namespace, PLURAL, pool("a", replicas=1))
    put = custom.replace_namespaced_custom_object_status(
        *here, made | {"spec": {"worker": {"type": "custom"}}, "status": {"phase": "Ready"}}
    )
    assert (put["status"]["phase"], put["spec"]) == ("Ready", made["spec"])
    custom.patch_namespaced_custom_object_status(*here, {"status": {"phase": "Degraded"}})
    assert custom.get_namespaced_custom_object_status(*here)["status"]["phase"] == "Degraded"
    scale = custom.get_namespaced_custom_object_scale(*here)
    assert (scale["apiVersion"], scale["kind"], scale["spec"]) == ("autoscaling/v1", "Scale", {"replicas": 1})
    scaled = custom.replace_namespaced_custom_object_scale(*here, scale | {"spec": {"replicas": 3}})
    assert scaled["spec"] == {"replicas": 3}
    assert custom.patch_namespaced_custom_object_scale(*here, {"spec": {"replicas": 4}})["spec"] == {"replicas": 4}
    assert custom.get_namespaced_custom_object(*here)["spec"]["replicas"] == 4


def test_deletes_are_of_one_or_of_a_selection_and_keep_to_preconditions(custom: Any, namespace: str) -> None:
    here = (*POOLS, namespace, PLURAL)
    for name in "abc":
        custom.create_namespaced_custom_object(*here, pool(name, {"name": name}))
    options = k8s.V1DeleteOptions(preconditions=k8s.V1Preconditions(uid="another"))
    with pytest.raises(ApiException) as error:
        custom.delete_namespaced_custom_object(*here, "a", body=options)
    assert refused(error) == (409, "Conflict")
    gone = custom.delete_namespaced_custom_object(*here, "a")
    assert (gone["kind"], gone["status"], gone["details"]["name"]) == ("Status", "Success", "a")
    custom.delete_collection_namespaced_custom_object(*here, label_selector="name=b")
    assert names(custom.list_namespaced_custom_object(*here)) == ["c"]
    custom.delete_namespaced_custom_object(*here, "c", dry_run="All", propagation_policy="Foreground")
    assert names(custom.list_namespaced_custom_object(*here)) == ["c"]


# The core kinds, as models.


def test_config_maps_are_models_all_the_way(core: Any, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, settings("a", one="1"))
    assert isinstance(made.metadata.creation_timestamp, datetime)
    patched = core.patch_namespaced_config_map("a", namespace, {"data": {"two": "2"}})
    assert patched.data == {"one": "1", "two": "2"}
    made.data = {"three": "3"}
    with pytest.raises(ApiException) as error:
        core.replace_namespaced_config_map("a", namespace, made)
    assert refused(error) == (409, "Conflict")
    made.metadata.resource_version = patched.metadata.resource_version
    assert core.replace_namespaced_config_map("a", namespace, made).data == {"three": "3"}
    assert names(core.list_config_map_for_all_namespaces(field_selector=f"metadata.namespace={namespace}")) == ["a"]
    assert core.delete_namespaced_config_map("a", namespace)["status"] == "Success"
    with pytest.raises(ApiException) as error:
        core.read_namespaced_config_map("a", namespace)
    assert refused(error) == (404, "NotFound")


def test_secrets_hold_text_as_base64(core: Any, namespace: str) -> None:
    made = core.create_namespaced_secret(
        namespace, k8s.V1Secret(metadata=k8s.V1ObjectMeta(name="a"), string_data={"password": "hunter2"})
    )
    assert (made.type, made.string_data) == ("Opaque", None)
    assert base64.b64decode(made.data["password"]) == b"hunter2"
    with pytest.raises(ApiException) as error:
        core.patch_namespaced_secret("a", namespace, {"type": "other"})
    assert refused(error) == (422, "Invalid")


def test_a_finalizer_holds_a_namespace_until_it_is_taken_off(core: Any, watch: Any, namespace: str) -> None:
    made = core.create_namespace({"metadata": {"name": "official-held", "finalizers": ["example.com/hold"]}})
    assert (made.status.phase, made.spec.finalizers) == ("Active", ["kubernetes"])
    core.delete_namespace("official-held")
    held = core.read_namespace("official-held")
    assert held.metadata.deletion_timestamp is not None
    with pytest.raises(ApiException) as error:
        core.create_namespaced_config_map("official-held", settings("late"))
    assert refused(error) == (403, "Forbidden")
    # The finalizer goes, and with it the namespace, as soon as the namespace's own contents are gone.
    version = held.metadata.resource_version
    core.patch_namespace("official-held", {"metadata": {"finalizers": None}})
    selected = {"field_selector": "metadata.name=official-held", "resource_version": version}
    types = []
    for event in watch.stream(core.list_namespace, timeout_seconds=10, **selected):
        types.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    assert types[-1] == "DELETED"


def test_events_are_found_by_what_they_are_about(core: Any, namespace: str) -> None:
    event = k8s.CoreV1Event(
        metadata=k8s.V1ObjectMeta(generate_name="pool-"),
        involved_object=k8s.V1ObjectReference(kind="WorkerPool", name="a", namespace=namespace),
        reason="Scaled",
        message="to 3",
        type="Normal",
        first_timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        count=1,
    )
    made = core.create_namespaced_event(namespace, event)
    assert made.first_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    about = "involvedObject.name=a,involvedObject.kind=WorkerPool,reason=Scaled"
    assert [e.message for e in core.list_namespaced_event(namespace, field_selector=about).items] == ["to 3"]
    assert core.list_namespaced_event(namespace, field_selector="involvedObject.name=b").items == []


def test_leases_are_taken_and_not_stolen(api: Any, namespace: str) -> None:
    coordination: Any = k8s.CoordinationV1Api(api)
    now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    spec = k8s.V1LeaseSpec(holder_identity="one", lease_duration_seconds=15, acquire_time=now, renew_time=now)
    body = k8s.V1Lease(metadata=k8s.V1ObjectMeta(name="a"), spec=spec)
    mine = coordination.create_namespaced_lease(namespace, body)
    assert mine.spec.renew_time == now, "to the microsecond"
    theirs = coordination.read_namespaced_lease("a", namespace)
    mine.spec.lease_transitions = 1
    coordination.replace_namespaced_lease("a", namespace, mine)
    theirs.spec.holder_identity = "two"
    with pytest.raises(ApiException) as error:
        coordination.replace_namespaced_lease("a", namespace, theirs)
    assert refused(error) == (409, "Conflict")
    assert names(coordination.list_lease_for_all_namespaces(label_selector="a=b")) == []


# Watches.


def test_a_watch_continues_a_list_and_ends_in_time(custom: Any, watch: Any, namespace: str) -> None:
    here = (*POOLS, namespace, PLURAL)
    custom.create_namespaced_custom_object(*here, pool("before"))
    version = custom.list_namespaced_custom_object(*here)["metadata"]["resourceVersion"]
    custom.create_namespaced_custom_object(*here, pool("a"))
    custom.patch_namespaced_custom_object(*here, "a", {"spec": {"replicas": 2}})
    custom.delete_namespaced_custom_object(*here, "a")
    events = watch.stream(custom.list_namespaced_custom_object, *here, resource_version=version, timeout_seconds=1)
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_watch_of_models_gives_models_and_remembers_where_it_is(core: Any, watch: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, settings("a", one="1"))
    for event in watch.stream(core.list_namespaced_config_map, namespace, timeout_seconds=10):
        assert (event["type"], event["object"].data) == ("ADDED", {"one": "1"})
        watch.stop()
    core.create_namespaced_config_map(namespace, settings("b"))
    here = {"resource_version": watch.resource_version, "timeout_seconds": 10}
    for event in watch.stream(core.list_namespaced_config_map, namespace, **here):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "b")
        watch.stop()


def test_a_watch_with_bookmarks_says_how_far_it_is(core: Any, watch: Any, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, settings("a"))
    events = watch.stream(
        core.list_namespaced_config_map,
        namespace,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout_seconds=1,
    )
    seen = [(event["type"], event["raw_object"]["metadata"]) for event in events]
    assert [type_ for type_, _ in seen] == ["ADDED", "BOOKMARK"]
    assert seen[1][1]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(seen[1][1]["resourceVersion"]) >= int(made.metadata.resource_version)


def test_a_watch_from_a_version_that_is_not_there_yet_is_refused(core: Any, watch: Any, namespace: str) -> None:
    with pytest.raises(ApiException) as error:
        list(watch.stream(core.list_namespaced_config_map, namespace, resource_version="9" * 12, timeout_seconds=1))
    failure: Any = error.value
    assert failure.status in (410, 504)


# The dynamic client.


def test_the_dynamic_client_discovers_our_kinds(dynamic: Any) -> None:
    pools = dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="WorkerPool")
    assert (pools.name, pools.singular_name, pools.short_names) == (PLURAL, "workerpool", ["wp"])
    assert pools.namespaced and set(pools.subresources) == {"status", "scale"}
    assert dynamic.version["kubernetes"]["major"] == "1"
    with pytest.raises(ResourceNotFoundError):
        dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Gadget")


def test_the_dynamic_client_does_it_all(dynamic: Any, namespace: str) -> None:
    pools = dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="WorkerPool")
    made = pools.create(pool("a", {"tier": "gold"}, replicas=1), namespace=namespace)
    assert made.spec.replicas == 1
    stale = pools.get("a", namespace).to_dict()
    merged = pools.patch({"spec": {"replicas": 2}}, "a", namespace, content_type="application/merge-patch+json")
    assert merged.spec.replicas == 2
    with pytest.raises(ConflictError):
        pools.replace(stale, namespace=namespace)
    applied = pools.server_side_apply(
        pool("a", replicas=3), namespace=namespace, field_manager="dynamic", force_conflicts=True
    )
    assert applied.spec.replicas == 3
    listed = pools.get(namespace=namespace, label_selector="tier=gold")
    assert [item.metadata.name for item in listed.items] == ["a"]
    scale = pools.scale.get("a", namespace)
    assert (scale.kind, scale.spec.replicas) == ("Scale", 3)
    status = pools.status.patch(
        {"status": {"phase": "Ready"}}, "a", namespace, content_type="application/merge-patch+json"
    )
    assert status.status.phase == "Ready"
    version = pools.get(namespace=namespace).metadata.resourceVersion
    pools.delete("a", namespace)
    events = list(pools.watch(namespace=namespace, resource_version=version, timeout=1))
    assert [(event["type"], event["object"].metadata.name) for event in events] == [("DELETED", "a")]
    with pytest.raises(NotFoundError):
        pools.get("a", namespace)


def test_the_dynamic_client_lists_core_kinds(dynamic: Any, namespace: str) -> None:
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    maps.create({"metadata": {"name": "a"}, "data": {"one": "1"}}, namespace=namespace)
    assert [item.data.one for item in maps.get(namespace=namespace).items] == ["1"]
    leases = dynamic.resources.get(api_version="coordination.k8s.io/v1", kind="Lease")
    assert leases.get(namespace=namespace).items == []
