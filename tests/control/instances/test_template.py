"""The hash and the size of a template."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rota.api import InstanceType, ObjectMeta
from rota.api.cell import InstanceTypeSpec
from rota.api.instance import Container, InstanceTemplate
from rota.api.parts import Amounts, Limits, Resources
from rota.control.instances import Size, restart_stamps, size, template_hash
from rota.control.instances.template import CPU_NANOS_MIN, DEFAULT, RESTARTED, UnknownInstanceTypeError, shares
from tests.control.instances.making import TEMPLATE, an_instance

GIB = 1 << 30
CPU = 1_000_000_000
TYPES = {
    "small": InstanceType(metadata=ObjectMeta(name="small"), spec=InstanceTypeSpec(cpu=1, memory="2Gi")),
}


def written(**spec: Any) -> InstanceTemplate:
    spec.setdefault("containers", [{"name": "main"}])
    return msgspec.json.decode(msgspec.json.encode(spec), type=InstanceTemplate)


def test_defaults_that_are_spelled_out_change_nothing() -> None:
    short = written(storage={"size": "1Gi"}, containers=[{"name": "a", "ports": [{"name": "p"}]}])
    long = written(
        storage={"size": "1Gi", "path": "/workspace"},
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        volumes=[],
        requests={},
        containers=[{"name": "a", "ports": [{"name": "p", "protocol": "TCP"}], "resources": {"limits": {}}, "env": []}],
    )
    assert template_hash(short) == template_hash(long)


def test_amounts_that_are_written_otherwise_change_nothing() -> None:
    assert template_hash(written(requests={"cpu": 1, "memory": "1Gi"})) == template_hash(
        written(requests={"cpu": "1000m", "memory": "1024Mi"})
    )


def test_the_order_of_labels_and_annotations_changes_nothing() -> None:
    assert template_hash(TEMPLATE, {"a": "1", "b": "2"}) == template_hash(TEMPLATE, {"b": "2", "a": "1"})


@pytest.mark.parametrize(
    "other",
    [
        written(containers=[{"name": "main", "image": "x"}]),
        written(containers=[{"name": "main", "env": [{"name": "A", "value": ""}]}]),
        written(requests={"cpu": 2}),
        written(restartPolicy="Never"),
        written(isolation="sandbox"),
    ],
)
def test_what_is_run_differently_has_another_hash(other: InstanceTemplate) -> None:
    assert template_hash(other) != template_hash(written())


def test_an_empty_value_is_not_an_absent_one() -> None:
    empty = written(containers=[{"name": "main", "env": [{"name": "A", "value": ""}]}])
    absent = written(containers=[{"name": "main", "env": [{"name": "A"}]}])
    assert template_hash(empty) != template_hash(absent)


def test_labels_and_annotations_count_each_for_itself() -> None:
    hashes = {template_hash(TEMPLATE), template_hash(TEMPLATE, {"a": "1"}), template_hash(TEMPLATE, {}, {"a": "1"})}
    assert len(hashes) == 3


def test_a_restart_makes_another_template_of_the_same() -> None:
    stamped = restart_stamps({RESTARTED: "2026-01-01T00:00:00Z", "other": "x"})
    assert stamped == {RESTARTED: "2026-01-01T00:00:00Z"}
    assert template_hash(TEMPLATE, {}, stamped) != template_hash(TEMPLATE)


def test_what_rota_adds_to_an_instance_does_not_count() -> None:
    assert template_hash(an_instance(3, held=True, gates=("Quota",)).spec) == template_hash(TEMPLATE)


def test_the_hash_is_the_same_in_every_release() -> None:
    assert template_hash(TEMPLATE, {"a": "1"}) == "9a3f44347b70aaa0"


def limited(**limits: Any) -> Container:
    return Container(name="main", resources=Resources(limits=Limits(**limits)))


def test_the_size_is_the_sum_of_the_limits() -> None:
    template = InstanceTemplate(
        containers=[limited(cpu="500m", memory="1Gi"), limited(cpu=1, memory=GIB)],
        requests=Amounts(cpu=8, memory=8),
        instance_type="small",
    )
    assert size(template, TYPES) == Size(CPU * 3 // 2, 2 * GIB)


def requested(**requests: Any) -> Container:
    return Container(name="main", resources=Resources(requests=Amounts(**requests)))


@pytest.mark.parametrize(
    ("second", "parts"),
    [
        (Container(name="b"), [Size(CPU, 1), Size(CPU, 4)]),
        (limited(cpu=3), [Size(CPU, 1), Size(3 * CPU, 4)]),
        (requested(memory=7), [Size(CPU, 1), Size(CPU, 7)]),
    ],
)
def test_what_is_left_of_the_request_is_for_containers_that_say_nothing(second: Container, parts: list[Size]) -> None:
    template = InstanceTemplate(
        containers=[limited(cpu=1, memory=1), second], requests=Amounts(cpu=2, memory=5), instance_type="small"
    )
    assert shares(template, TYPES) == parts
    assert size(template, TYPES) == Size(sum(one.cpu_nanos or 0 for one in parts), sum(one[1] or 0 for one in parts))


def test_a_limit_counts_whatever_is_requested() -> None:
    template = InstanceTemplate(containers=[limited(memory="2Gi")], requests=Amounts(cpu="1n", memory="1n"))
    assert size(template, TYPES) == Size(CPU_NANOS_MIN, 2 * GIB)


def test_what_leaves_nothing_for_a_container_is_no_size() -> None:
    nothing = InstanceTemplate(containers=[limited(memory=5), Container(name="b")], requests=Amounts(cpu=0, memory=5))
    assert size(nothing, TYPES) == Size(None, None)
    assert size(nothing, TYPES, DEFAULT) == Size(2 * CPU, 5 + GIB)


def test_the_size_is_that_of_the_type_if_nothing_else_says_it() -> None:
    assert size(replace(TEMPLATE, instance_type="small"), TYPES) == Size(CPU, 2 * GIB)


def test_half_a_request_leaves_the_other_half_to_the_type() -> None:
    template = replace(TEMPLATE, requests=Amounts(cpu=4), instance_type="small")
    assert size(template, TYPES) == Size(4 * CPU, 2 * GIB)


def test_without_any_of_them_only_the_instance_counts() -> None:
    assert size(TEMPLATE, TYPES) == Size(None, None)


def test_a_type_that_is_not_there_is_not_free() -> None:
    with pytest.raises(UnknownInstanceTypeError, match='"huge" not found'):
        size(replace(TEMPLATE, instance_type="huge"), TYPES)


def test_a_type_that_is_not_needed_need_not_be_there() -> None:
    assert size(replace(TEMPLATE, requests=Amounts(cpu=1, memory=1), instance_type="huge"), {}) == Size(CPU, 1)


def test_a_grant_is_for_one_size() -> None:
    assert Size(1, None).hash() != Size(None, 1).hash() != Size(1, 1).hash()
