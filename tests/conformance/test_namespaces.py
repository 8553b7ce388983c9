from __future__ import annotations

import secrets

import msgspec
import pytest

from rota import Client
from rota.api import Kind, Namespace
from rota.registry import Answer, ApiError, Operation, WriteOptions
from tests.conformance.expecting import Object, becomes, gone, refused, watching
from tests.conformance.objects import CONFIG_MAPS, NAMESPACES, POOLS, config_map, name_of, namespace, pool, version_of

HOLD = "example.com/hold"


async def deleted_at(client: Client, kind: Kind, name: str, since: Object) -> int:
    """The version at which an object that was there after `since` went."""
    only = f"metadata.name={name}"
    async with watching(client, kind, fields=only, resource_version=version_of(since)) as watch:
        return int((await watch.until("DELETED", name))[-1].resource_version)


async def test_a_new_namespace_is_active(client: Client) -> None:
    made = await client.get(NAMESPACES, client.namespace)
    assert made["status"]["phase"] == "Active"
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert "namespace" not in made["metadata"]


async def test_a_namespace_is_labelled_with_its_name(client: Client) -> None:
    made = await client.get(NAMESPACES, client.namespace)
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == client.namespace
    changed = await client.patch(NAMESPACES, client.namespace, {"metadata": {"labels": None}})
    assert changed["metadata"]["labels"] == {"kubernetes.io/metadata.name": client.namespace}


async def test_a_typed_namespace_can_be_read(client: Client) -> None:
    read = await client.get(Namespace, client.namespace)
    assert read.status is not None and read.status.phase == "Active"


async def test_there_is_a_default_namespace(client: Client) -> None:
    assert name_of(await client.get(NAMESPACES, "default")) == "default"


async def test_namespaces_are_listed(client: Client) -> None:
    listed = await client.list(NAMESPACES, labels=f"kubernetes.io/metadata.name={client.namespace}")
    assert [name_of(item) for item in listed.items] == [client.namespace]


async def test_the_status_and_finalizers_of_a_namespace_are_not_the_client_s_to_set(client: Client) -> None:
    name = client.namespace
    patch = {"metadata": {"labels": {"x": "1"}}, "spec": {"finalizers": []}, "status": {"phase": "Terminating"}}
    changed = await client.patch(NAMESPACES, name, patch)
    assert changed["metadata"]["labels"]["x"] == "1"
    assert (changed["spec"]["finalizers"], changed["status"]["phase"]) == (["kubernetes"], "Active")


async def test_a_deleted_namespace_terminates_and_takes_nothing_new(client: Client) -> None:
    name = client.namespace
    await client.create(config_map("holding", finalizers=[HOLD]))
    held = await client.delete(NAMESPACES, name)
    assert held is not None and held["status"]["phase"] == "Terminating" and held["metadata"]["deletionTimestamp"]
    with refused(403, "Forbidden") as refusal:
        await client.create(pool("late"))
    assert refusal.value.message == (
        f'workerpools.rota.dev "late" is forbidden: unable to create new content in namespace {name} because it is '
        "being terminated"
    )
    assert refusal.value.causes == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    with refused(403, "Forbidden"):
        await client.apply(pool("late"))
    await client.patch(CONFIG_MAPS, "holding", {"metadata": {"finalizers": None}})


async def test_what_is_in_a_terminating_namespace_can_still_be_changed(client: Client) -> None:
    await client.create(config_map("holding", finalizers=[HOLD]))
    await client.delete(NAMESPACES, client.namespace)
    changed = await client.patch(CONFIG_MAPS, "holding", {"data": {"x": "1"}})
    assert changed["data"]["x"] == "1"
    await client.patch(CONFIG_MAPS, "holding", {"metadata": {"finalizers": None}})


