from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from rota import Client
from rota.api import Lease, ObjectMeta
from rota.api.core import LeaseSpec
from tests.conformance.expecting import causes, refused
from tests.conformance.objects import CONFIG_MAPS, EVENTS, LEASES, SECRETS, config_map, lease, name_of, pool, secret


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Secrets.


async def test_a_secret_takes_plain_text_and_gives_it_back_encoded(client: Client) -> None:
    made = await client.create(secret("a", stringData={"user": "me", "pass": "ü"}))
    assert made["data"] == {"user": encoded("me"), "pass": encoded("ü")}
    assert "stringData" not in made
    assert await client.get(SECRETS, "a") == made


async def test_plain_text_wins_over_data_of_the_same_key(client: Client) -> None:
    data = {"x": encoded("data"), "y": encoded("kept")}
    made = await client.create(secret("a", data=data, stringData={"x": "text"}))
    assert made["data"] == {"x": encoded("text"), "y": encoded("kept")}


async def test_plain_text_in_a_patch_is_added_to_the_data(client: Client) -> None:
    await client.create(secret("a", stringData={"x": "1"}))
    changed = await client.patch(SECRETS, "a", {"stringData": {"y": "2"}})
    assert changed["data"] == {"x": encoded("1"), "y": encoded("2")}


async def test_a_secret_is_opaque_unless_it_says_otherwise(client: Client) -> None:
    assert (await client.create(secret("a")))["type"] == "Opaque"
    assert (await client.create(secret("b", type="example.com/token")))["type"] == "example.com/token"


async def test_the_type_of_a_secret_does_not_change(client: Client) -> None:
    await client.create(secret("a"))
    with refused(422, "Invalid") as refusal:
        await client.patch(SECRETS, "a", {"type": "example.com/token"})
    assert causes(refusal) == [("type", "FieldValueInvalid")]


