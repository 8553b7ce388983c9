"""managedFields after creates, updates and patches that are not applies."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rota.registry import managed
from rota.registry.managed import Entry
from tests.registry.field_nodes import API_VERSION, WIDGET, config, widget

T1, T2, T3 = "2024-01-01T00:00:01Z", "2024-01-01T00:00:02Z", "2024-01-01T00:00:03Z"


def after(
    before: list[Entry],
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str = "a",
    now: str = T1,
    subresource: str = "",
) -> list[Entry]:
    inputs = copy.deepcopy((before, old, new))
    out = managed.after_update(
        before, old, new, WIDGET, manager=manager, api_version=API_VERSION, subresource=subresource, now=now
    )
    assert (before, old, new) == inputs
    return out


def owns(entries: list[Entry]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in entries}


def test_the_creator_owns_everything_it_wrote() -> None:
    assert after([], None, config({"replicas": 1}, labels={"a": "b"})) == [
        {
            "manager": "a",
            "operation": "Update",
            "apiVersion": API_VERSION,
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {".": {}, "f:replicas": {}},
            },
        }
    ]


def test_an_object_of_nothing_but_a_name_has_no_owner() -> None:
    assert after([], None, config()) == []


def test_structs_that_every_object_has_are_nobodys() -> None:
    blank: dict[str, Any] = {"metadata": {}, "spec": {}}
    assert owns(after([], blank, config({"replicas": 1}))) == {"a": {"f:spec": {"f:replicas": {}}}}


def test_who_changes_a_field_takes_it_from_its_owner() -> None:
    old, new = widget({"replicas": 1, "image": "i"}), widget({"replicas": 2, "image": "i"})
    created = after([], None, old)
    assert owns(after(created, old, new, "b", T2)) == {
        "a": {"f:spec": {".": {}, "f:image": {}}},
        "b": {"f:spec": {"f:replicas": {}}},
    }


def test_an_owner_that_lost_all_is_gone() -> None:
    old, new = widget({"replicas": 1}), widget({"replicas": 2})
    start = [managed.entry("a", "Update", API_VERSION, "", T1, {"f:spec": {"f:replicas": {}}})]
    assert owns(after(start, old, new, "b")) == {"b": {"f:spec": {"f:replicas": {}}}}


def test_everyone_loses_what_is_removed_and_a_removal_alone_moves_no_time() -> None:
    old, new = widget({"replicas": 1, "image": "i"}), widget({"replicas": 1})
    start = [
        managed.entry("a", "Apply", API_VERSION, "", T1, {"f:spec": {"f:image": {}, "f:replicas": {}}}),
        managed.entry("b", "Update", API_VERSION, "", T1, {"f:spec": {"f:image": {}, "f:replicas": {}}}),
    ]
    out = after(start, old, new, "b", T2)
    assert owns(out) == {"a": {"f:spec": {"f:replicas": {}}}, "b": {"f:spec": {"f:replicas": {}}}}
    assert [entry["time"] for entry in out] == [T1, T1]


def test_time_moves_when_the_manager_changes_its_own_field() -> None:
    old, new = widget({"replicas": 1}), widget({"replicas": 2})
    created = after([], None, old)
    (entry,) = after(created, old, new, "a", T2)
    assert entry["time"] == T2
    assert entry["fieldsV1"] == created[0]["fieldsV1"]


def test_an_update_that_changes_nothing_changes_no_entry() -> None:
    old = widget({"replicas": 1})
    created = after([], None, old)
    assert after(created, old, copy.deepcopy(old), "b", T2) is created


def test_changes_of_server_kept_metadata_are_nobodys() -> None:
    old, new = widget({"replicas": 1}, resourceVersion="1"), widget({"replicas": 1}, resourceVersion="2", generation=2)
    created = after([], None, old)
    assert after(created, old, new, "b", T2) == created


@pytest.mark.parametrize(
    ("other", "count"),
    [
        pytest.param({}, 1, id="the same"),
        pytest.param({"manager": "b"}, 2, id="another manager"),
        pytest.param({"operation": "Apply"}, 2, id="an apply"),
        pytest.param({"apiVersion": "rota.test/v2"}, 2, id="another apiVersion"),
        pytest.param({"subresource": "status"}, 2, id="another subresource"),
    ],
)
def test_entries_are_told_apart_by_manager_operation_version_and_subresource(other: dict[str, str], count: int) -> None:
    old, new = widget({"replicas": 1, "image": "i"}), widget({"replicas": 2, "image": "i"})
    start = [managed.entry("a", "Update", API_VERSION, "", T1, {"f:spec": {"f:image": {}}}) | other]
    assert len(after(start, old, new)) == count


def test_a_manager_without_a_name_is_unknown() -> None:
    assert list(owns(after([], None, config({"replicas": 1}), manager=""))) == ["unknown"]


def test_status_is_owned_through_its_subresource() -> None:
    old = widget({"replicas": 1})
    new = old | {"status": {"phase": "Ready"}}
    out = after(after([], None, old), old, new, "a", T2, subresource="status")
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in out] == [
        (None, {"f:spec": {".": {}, "f:replicas": {}}}),
        ("status", {"f:status": {".": {}, "f:phase": {}}}),
    ]


def test_appliers_come_first_then_the_oldest() -> None:
    def named(manager: str, operation: str, time: str | None) -> Entry:
        return managed.entry(manager, operation, API_VERSION, "", time, {"f:spec": {}})

    entries = [
        named("d", "Update", T2),
        named("c", "Update", T1),
        named("b", "Update", T1),
        named("z", "Apply", T3),
        named("y", "Apply", None),
    ]
    assert [entry["manager"] for entry in managed.order(entries)] == ["y", "z", "b", "c", "d"]


def test_of_more_than_ten_updaters_the_oldest_are_folded() -> None:
    labels: dict[str, str] = {}
    old = widget(labels=labels)
    entries = [managed.entry("applier", "Apply", API_VERSION, "", T1, {"f:spec": {"f:replicas": {}}})]
    for n in range(13):
        new = widget(labels={**old["metadata"]["labels"], f"l{n:02}": "x"})
        entries = after(entries, old, new, f"m{n:02}", f"2024-01-01T00:00:{n:02}Z")
        old = new
    assert [(entry["manager"], entry["time"]) for entry in entries] == [
        ("applier", T1),
        ("ancient-changes", T3),
        *[(f"m{n:02}", f"2024-01-01T00:00:{n:02}Z") for n in range(4, 13)],
    ]
    assert entries[1]["fieldsV1"] == {"f:metadata": {"f:labels": {"f:l00": {}, "f:l01": {}, "f:l02": {}, "f:l03": {}}}}


def test_updaters_of_different_versions_are_folded_apart() -> None:
    entries = [
        managed.entry(
            f"m{n}", "Update", f"rota.test/v{n % 2}", "", f"2024-01-01T00:00:{n:02}Z", {"f:spec": {f"f:{n}": {}}}
        )
        for n in range(10)
    ]
    old = widget({"replicas": 1})
    out = after(entries, old, widget({"replicas": 2}), "new", "2024-01-01T00:01:00Z")
    folded = [entry for entry in out if entry["manager"] == "ancient-changes"]
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in folded] == [
        ("rota.test/v0", {"f:spec": {"f:0": {}, "f:2": {}}})
    ]
    assert len(out) == 10


def test_an_untracked_object_stays_untracked() -> None:
    assert after([], widget({"replicas": 1}), widget({"replicas": 2})) == []


VALID = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": API_VERSION,
    "time": T1,
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {"f:replicas": {}}},
}
LIVE = [managed.entry("live", "Update", API_VERSION, "", T1, {"f:spec": {"f:image": {}}})]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param(None, LIVE, id="none sent: the live ones"),
        pytest.param([], [], id="an empty list resets"),
        pytest.param([{}], [], id="one empty entry resets"),
        pytest.param([VALID], [VALID], id="valid ones replace"),
        pytest.param([{}, {}], LIVE, id="two empty entries are not valid"),
        pytest.param([VALID | {"operation": "Merge"}], LIVE, id="unknown operation"),
        pytest.param([VALID | {"apiVersion": ""}], LIVE, id="no apiVersion"),
        pytest.param([VALID | {"fieldsType": "FieldsV2"}], LIVE, id="unknown fieldsType"),
        pytest.param([VALID | {"fieldsType": ""}], LIVE, id="no fieldsType"),
        pytest.param([VALID | {"fieldsV1": {"spec": {}}}], LIVE, id="malformed set"),
        pytest.param([VALID | {"time": "yesterday"}], LIVE, id="malformed time"),
        pytest.param([VALID | {"time": 3}], LIVE, id="time of another type"),
        pytest.param("odd", LIVE, id="no list"),
        pytest.param([VALID | {"time": "2024-01-01T01:00:01.5+01:00"}], [VALID], id="times are whole seconds in UTC"),
    ],
)
def test_what_a_client_sends_as_managed_fields(sent: Any, kept: list[Entry]) -> None:
    assert managed.requested(sent, LIVE, subresource="") == kept


def test_a_subresource_takes_no_managed_fields() -> None:
    assert managed.requested([VALID], LIVE, subresource="status") is LIVE