@pytest.mark.needs("namespace lifecycle")
async def test_a_deleted_namespace_is_emptied_and_goes(client: Client) -> None:
    await client.create(pool("a"))
    await client.create(config_map("b"))
    await client.delete(NAMESPACES, client.namespace)
    await gone(client, NAMESPACES, client.namespace)
    for kind, name in ((POOLS, "a"), (CONFIG_MAPS, "b")):
        with refused(404, "NotFound"):
            await client.get(kind, name)


@pytest.mark.needs("namespace lifecycle")
async def test_a_finalizer_on_what_is_inside_holds_the_namespace(client: Client) -> None:
    name = client.namespace
    made = await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(NAMESPACES, name)
    await becomes(client, POOLS, "a", lambda obj: "deletionTimestamp" in obj["metadata"])
    for turn in range(10):
        await client.patch(POOLS, "a", {"metadata": {"labels": {"turn": str(turn)}}})
    assert (await client.get(NAMESPACES, name))["status"]["phase"] == "Terminating"
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})
    assert await deleted_at(client, NAMESPACES, name, made) > await deleted_at(client, POOLS, "a", made)


@pytest.mark.needs("namespace lifecycle")
async def test_a_namespace_without_finalizers_of_its_own_is_still_emptied_first(client: Client) -> None:
    name = client.namespace
    await client.patch(NAMESPACES, name, {"metadata": {"finalizers": [HOLD]}})
    made = await client.create(pool("a", finalizers=[HOLD]))
    await client.delete(NAMESPACES, name)
    await client.patch(NAMESPACES, name, {"metadata": {"finalizers": None}})
    assert (await client.get(NAMESPACES, name))["status"]["phase"] == "Terminating"
    await becomes(client, POOLS, "a", lambda obj: "deletionTimestamp" in obj["metadata"])
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})
    assert await deleted_at(client, NAMESPACES, name, made) > await deleted_at(client, POOLS, "a", made)


@pytest.mark.needs("namespace lifecycle")
async def test_a_finalizer_on_the_namespace_itself_holds_it_when_it_is_empty(client: Client) -> None:
    name = client.namespace
    await client.patch(NAMESPACES, name, {"metadata": {"finalizers": [HOLD]}})
    await client.delete(NAMESPACES, name)
    await becomes(client, NAMESPACES, name, lambda obj: not obj["spec"].get("finalizers"))
    await client.patch(NAMESPACES, name, {"metadata": {"finalizers": None}})
    await gone(client, NAMESPACES, name)


@pytest.mark.needs("namespace lifecycle")
async def test_a_namespace_can_be_made_anew(client: Client) -> None:
    name = f"again-{secrets.token_hex(4)}"
    first = await client.create(namespace(name))
    await client.create(pool("a"), namespace=name)
    await client.delete(NAMESPACES, name)
    await gone(client, NAMESPACES, name)
    second = await client.create(namespace(name))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert (await client.list(POOLS, namespace=name)).items == []
    await client.create(pool("a"), namespace=name)
    await client.delete(NAMESPACES, name)


@pytest.mark.needs("namespace lifecycle")
async def test_other_namespaces_are_left_alone(client: Client) -> None:
    other = f"{client.namespace}-other"
    await client.create(namespace(other))
    await client.create(pool("a"))
    await client.create(pool("a"), namespace=other)
    await client.delete(NAMESPACES, other)
    await gone(client, NAMESPACES, other)
    assert name_of(await client.get(POOLS, "a")) == "a"