async def test_the_data_of_a_secret_is_base64(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.create(secret("a", data={"x": "not base64!"}))


@pytest.mark.parametrize("key", ["has space", "a/b", "..", "ä", "k" * 254])
async def test_the_keys_of_a_secret_have_a_syntax(client: Client, key: str) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(secret("a", stringData={key: "x"}))
    assert causes(refusal) == [(f"data[{key}]", "FieldValueInvalid")]


@pytest.mark.parametrize(
    "patch", [{"data": {"x": encoded("2")}}, {"data": {"y": encoded("2")}}, {"data": None}, {"stringData": {"x": "2"}}]
)
async def test_an_immutable_secret_keeps_its_data(client: Client, patch: dict[str, Any]) -> None:
    await client.create(secret("a", stringData={"x": "1"}, immutable=True))
    with refused(422, "Invalid") as refusal:
        await client.patch(SECRETS, "a", patch)
    assert causes(refusal) == [("data", "FieldValueForbidden")]


async def test_an_immutable_secret_stays_immutable(client: Client) -> None:
    await client.create(secret("a", immutable=True))
    for value in (False, None):
        with refused(422, "Invalid") as refusal:
            await client.patch(SECRETS, "a", {"immutable": value})
        assert causes(refusal) == [("immutable", "FieldValueForbidden")]


async def test_an_immutable_secret_can_be_labelled_and_deleted(client: Client) -> None:
    await client.create(secret("a", immutable=True))
    await client.patch(SECRETS, "a", {"metadata": {"labels": {"x": "1"}}})
    assert await client.delete(SECRETS, "a") is None


@pytest.mark.parametrize(
    ("type_", "missing"),
    [
        ("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/basic-auth", ["data[password]", "data[username]"]),
        ("kubernetes.io/ssh-auth", ["data[ssh-privatekey]"]),
    ],
)
async def test_a_secret_of_a_known_type_has_its_keys(client: Client, type_: str, missing: list[str]) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(secret("a", type=type_))
    assert causes(refusal) == [(field, "FieldValueRequired") for field in missing]


async def test_one_half_of_a_basic_login_is_enough(client: Client) -> None:
    made = await client.create(secret("a", type="kubernetes.io/basic-auth", stringData={"password": "x"}))
    assert made["data"] == {"password": encoded("x")}


@pytest.mark.parametrize("bytes_", [1_048_577, 1_200_000])
async def test_a_secret_holds_one_mebibyte(client: Client, bytes_: int) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(secret("a", stringData={"x": "y" * bytes_}))
    assert ("data", "FieldValueTooLong") in causes(refusal)


# ConfigMaps.


async def test_a_config_map_has_text_and_bytes(client: Client) -> None:
    sent = {**config_map("a", {"text": "ü"}), "binaryData": {"bytes": encoded("x")}}
    made = await client.create(sent)
    assert (made["data"], made["binaryData"]) == ({"text": "ü"}, {"bytes": encoded("x")})


async def test_a_key_is_of_text_or_of_bytes(client: Client) -> None:
    with refused(422, "Invalid"):
        await client.create({**config_map("a", {"x": "1"}), "binaryData": {"x": encoded("1")}})


async def test_the_keys_of_a_config_map_have_a_syntax(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(config_map("a", {"has space": "x"}))
    assert causes(refusal) == [("data[has space]", "FieldValueInvalid")]


async def test_the_values_of_a_config_map_are_text(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.create({**config_map("a"), "data": {"x": 1}})


async def test_a_config_map_holds_one_mebibyte(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(config_map("a", {"x": "y" * 1_048_577}))
    assert [reason for _, reason in causes(refusal)] == ["FieldValueTooLong"]


async def test_an_immutable_config_map_keeps_its_data(client: Client) -> None:
    await client.create({**config_map("a"), "immutable": True})
    with refused(422, "Invalid") as refusal:
        await client.patch(CONFIG_MAPS, "a", {"data": {"new": "x"}})
    assert causes(refusal) == [("data", "FieldValueForbidden")]
    with refused(422, "Invalid") as refusal:
        await client.patch(CONFIG_MAPS, "a", {"binaryData": {"new": encoded("x")}})
    assert causes(refusal) == [("binaryData", "FieldValueForbidden")]


async def test_a_config_map_has_no_generation(client: Client) -> None:
    await client.create(config_map("a"))
    changed = await client.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})
    assert "generation" not in changed["metadata"]


# Leases.


async def test_a_lease_keeps_its_times_to_the_microsecond(client: Client) -> None:
    at = "2030-01-02T03:04:05.000600Z"
    made = await client.create(lease("a", holderIdentity="me", leaseDurationSeconds=15, acquireTime=at, renewTime=at))
    assert made["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": at,
        "renewTime": at,
    }


async def test_a_typed_lease_is_written_to_the_microsecond(client: Client) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = await client.create(Lease(metadata=ObjectMeta(name="a"), spec=LeaseSpec(renew_time=at)))
    assert made.spec is not None and made.spec.renew_time == at
    assert (await client.get(LEASES, "a"))["spec"]["renewTime"] == "2030-01-02T03:04:05.000000Z"


@pytest.mark.parametrize("time", ["2030-01-02T03:04:05Z", "2030-01-02T03:04:05.5Z", "yesterday"])
async def test_a_lease_s_time_has_six_digits_of_a_second_s_fraction(client: Client, time: str) -> None:
    with refused(400, "BadRequest"):
        await client.create(lease("a", renewTime=time))


async def test_a_lease_is_taken_by_one_of_many(client: Client) -> None:
    made = await client.create(lease("a"))
    tries = [client.update({**made, "spec": {"holderIdentity": holder}}) for holder in ("one", "two", "three")]
    results = await asyncio.gather(*tries, return_exceptions=True)
    [taken] = [result for result in results if isinstance(result, dict)]
    held = (await client.get(Lease, "a")).spec
    assert held is not None and held.holder_identity == taken["spec"]["holderIdentity"]


@pytest.mark.parametrize("spec", [{"leaseDurationSeconds": 0}, {"leaseTransitions": -1}])
async def test_a_lease_has_bounds(client: Client, spec: dict[str, int]) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(lease("a", **spec))
    [field] = spec
    assert causes(refusal) == [(f"spec.{field}", "FieldValueInvalid")]


async def test_a_lease_is_patched(client: Client) -> None:
    await client.create(lease("a", holderIdentity="me"))
    changed = await client.patch(LEASES, "a", {"spec": {"holderIdentity": None}})
    assert changed["spec"] == {}


# Events.


def event(name: str, about: dict[str, Any], **parts: Any) -> dict[str, Any]:
    frame = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}}
    return {**frame, "involvedObject": about, "reason": "Tested", "message": "it works", "type": "Normal", **parts}


