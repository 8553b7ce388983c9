"""Objects as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.api import KINDS, Kind
from rota.api.table import age, duration, rows
from tests.examples import example, examples

NOW = datetime(2024, 5, 6, 7, 13, 9, tzinfo=UTC).timestamp()
"""Five minutes after the times in the examples."""


def shown(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    table = rows(KINDS[kind], [obj], NOW)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def full(kind: str) -> dict[str, Any]:
    obj = examples(kind)[-1]
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": "2024-05-06T07:08:09Z"}}


@pytest.mark.parametrize("kind", list(KINDS.values()), ids=lambda kind: kind.name)
def test_every_kind_has_a_cell_per_column(kind: Kind) -> None:
    for obj in examples(kind.name):
        table = rows(kind, [obj], NOW)
        (row,) = table["rows"]
        assert len(row["cells"]) == len(table["columnDefinitions"])
        assert row["object"]["metadata"]["name"] == "example"


@pytest.mark.parametrize("kind", [k for k in KINDS.values() if k.name != "Event"], ids=lambda kind: kind.name)
def test_every_table_begins_with_the_name_and_ends_with_the_age(kind: Kind) -> None:
    cells = shown(kind.name, full(kind.name))
    first, *_, last = cells
    assert (first, last) == ("Name", "Age")
    assert cells["Age"] == "5m"
    definition = rows(kind, [], NOW)["columnDefinitions"][0]
    assert (definition["type"], definition["format"], definition["priority"]) == ("string", "name", 0)


def test_a_table_is_one_of_kubernetes() -> None:
    table = rows(KINDS["Task"], [], NOW)
    assert (table["apiVersion"], table["kind"], table["rows"]) == ("meta.k8s.io/v1", "Table", [])


def test_columns_of_the_wide_form_have_a_priority() -> None:
    definitions = rows(KINDS["WorkerPool"], [], NOW)["columnDefinitions"]
    wide = {definition["name"] for definition in definitions if definition["priority"]}
    assert {"Replicas", "Updated", "Reason"} <= wide and "Phase" not in wide


def test_cells_have_the_type_of_their_column() -> None:
    pool = example("WorkerPool", {}, {"phase": "Ready", "idle": 2, "conditions": [{"type": "Ready", "reason": "Fine"}]})
    cells = shown("WorkerPool", pool)
    assert (cells["Phase"], cells["Idle"], cells["Reason"]) == ("Ready", 2, "Fine")
    assert cells["Busy"] is None
    assert shown("Schedule", example("Schedule", {"enabled": False}))["Enabled"] is False


def test_a_quantity_that_is_a_number_is_shown_as_text() -> None:
    assert shown("InstanceType", example("InstanceType", {"cpu": 2, "memory": "1Gi"}))["CPU"] == "2"


def test_a_value_of_another_type_than_its_column_is_left_out() -> None:
    assert shown("WorkerPool", example("WorkerPool", {}, {"idle": "many"}))["Idle"] is None


def test_a_condition_is_found_by_its_type() -> None:
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    assert shown("Cell", example("Cell", {}, {"conditions": conditions}))["Ready"] == "True"


def test_data_is_counted_and_not_shown() -> None:
    secret = example("Secret", data={"user": "YQ==", "password": "Yg=="})
    assert shown("Secret", secret)["Data"] == 2
    assert shown("Secret", example("Secret"))["Data"] == 0


def test_a_time_to_come_is_counted_down_to() -> None:
    schedule = example("Schedule", {}, {"nextRunTime": "2024-05-06T07:15:09Z", "lastStartedTime": None})
    cells = shown("Schedule", schedule)
    assert (cells["Next"], cells["Last"]) == ("in 2m", None)


def test_an_event_is_shown_with_what_it_is_about() -> None:
    event = example(
        "Event",
        involvedObject={"kind": "Task", "name": "build"},
        lastTimestamp="2024-05-06T07:13:04Z",
        type="Warning",
        reason="Failed",
        message="exit 1\n",
    )
    table = rows(KINDS["Event"], [event], NOW)
    narrow = [i for i, definition in enumerate(table["columnDefinitions"]) if not definition["priority"]]
    assert [table["rows"][0]["cells"][i] for i in narrow] == ["5s", "Warning", "Failed", "task/build", "exit 1"]


def test_an_object_without_a_time_of_creation_has_an_unknown_age() -> None:
    assert shown("ConfigMap", example("ConfigMap"))["Age"] == "<unknown>"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (135, "2m15s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (730 * 86400 - 1, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_a_time_span_is_written_as_kubectl_writes_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("2024-05-06T07:13:10Z", "0s"),
        ("2024-05-06T07:13:12Z", "in 3s"),
        ("2024-05-06T09:08:09+02:00", "5m"),
        ("2024-05-06T07:08:09.123456789Z", "4m59s"),
        ("2024-05-06T07:08:09", "<invalid>"),
        ("yesterday", "<invalid>"),
        (7, "<invalid>"),
    ],
)
def test_an_age_is_counted_from_any_time_of_the_api(time: Any, text: str) -> None:
    assert age(time, NOW) == text
