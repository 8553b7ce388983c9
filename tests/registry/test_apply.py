"""Server-side apply: ownership, conflicts, removal and merging, as Kubernetes documents them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rota.registry.apply import ApplyConflict, InvalidApply, apply
from rota.registry.managed import Entry, after_update, entry
from tests.registry.field_nodes import API_VERSION, WIDGET, config

T1, T2, T3 = "2024-01-01T00:00:01Z", "2024-01-01T00:00:02Z", "2024-01-01T00:00:03Z"
Spec = dict[str, Any]


class Cluster:
    """One object, and who wrote what to it."""

    def __init__(self) -> None:
        self.live: dict[str, Any] | None = None
        self.managed: list[Entry] = []

    def apply(
        self, manager: str, spec: Spec | None, *, force: bool = False, now: str = T1, subresource: str = "", **meta: Any
    ) -> Cluster:
        inputs = (self.live, config(spec, **meta), self.managed)
        untouched = copy.deepcopy(inputs)
        live, managed = apply(
            *inputs, WIDGET, manager=manager, api_version=API_VERSION, subresource=subresource, force=force, now=now
        )
        assert inputs == untouched
        live["metadata"].setdefault("uid", "u1")
        self.live, self.managed = live, managed
        return self

    def update(self, manager: str, spec: Spec | None, *, now: str = T1, subresource: str = "", **meta: Any) -> Cluster:
        new = config(spec, **meta)
        self.managed = after_update(
            self.managed,
            self.live,
            new,
            WIDGET,
            manager=manager,
            api_version=API_VERSION,
            subresource=subresource,
            now=now,
        )
        new["metadata"]["uid"] = "u1"
        self.live = new
        return self

    @property
    def spec(self) -> Spec | None:
        assert self.live is not None
        return self.live.get("spec")

    @property
    def owns(self) -> dict[str, Any]:
        return {each["manager"]: each["fieldsV1"].get("f:spec") for each in self.managed}


def test_create_by_apply_owns_what_was_specified_and_no_containers() -> None:
    cluster = Cluster().apply("a", {"strategy": {"type": "x"}, "containers": [{"name": "c"}]}, labels={"l": "1"})
    assert cluster.managed == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": API_VERSION,
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:l": {}}},
                "f:spec": {
                    "f:strategy": {"f:type": {}},
                    "f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}},
                },
            },
        }
    ]


def test_an_apply_that_changes_nothing_moves_no_time_and_returns_the_live_object() -> None:
    cluster = Cluster().apply("a", {"replicas": 1})
    before, managed = cluster.live, cluster.managed
    cluster.apply("a", {"replicas": 1}, now=T2)
    assert cluster.live is before
    assert cluster.managed == managed


def test_an_apply_that_changes_the_object_moves_the_time() -> None:
    cluster = Cluster().apply("a", {"replicas": 1}).apply("a", {"replicas": 2}, now=T2)
    assert cluster.managed[0]["time"] == T2


def test_equal_values_are_shared_and_the_second_owner_has_no_time_since_it_changed_nothing() -> None:
    cluster = Cluster().apply("a", {"replicas": 1}).apply("b", {"replicas": 1}, now=T2)
    assert cluster.owns == {"a": {"f:replicas": {}}, "b": {"f:replicas": {}}}
    assert [each.get("time") for each in cluster.managed] == [None, T1]


def test_a_shared_field_stays_until_its_last_owner_gives_it_up() -> None:
    cluster = Cluster().apply("a", {"replicas": 1, "image": "i"}).apply("b", {"replicas": 1})
    cluster.apply("a", {"image": "i"})
    assert cluster.spec == {"replicas": 1, "image": "i"}
    cluster.apply("b", {})
    assert cluster.spec == {"image": "i"}


def test_a_field_that_others_changed_is_a_conflict() -> None:
    cluster = Cluster().apply("a", {"replicas": 1}).apply("b", {"replicas": 2}, force=True)
    with pytest.raises(ApplyConflict) as raised:
        cluster.apply("a", {"replicas": 3})
    assert str(raised.value) == 'Apply failed with 1 conflict: conflict with "b": .spec.replicas'
    (conflict,) = raised.value.conflicts
    assert (conflict.message, conflict.path) == ('conflict with "b"', ".spec.replicas")


def test_several_conflicts_are_grouped_by_manager() -> None:
    cluster = Cluster().update("u", {"image": "i", "args": ["a"], "replicas": 1})
    cluster.apply("b", {"replicas": 1})
    with pytest.raises(ApplyConflict) as raised:
        cluster.apply("a", {"replicas": 2, "image": "j", "args": ["b"]})
    assert str(raised.value) == (
        "Apply failed with 4 conflicts: "
        'conflicts with "b":\n- .spec.replicas\n'
        f'conflicts with "u" using {API_VERSION}:\n- .spec.args\n- .spec.image\n- .spec.replicas'
    )


def test_a_conflict_names_the_subresource() -> None:
    cluster = Cluster().update("u", {"replicas": 1}).update("scaler", {"replicas": 2}, subresource="scale")
    with pytest.raises(ApplyConflict) as raised:
        cluster.apply("a", {"replicas": 3})
    assert raised.value.conflicts[0].message == f'conflict with "scaler" with subresource "scale" using {API_VERSION}'


def test_force_takes_the_field() -> None:
    cluster = Cluster().apply("a", {"replicas": 1, "image": "i"}).apply("b", {"replicas": 2}, force=True)
    assert cluster.spec == {"replicas": 2, "image": "i"}
    assert cluster.owns == {"a": {"f:image": {}}, "b": {"f:replicas": {}}}


def test_what_the_previous_configuration_held_is_removed() -> None:
    cluster = Cluster().apply("a", {"replicas": 1, "strategy": {"type": "x", "rolling": {"surge": 1}}})
    cluster.apply("a", {"replicas": 1})
    assert cluster.spec == {"replicas": 1}


def test_what_an_updater_changed_since_is_not_removed() -> None:
    cluster = Cluster().apply("a", {"replicas": 1, "image": "i"})
    cluster.update("u", {"replicas": 5, "image": "i"}).apply("a", {"image": "i"})
    assert cluster.spec == {"replicas": 5, "image": "i"}


def test_giving_up_a_field_by_handing_it_over_first_keeps_its_value() -> None:
    cluster = Cluster().apply("user", {"replicas": 3, "image": "i"})
    cluster.apply("autoscaler", {"replicas": 3}).apply("user", {"image": "i"})
    assert cluster.spec == {"replicas": 3, "image": "i"}
    assert cluster.owns == {"autoscaler": {"f:replicas": {}}, "user": {"f:image": {}}}


def test_an_applier_that_gives_up_all_is_gone() -> None:
    cluster = Cluster().apply("a", {"replicas": 1}).apply("b", {"image": "i"})
    cluster.apply("a", None)
    assert cluster.owns == {"b": {"f:image": {}}}
    assert cluster.spec == {"image": "i"}


def test_an_applier_may_move_to_another_version() -> None:
    cluster = Cluster().apply("a", {"replicas": 1})
    live, managed = apply(
        cluster.live,
        config({"image": "i"}),
        cluster.managed,
        WIDGET,
        manager="a",
        api_version="rota.test/v2",
        subresource="",
        force=False,
        now=T2,
    )
    assert live["spec"] == {"image": "i"}
    assert [each["apiVersion"] for each in managed] == ["rota.test/v2"]


@pytest.mark.parametrize(
    ("mine", "theirs", "mine_after", "result"),
    [
        pytest.param(
            {"containers": [{"name": "m", "image": "1"}]},
            {"containers": [{"name": "t", "image": "2"}]},
            {"containers": [{"name": "n", "image": "3"}]},
            {"containers": [{"name": "t", "image": "2"}, {"name": "n", "image": "3"}]},
            id="list map: own items are replaced, others stay",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "1", "args": ["x"]}]},
            {"containers": [{"name": "c", "env": [{"name": "e"}]}]},
            {"containers": [{"name": "c", "image": "2"}]},
            {"containers": [{"name": "c", "image": "2", "env": [{"name": "e"}]}]},
            id="list map: an item is merged field by field",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "1"}]},
            {"containers": [{"name": "c", "env": [{"name": "e"}]}]},
            {},
            {"containers": [{"name": "c", "env": [{"name": "e"}]}]},
            id="list map: an item with another owner loses own fields only",
        ),
        pytest.param(
            {"zones": ["a", "b"]},
            {"zones": ["b", "c"]},
            {"zones": ["a"]},
            {"zones": ["a", "b", "c"]},
            id="set: a shared item stays",
        ),
        pytest.param({"zones": ["a"]}, {"zones": ["b"]}, {}, {"zones": ["b"]}, id="set: own items go"),
        pytest.param(
            {"queues": {"q": {"depth": 1}}},
            {"queues": {"q": {"owner": "t"}, "p": {"depth": 2}}},
            {"queues": {}},
            {"queues": {"q": {"owner": "t"}, "p": {"depth": 2}}},
            id="map: own keys go",
        ),
        pytest.param(
            {"free": {"a": {"x": 1}, "l": [1]}},
            {"free": {"a": {"y": 2}}},
            {"free": {"l": [2]}},
            {"free": {"a": {"y": 2}, "l": [2]}},
            id="free-form: maps are granular, lists atomic",
        ),
    ],
)
def test_two_appliers_of_one_collection(mine: Spec, theirs: Spec, mine_after: Spec, result: Spec) -> None:
    cluster = Cluster().apply("me", mine).apply("them", theirs).apply("me", mine_after)
    assert cluster.spec == result


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        pytest.param({"args": ["a"]}, {"args": ["a", "b"]}, ".spec.args", id="list"),
        pytest.param({"selector": {"app": "a"}}, {"selector": {"tier": "b"}}, ".spec.selector", id="struct"),
        pytest.param({"limits": {"cpu": "1"}}, {"limits": {"mem": "1"}}, ".spec.limits", id="map"),
        pytest.param({"sealed": {"a": 1}}, {"sealed": {"b": 1}}, ".spec.sealed", id="free-form"),
    ],
)
def test_an_atomic_value_has_one_owner_and_is_replaced_whole(first: Spec, second: Spec, path: str) -> None:
    cluster = Cluster().apply("a", first)
    with pytest.raises(ApplyConflict) as raised:
        cluster.apply("b", second)
    assert [each.path for each in raised.value.conflicts] == [path]
    cluster.apply("b", second, force=True)
    assert cluster.spec == second
    assert list(cluster.owns) == ["b"]


@pytest.mark.parametrize(
    ("live", "applied", "result"),
    [
        pytest.param("ab", "ba", "ba", id="the configuration's order wins"),
        pytest.param("abcd", "dc", "abdc", id="others stay before what they preceded"),
        pytest.param("abc", "xa", "xabc", id="new items come where the configuration has them"),
        pytest.param("abc", "cxa", "bcxa", id="others first where the order was turned around"),
        pytest.param("abcdef", "fxb", "acdefxb", id="and so are all before the first shared item"),
        pytest.param("ab", "xy", "abxy", id="nothing shared: after what is there"),
        pytest.param("", "ab", "ab", id="nothing there"),
    ],
)
def test_the_order_of_merged_items(live: str, applied: str, result: str) -> None:
    for field, items in (("zones", list), ("containers", lambda names: [{"name": name} for name in names])):
        cluster = Cluster().update("u", {field: items(live)}).apply("a", {field: items(applied)})
        assert cluster.spec == {field: items(result)}


def test_an_omitted_key_is_the_item_with_its_default() -> None:
    tcp, udp = {"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}
    cluster = Cluster().update("u", {"containers": [{"name": "c", "ports": [tcp, udp]}]})
    cluster.apply("a", {"containers": [{"name": "c", "ports": [{"port": 80, "name": "http"}]}]})
    assert cluster.spec == {"containers": [{"name": "c", "ports": [tcp | {"name": "http"}, udp]}]}


def test_a_container_that_someone_owns_stays_empty() -> None:
    cluster = Cluster().update("u", {"queues": {}}).apply("a", {"queues": {"q": {"depth": 1}}}).apply("a", {})
    assert cluster.spec == {"queues": {}}


@pytest.mark.parametrize(
    ("applied", "result"),
    [
        pytest.param({"replicas": None}, {"replicas": None}, id="a null leaf is set"),
        pytest.param({"strategy": None}, {"strategy": {"type": "x"}}, id="a null struct leaves what is there"),
        pytest.param({"zones": None}, {"zones": ["a"]}, id="a null set leaves what is there"),
        pytest.param({"args": None}, {"args": None}, id="a null atomic list is set"),
    ],
)
def test_nulls(applied: Spec, result: Spec) -> None:
    start = {"replicas": 1, "strategy": {"type": "x"}, "zones": ["a"], "args": ["b"]}
    cluster = Cluster().update("u", start).apply("a", applied, force=True)
    assert cluster.spec == start | result


def test_tracking_begins_with_the_first_apply_of_an_untracked_object() -> None:
    cluster = Cluster().update("u", {"replicas": 1, "image": "i"})
    cluster.managed = []
    with pytest.raises(ApplyConflict) as raised:
        cluster.apply("a", {"replicas": 2})
    assert raised.value.conflicts[0].message == f'conflict with "before-first-apply" using {API_VERSION}'
    cluster.apply("a", {"replicas": 1})
    assert cluster.owns == {
        "a": {"f:replicas": {}},
        "before-first-apply": {".": {}, "f:image": {}, "f:replicas": {}},
    }


def test_status_has_its_own_entry() -> None:
    cluster = Cluster().apply("a", {"replicas": 1})
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    live, managed = apply(
        cluster.live,
        config() | {"status": status},
        cluster.managed,
        WIDGET,
        manager="a",
        api_version=API_VERSION,
        subresource="status",
        force=False,
        now=T2,
    )
    assert (live["spec"], live["status"]) == ({"replicas": 1}, status)
    assert [(each.get("subresource"), list(each["fieldsV1"])) for each in managed] == [
        (None, ["f:spec"]),
        ("status", ["f:status"]),
    ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": [{"name": "a"}, {"name": "a"}]}, '.spec.containers: duplicate entries for key [name="a"]'),
        ({"zones": ["a", "b", "a"]}, '.spec.zones: duplicate entries for key [="a"]'),
        (
            {"containers": [{"image": "i"}]},
            '.spec.containers: element 0: associative list with keys has an element that omits all key fields ["name"] '
            "(and doesn't have default values for any key fields)",
        ),
        ({"containers": [None]}, ".spec.containers: element 0: associative list with keys may not have a null element"),
        (
            {"containers": ["a"]},
            ".spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        ({"zones": [{}]}, ".spec.zones: element 0: associative list without keys has an element that's a map type"),
        ({"zones": [[]]}, ".spec.zones: element 0: not supported: associative list with lists as elements"),
        (
            {"zones": [None]},
            ".spec.zones: element 0: associative list without keys has an element that's an explicit null",
        ),
        ({"nope": 1}, ".spec.nope: field not declared in schema"),
        ({"strategy": "x"}, '.spec.strategy: expected map, got "x"'),
        ({"args": {"a": 1}}, '.spec.args: expected list, got {"a":1}'),
        ({"args": [{"a": 1}]}, '.spec.args[0]: expected any scalar, got {"a":1}'),
        (
            {"zones": ["a", "a"], "nope": 1},
            'errors:\n  .spec.nope: field not declared in schema\n  .spec.zones: duplicate entries for key [="a"]',
        ),
    ],
)
def test_a_configuration_that_cannot_be_merged_is_refused(spec: Spec, problem: str) -> None:
    with pytest.raises(InvalidApply) as raised:
        Cluster().apply("a", spec)
    start = f"failed to create typed patch object (d/w; {API_VERSION}, Kind=Widget): "
    assert str(raised.value) == start + problem


def test_a_configuration_of_another_form_is_refused() -> None:
    odd = {"apiVersion": "v1", "kind": "Widget", "metadata": "w", "spec": []}
    with pytest.raises(InvalidApply) as raised:
        apply(None, odd, [], WIDGET, manager="a", api_version="v1", subresource="", force=False, now=T1)
    assert str(raised.value) == (
        "failed to create typed patch object (/; /v1, Kind=Widget): "
        'errors:\n  .metadata: expected map, got "w"\n  .spec: expected map, got []'
    )


@pytest.mark.parametrize("sent", [[], [{}]])
def test_a_configuration_carries_no_managed_fields(sent: list[Any]) -> None:
    with pytest.raises(InvalidApply, match=r"^metadata\.managedFields must be nil$"):
        Cluster().apply("a", {}, managedFields=sent)


def test_duplicates_that_are_there_already_are_replaced_by_the_applied_item() -> None:
    cluster = Cluster().update("u", {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "a"}]})
    cluster.apply("a", {"containers": [{"name": "a", "image": "2"}]}, force=True)
    assert cluster.spec == {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}


def test_an_unknown_owner_of_an_older_version_still_conflicts() -> None:
    cluster = Cluster().update("u", {"replicas": 1})
    cluster.managed = [entry("old", "Update", "rota.test/v0", "", T1, {"f:spec": {"f:replicas": {}}})]
    with pytest.raises(ApplyConflict, match=r'conflict with "old" using rota\.test/v0: \.spec\.replicas'):
        cluster.apply("a", {"replicas": 2})