async def test_an_event_is_about_an_object_of_its_namespace(client: Client) -> None:
    owner = await client.create(pool("a"))
    about = {"apiVersion": owner["apiVersion"], "kind": "WorkerPool", "name": "a", "namespace": client.namespace}
    made = await client.create(event("e", about, count=1))
    assert (made["involvedObject"], made["count"], made["reason"]) == (about, 1, "Tested")
    with refused(422, "Invalid") as refusal:
        await client.create(event("f", {**about, "namespace": "default"}))
    assert causes(refusal) == [("involvedObject.namespace", "FieldValueInvalid")]


async def test_an_event_about_nothing_in_a_namespace_is_refused(client: Client) -> None:
    with refused(422, "Invalid") as refusal:
        await client.create(event("e", {"kind": "Location", "name": "ams"}))
    assert causes(refusal) == [("involvedObject.namespace", "FieldValueInvalid")]


async def test_an_event_about_an_object_of_the_cluster_is_in_the_default_namespace(client: Client) -> None:
    name = client.namespace
    made = await client.create(event(name, {"kind": "Location", "name": "ams"}), namespace="default")
    await client.delete(EVENTS, name, namespace="default")
    assert "namespace" not in made["involvedObject"]


async def test_an_event_of_the_new_form_says_who_reports_what(client: Client) -> None:
    about = {"kind": "WorkerPool", "name": "a", "namespace": client.namespace}
    at = "2030-01-02T03:04:05.000006Z"
    with refused(422, "Invalid") as refusal:
        await client.create(event("e", about, eventTime=at))
    assert {"reportingComponent", "reportingInstance", "action"} <= {field for field, _ in causes(refusal)}
    reporter = {"reportingComponent": "rota.dev/tester", "reportingInstance": "tester-1", "action": "Testing"}
    assert (await client.create(event("e", about, eventTime=at, **reporter)))["eventTime"] == at


async def test_events_are_selected_by_what_they_are_about(client: Client) -> None:
    for name in "ab":
        about = {"kind": "WorkerPool", "name": name, "namespace": client.namespace}
        await client.create(event(f"e-{name}", about, type="Warning" if name == "b" else "Normal"))
    found = await client.list(EVENTS, fields="involvedObject.kind=WorkerPool,involvedObject.name=b")
    assert [name_of(e) for e in found.items] == ["e-b"]
    assert [name_of(e) for e in (await client.list(EVENTS, fields="type=Warning")).items] == ["e-b"]
    assert [name_of(e) for e in (await client.list(EVENTS, fields="reason=Tested")).items] == ["e-a", "e-b"]


async def test_an_event_is_counted_up(client: Client) -> None:
    about = {"kind": "WorkerPool", "name": "a", "namespace": client.namespace}
    await client.create(event("e", about, count=1))
    assert (await client.patch(EVENTS, "e", {"count": 2}))["count"] == 2


async def test_base64_may_be_wrapped_to_lines(client: Client) -> None:
    made = await client.create(secret(data={"key": "aGVs\nbG8=\n"}))
    assert base64.b64decode(made["data"]["key"]) == b"hello"
    assert "\n" not in made["data"]["key"]


async def test_an_update_of_a_lease_that_is_gone_is_a_conflict_if_it_names_its_uid_and_else_makes_it_anew(
    client: Client,
) -> None:
    made = await client.create(Lease(metadata=ObjectMeta(name="a")))
    await client.delete(Lease, "a")
    with refused(409, "Conflict"):
        await client.update(made)
    again = await client.update(msgspec.structs.replace(made, metadata=ObjectMeta(name="a", resource_version="1")))
    assert again.metadata.uid not in ("", made.metadata.uid)
