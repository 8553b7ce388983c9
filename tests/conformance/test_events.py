"""Events in both of their versions: one object, two forms."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Client
from rota.api.events import EVENTS_EVENT as NEW
from tests.conformance.conftest import As
from tests.conformance.expecting import Object, causes, refused, told, watching
from tests.conformance.objects import EVENTS as CORE

TIME = "2026-01-02T03:04:05Z"
MICRO_TIME = "2026-01-02T03:04:05.678901Z"


def old_event(client: Client, name: str = "old", **parts: Any) -> Object:
    """As kubelets and the older recorders write them."""
    about = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "name": "pool", "namespace": client.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": client.namespace},
        "involvedObject": about,
        "reason": "Scaled",
        "message": "one more",
        "source": {"component": "autoscaler", "host": "here"},
        "firstTimestamp": TIME,
        "lastTimestamp": TIME,
        "count": 2,
        "type": "Normal",
        **parts,
    }


def new_event(client: Client, name: str = "new", **parts: Any) -> Object:
    """As the recorders of `events.k8s.io` write them."""
    about = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "name": "pool", "namespace": client.namespace}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": client.namespace},
        "eventTime": MICRO_TIME,
        "reportingController": "example.com/controller",
        "reportingInstance": "controller-0",
        "action": "Scaling",
        "reason": "Scaled",
        "regarding": about,
        "note": "one more",
        "type": "Normal",
        **parts,
    }


async def test_an_old_event_is_read_as_a_new_one(client: Client) -> None:
    made = await client.create(old_event(client))
    read = await client.get(NEW, "old")
    assert (read["apiVersion"], read["kind"]) == ("events.k8s.io/v1", "Event")
    assert read["metadata"] == made["metadata"]
    assert (read["note"], read["regarding"], read["reason"], read["type"]) == (
        "one more",
        made["involvedObject"],
        "Scaled",
        "Normal",
    )
    assert (read["deprecatedCount"], read["deprecatedSource"]) == (2, {"component": "autoscaler", "host": "here"})
    assert (read["deprecatedFirstTimestamp"], read["deprecatedLastTimestamp"]) == (TIME, TIME)
    assert not {"message", "involvedObject", "count", "source", "firstTimestamp", "lastTimestamp"} & read.keys()


async def test_a_new_event_is_read_as_an_old_one(client: Client) -> None:
    made = await client.create(new_event(client))
    assert (made["apiVersion"], made["note"]) == ("events.k8s.io/v1", "one more")
    read = await client.get(CORE, "new")
    assert (read["apiVersion"], read["message"], read["involvedObject"]) == ("v1", "one more", made["regarding"])
    assert (read["reportingComponent"], read["eventTime"]) == ("example.com/controller", MICRO_TIME)
    assert read["metadata"] == made["metadata"]
    assert not {"note", "regarding", "reportingController"} & read.keys()


async def test_both_are_listed_in_both_versions(client: Client) -> None:
    await client.create(old_event(client))
    await client.create(new_event(client))
    for kind, text in ((CORE, "message"), (NEW, "note")):
        listed = await client.list(kind)
        assert [(item["metadata"]["name"], item[text]) for item in listed.items] == [
            ("new", "one more"),
            ("old", "one more"),
        ]
        assert {item["apiVersion"] for item in listed.items} == {kind.api_version}


async def test_each_version_is_watched_for_what_is_written_through_the_other(client: Client) -> None:
    since = (await client.list(CORE)).resource_version
    async with (
        watching(client, NEW, resource_version=since) as new,
        watching(client, CORE, resource_version=since) as old,
    ):
        await client.create(old_event(client))
        await client.create(new_event(client))
        await client.delete(NEW, "old")
        expected = [("ADDED", "old"), ("ADDED", "new"), ("DELETED", "old")]
        for watch, text in ((new, "note"), (old, "message")):
            changes = await watch.take(3)
            assert [told(change) for change in changes] == expected
            assert all(change.object is not None and change.object[text] == "one more" for change in changes)


async def test_a_series_is_patched_as_recorders_do(client: Client) -> None:
    await client.create(new_event(client))
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000001Z"}}
    changed = await client.patch(NEW, "new", series, type="strategic")
    assert changed["series"] == series["series"] and changed["note"] == "one more"
    assert (await client.get(CORE, "new"))["series"] == series["series"]
    more = {"series": {"count": 3, "lastObservedTime": "2026-01-02T03:06:05.000001Z"}}
    assert (await client.patch(CORE, "new", more))["series"]["count"] == 3


async def test_a_json_patch_names_the_fields_of_its_version(client: Client) -> None:
    await client.create(old_event(client))
    changed = await client.patch(CORE, "old", [{"op": "replace", "path": "/message", "value": "two more"}], type="json")
    assert changed["message"] == "two more"
    with refused(422, "Invalid"):
        await client.patch(NEW, "old", [{"op": "test", "path": "/message", "value": "two more"}], type="json")
    await client.patch(NEW, "old", [{"op": "test", "path": "/note", "value": "two more"}], type="json")


async def test_what_a_new_event_says_does_not_change(client: Client) -> None:
    made = await client.create(new_event(client))
    for name, field, value in (
        ("note", "message", "other"),
        ("reason", "reason", "Other"),
        ("type", "type", "Warning"),
        ("reportingController", "reportingController", "example.com/other"),
        ("action", "action", "Other"),
    ):
        with refused(422, "Invalid") as refusal:
            await client.update({**made, name: value})
        assert causes(refusal) == [(field, "FieldValueInvalid")]
    assert (await client.update({**await client.get(CORE, "new"), "message": "other"}))["message"] == "other"


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ({"eventTime": None}, [("eventTime", "FieldValueRequired")]),
        ({"type": "Odd"}, [("type", "FieldValueInvalid")]),
        ({"reason": "r" * 129}, [("reason", "FieldValueInvalid")]),
        ({"note": "n" * 1025}, [("message", "FieldValueInvalid")]),
        ({"reportingController": "a/b/c"}, [("reportingController", "FieldValueInvalid")]),
        ({"reportingInstance": None}, [("reportingInstance", "FieldValueRequired")]),
        ({"deprecatedCount": 1}, [("count", "FieldValueInvalid")]),
        ({"deprecatedSource": {"component": "a"}}, [("source", "FieldValueInvalid")]),
        ({"deprecatedFirstTimestamp": TIME}, [("firstTimestamp", "FieldValueInvalid")]),
        ({"series": {"count": 1, "lastObservedTime": MICRO_TIME}}, [("series.count", "FieldValueInvalid")]),
        ({"series": {"count": 2}}, [("series.lastObservedTime", "FieldValueRequired")]),
    ],
)
async def test_new_events_are_held_to_more(client: Client, parts: Object, wrong: list[tuple[str, str]]) -> None:
    event = {name: value for name, value in new_event(client, **parts).items() if value is not None}
    with refused(422, "Invalid") as refusal:
        await client.create(event)
    assert causes(refusal) == wrong


async def test_a_field_of_the_other_version_is_unknown(client: Client) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.create(new_event(client, message="no"), field_validation="Strict")
    assert 'unknown field "message"' in refusal.value.message
    with refused(400, "BadRequest") as refusal:
        await client.create(old_event(client, note="no"), field_validation="Strict")
    assert 'unknown field "note"' in refusal.value.message
    made = await client.create(new_event(client, message="no"), field_validation="Ignore")
    assert "message" not in made and made["note"] == "one more"


async def test_fields_are_owned_by_the_names_of_the_version_they_were_written_through(
    client: Client, as_manager: As
) -> None:
    await as_manager("recorder").create(new_event(client))
    (entry,) = (await client.get(CORE, "new"))["metadata"]["managedFields"]
    assert (entry["manager"], entry["apiVersion"]) == ("recorder", "events.k8s.io/v1")
    assert {"f:note", "f:regarding", "f:reportingController", "f:reason"} <= entry["fieldsV1"].keys()
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000001Z"}}
    await as_manager("counter").patch(NEW, "new", series)
    managed = (await client.get(NEW, "new"))["metadata"]["managedFields"]
    # They are in the order of their seconds, and those of one second by name.
    assert sorted((each["manager"], each["apiVersion"]) for each in managed) == [
        ("counter", "events.k8s.io/v1"),
        ("recorder", "events.k8s.io/v1"),
    ]


async def test_a_write_through_one_version_forgets_what_was_owned_through_the_other(
    client: Client, as_manager: As
) -> None:
    await as_manager("recorder").create(new_event(client))
    changed = await as_manager("reader").patch(CORE, "new", {"message": "other"})
    (entry,) = changed["metadata"]["managedFields"]
    assert (entry["manager"], entry["apiVersion"], entry["fieldsV1"]) == ("reader", "v1", {"f:message": {}})


async def test_an_apply_meets_what_was_applied_in_the_same_version(client: Client, as_manager: As) -> None:
    for version in (old_event, new_event):
        event = version(client, version.__name__.replace("_", "-"))
        await as_manager("one").apply(event)
        frame = {name: event[name] for name in ("apiVersion", "kind", "metadata")}
        text = "message" if version is old_event else "note"
        with refused(409, "Conflict") as refusal:
            await as_manager("two").apply({**frame, text: "x"})
        assert [(cause["reason"], cause["field"]) for cause in refusal.value.causes] == [
            ("FieldManagerConflict", f".{text}")
        ]


@pytest.mark.parametrize("part", ["name", "namespace", "kind", "uid", "apiVersion", "fieldPath", "resourceVersion"])
async def test_events_are_selected_by_what_they_are_about(client: Client, part: str) -> None:
    about = {**old_event(client)["involvedObject"], "uid": "u-1", "fieldPath": "spec.worker{a}", "resourceVersion": "7"}
    await client.create(old_event(client, involvedObject=about))
    for kind, field in ((CORE, "involvedObject"), (NEW, "regarding")):
        for operator, value, names in (("=", about[part], ["old"]), ("!=", about[part], []), ("=", "other", [])):
            listed = await client.list(kind, fields=f"{field}.{part}{operator}{value}")
            assert [item["metadata"]["name"] for item in listed.items] == names, (kind, operator, value)


async def test_events_are_selected_by_reason_type_and_reporter(client: Client) -> None:
    await client.create(old_event(client, reason="Grown"))
    await client.create(new_event(client, type="Warning"))
    for kind, fields, names in (
        (CORE, "reason=Grown", ["old"]),
        (CORE, "type=Warning", ["new"]),
        (CORE, "source=autoscaler", ["old"]),
        (CORE, "source=example.com/controller", ["new"]),
        (CORE, "reportingComponent=example.com/controller", ["new"]),
        (CORE, "reason=Grown,type=Warning", []),
        (NEW, "reason=Grown", ["old"]),
        (NEW, "reportingController=example.com/controller", ["new"]),
        (NEW, "type!=Warning", ["old"]),
    ):
        listed = await client.list(kind, fields=fields)
        assert [item["metadata"]["name"] for item in listed.items] == names, (kind, fields)


@pytest.mark.parametrize(
    ("kind", "field"), [(CORE, "message"), (CORE, "regarding.name"), (NEW, "involvedObject.name"), (NEW, "source")]
)
async def test_other_fields_of_events_cannot_be_selected_by(client: Client, kind: Any, field: str) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.list(kind, fields=f"{field}=x")
    assert f"field label not supported: {field}" in refusal.value.message