@pytest.mark.needs("namespace lifecycle")
async def test_a_namespace_says_what_holds_it(client: Client) -> None:
    name = client.namespace
    await client.create(pool("a", finalizers=[HOLD]))
    await client.create(config_map("b", finalizers=[HOLD, "example.com/other"]))
    await client.create(config_map("c"))
    await client.delete(NAMESPACES, name)

    def tells(obj: Object) -> bool:
        told = {each["type"]: each for each in obj["status"].get("conditions", ())}
        message: str = told.get("NamespaceFinalizersRemaining", {}).get("message", "")
        return "hold in 2 resource instances, example.com/other in 1 resource instances" in message

    held = await becomes(client, NAMESPACES, name, tells)
    conditions = [
        (each["type"], each["status"], each["reason"], each["message"]) for each in held["status"]["conditions"]
    ]
    assert conditions == [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances, "
            "workerpools.rota.dev has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: "
            "example.com/hold in 2 resource instances, example.com/other in 1 resource instances",
        ),
    ]
    assert all(each["lastTransitionTime"] for each in held["status"]["conditions"])
    for kind, each in ((POOLS, "a"), (CONFIG_MAPS, "b")):
        await client.patch(kind, each, {"metadata": {"finalizers": None}})
    await gone(client, NAMESPACES, name)


async def finalize(client: Client, name: str, finalizers: list[str]) -> Object:
    """Do as `kubectl replace --raw /api/v1/namespaces/NAME/finalize`, again when another write was faster."""
    while True:
        read = await client.get(NAMESPACES, name)
        read["spec"] = {"finalizers": finalizers}
        read["status"] = {"phase": "Active"}
        try:
            written = Operation("update", NAMESPACES, "", name, read, WriteOptions("tester"), subresource="finalize")
            (answer,) = await client.backend.write([written])
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            continue
        assert isinstance(answer, Answer)
        obj: Object = msgspec.json.decode(answer.value)
        return obj


async def test_the_finalizers_of_a_namespace_are_changed_by_finalize_alone(client: Client) -> None:
    name = client.namespace
    changed = await finalize(client, name, ["kubernetes", "example.com/mine"])
    assert changed["spec"]["finalizers"] == ["kubernetes", "example.com/mine"]
    assert changed["status"]["phase"] == "Active"
    assert (await client.get(NAMESPACES, name))["spec"] == changed["spec"]
    with refused(422, "Invalid"):
        await finalize(client, name, ["kubernetes", "mine"])
    await finalize(client, name, ["kubernetes"])


@pytest.mark.needs("namespace lifecycle")
async def test_a_finalizer_of_a_namespace_s_spec_is_its_owner_s_to_remove(client: Client) -> None:
    name = client.namespace
    await finalize(client, name, ["kubernetes", "example.com/mine"])
    await client.create(config_map("a"))
    await client.delete(NAMESPACES, name)
    held = await becomes(client, NAMESPACES, name, lambda obj: obj["spec"].get("finalizers") == ["example.com/mine"])
    assert held["status"]["phase"] == "Terminating"
    with refused(404, "NotFound"):
        await client.get(CONFIG_MAPS, "a")
    await finalize(client, name, [])
    await gone(client, NAMESPACES, name)


async def test_a_terminating_namespace_that_is_finalized_is_gone_at_once(client: Client) -> None:
    name = client.namespace
    await client.create(config_map("held", finalizers=[HOLD]))
    await client.delete(NAMESPACES, name)
    assert (await client.get(NAMESPACES, name))["status"]["phase"] == "Terminating"
    await finalize(client, name, [])
    with refused(404, "NotFound"):
        await client.get(NAMESPACES, name)
    await client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})


@pytest.mark.needs("namespace lifecycle")
async def test_a_namespace_that_is_held_is_not_written_again_and_again(client: Client) -> None:
    name = client.namespace
    await client.patch(NAMESPACES, name, {"metadata": {"finalizers": [HOLD]}})
    await client.delete(NAMESPACES, name)
    held = await becomes(client, NAMESPACES, name, lambda obj: not obj["spec"].get("finalizers"))
    other = await client.create(namespace(f"{name}-later"))
    assert version_of(await client.get(NAMESPACES, name)) == version_of(held), "nothing was left to do"
    await client.delete(NAMESPACES, name_of(other))
    await client.patch(NAMESPACES, name, {"metadata": {"finalizers": None}})
    await gone(client, NAMESPACES, name)
