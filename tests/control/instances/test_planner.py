"""The planner, a rule at a time."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rota.api import Instance
from rota.api.instance import InstanceSpec, LastExit
from rota.control.instances import Create, Delete, Drain, plan
from rota.control.instances.names import ORDINAL_LABEL, OWNER_LABEL, TEMPLATE_LABEL
from tests.control.instances.making import (
    CRASHING,
    NEW,
    NOW,
    OLD,
    POOL,
    STARTING,
    TEMPLATE,
    an_instance,
    at,
    in_short,
    several,
    wanting,
)


def actions(replicas: int, instances: list[Instance], **more: Any) -> list[str]:
    return in_short(plan(wanting(replicas, **more), instances, NOW))


# Ordinals and order.


def test_instances_are_made_in_ascending_order() -> None:
    assert actions(3, []) == ["create 0", "create 1", "create 2"]


def test_gaps_are_filled() -> None:
    assert actions(3, [an_instance(1)]) == ["create 0", "create 2"]


def test_surplus_goes_in_descending_order_all_of_it() -> None:
    assert actions(1, several(4)) == ["delete 3", "delete 2", "delete 1"]


def test_what_is_as_it_should_be_is_left_alone() -> None:
    made = plan(wanting(3), several(3), NOW)
    assert (made.actions, made.again_after, made.reason, made.phase) == ([], None, "Settled", "Ready")


def test_an_ordinal_is_taken_until_its_instance_is_gone() -> None:
    assert actions(1, [an_instance(0, leaving=True)]) == []
    assert actions(1, [an_instance(0, OLD, leaving=True)]) == []


def test_what_is_leaving_is_not_deleted_twice() -> None:
    assert actions(0, [an_instance(0, leaving=True), an_instance(1, held=True, leaving=True)], pooled=True) == []


def test_of_two_with_one_ordinal_the_one_with_the_right_name_stays() -> None:
    twin = an_instance(0, name="aaa")
    assert [one.name for one in plan(wanting(1), [twin, an_instance(0)], NOW).actions if isinstance(one, Delete)] == [
        "aaa"
    ]


def test_an_instance_with_a_name_of_another_time_is_replaced_like_an_outdated_one() -> None:
    made = plan(wanting(2), [an_instance(0), an_instance(1, name="aaa")], NOW)
    assert [one.name for one in made.actions if isinstance(one, Delete)] == ["aaa"]
    assert in_short(plan(wanting(2), [an_instance(0, conditions=STARTING), an_instance(1, name="aaa")], NOW)) == []


def test_another_owners_instances_are_left_alone() -> None:
    other = replace(POOL, uid="another")
    assert actions(0, [an_instance(0, owner=other)]) == []


def test_a_name_that_another_owner_has_is_waited_for_and_told() -> None:
    made = plan(wanting(2), [an_instance(0, owner=replace(POOL, uid="another"))], NOW)
    assert in_short(made) == ["create 1"]
    assert (made.reason, made.phase) == ("NameTaken", "Degraded")
    assert made.condition("Ready").reason == "NameTaken"


# What is made.


def test_a_new_instance_is_what_the_template_says_and_its_owners() -> None:
    desired = wanting(1, labels={"a": "1", OWNER_LABEL: "forged"}, annotations={"b": "2"}, gates=("Quota",))
    [create] = plan(replace(desired, finalizers=("rota.dev/runtime",), cell_name="ams-1"), [], NOW).actions
    assert isinstance(create, Create)
    meta, spec = create.instance.metadata, create.instance.spec
    assert (meta.name, meta.namespace, meta.uid) == ("agents-0", "default", "")
    assert meta.labels == {"a": "1", OWNER_LABEL: "agents", ORDINAL_LABEL: "0", TEMPLATE_LABEL: NEW}
    assert meta.annotations == {"b": "2"}
    assert [(owner.uid, owner.controller) for owner in meta.owner_references] == [("pool-uid", True)]
    assert meta.finalizers == ["rota.dev/runtime"]
    assert (spec.ordinal, spec.template_hash, spec.cell_name) == (0, NEW, "ams-1")
    assert [gate.name for gate in spec.scheduling_gates] == ["Quota"]
    assert spec.containers == TEMPLATE.containers and spec.assignment is None


def test_every_field_of_the_template_is_in_the_instance() -> None:
    template = replace(TEMPLATE, restart_policy="Never", network="none", termination_grace_period_seconds=5)
    [create] = plan(replace(wanting(1), template=template), [], NOW).actions
    assert isinstance(create, Create)
    spec: InstanceSpec = create.instance.spec
    assert {name: getattr(spec, name) for name in template.__struct_fields__} == {
        name: getattr(template, name) for name in template.__struct_fields__
    }


# Replacing.


def test_outdated_instances_are_replaced_one_at_a_time_the_highest_first() -> None:
    assert actions(3, several(3, OLD)) == ["delete 2"]


def test_the_next_one_waits_until_the_last_one_is_ready() -> None:
    before = several(2, OLD)
    assert actions(3, before) == ["create 2"]
    assert actions(3, [*before, an_instance(2, OLD, leaving=True)]) == []
    assert actions(3, [*before, an_instance(2, conditions=STARTING)]) == []
    assert actions(3, [*before, an_instance(2)]) == ["delete 1"]


def test_as_many_as_may_be_unavailable_are_replaced_at_once() -> None:
    assert actions(5, several(5, OLD), max_unavailable=3) == ["delete 4", "delete 3", "delete 2"]


def test_what_is_unavailable_already_counts() -> None:
    instances = [*several(3, OLD), an_instance(3, conditions=CRASHING)]
    assert actions(4, instances) == []
    assert actions(4, instances, max_unavailable=2) == ["delete 2"]


def test_less_than_one_may_not_be_forbidden() -> None:
    assert actions(2, several(2, OLD), max_unavailable=0) == ["delete 1"]


def test_going_back_leaves_alone_what_was_not_replaced_yet() -> None:
    half_way = [an_instance(0, OLD), an_instance(1, OLD), an_instance(2, NEW)]
    assert actions(3, half_way, hash_=OLD) == ["delete 2"]


def test_a_rollout_that_waits_for_a_failing_instance_says_so() -> None:
    made = plan(wanting(2), [an_instance(0, OLD), an_instance(1, conditions=CRASHING)], NOW)
    assert (made.actions, made.reason, made.phase) == ([], "RolloutPaused", "Degraded")
    assert made.message == "1 of 2 of the newest template; the others wait for agents-1 to be ready"


# What is not ready never blocks.


def test_a_broken_instance_does_not_block_its_own_replacement() -> None:
    broken = several(3, OLD, conditions=CRASHING)
    assert actions(3, broken) == ["delete 2", "delete 1", "delete 0"]


def test_broken_ones_are_replaced_before_any_that_is_ready() -> None:
    instances = [an_instance(0, OLD, CRASHING), an_instance(1, OLD), an_instance(2, OLD)]
    assert actions(3, instances) == ["delete 0"]
    assert actions(3, instances, max_unavailable=2) == ["delete 0", "delete 2"]


def test_a_broken_instance_does_not_block_scaling_down() -> None:
    assert actions(1, [an_instance(0, conditions=CRASHING), *several(3)[1:]]) == ["delete 2", "delete 1"]
    assert actions(1, [an_instance(0), an_instance(1), an_instance(2, conditions=CRASHING)]) == ["delete 2", "delete 1"]


def test_an_instance_behind_a_gate_is_replaced_at_once() -> None:
    assert actions(1, [an_instance(0, OLD, (), gates=("Quota",))]) == ["delete 0"]


def test_a_broken_instance_of_the_newest_template_is_left_to_its_runtime() -> None:
    assert actions(2, several(2, conditions=CRASHING)) == []


# What has ended.


def ended(seconds_ago: float, policy: str = "Never", phase: str = "Failed") -> Instance:
    instance = an_instance(0, conditions=STARTING, phase=phase, restart_policy=policy)
    assert instance.status is not None
    return replace(instance, status=replace(instance.status, last_exit=LastExit(code=1, time=at(NOW - seconds_ago))))


def test_what_has_ended_for_good_is_replaced_after_a_while() -> None:
    waiting = plan(wanting(1), [ended(4)], NOW)
    assert (waiting.actions, waiting.again_after, waiting.reason) == ([], 6.0, "Replacing")
    assert actions(1, [ended(10)]) == ["delete 0"]
    assert actions(1, [ended(10, "OnFailure", "Succeeded")]) == ["delete 0"]


def test_what_its_runtime_starts_again_is_left_to_it() -> None:
    assert actions(1, [ended(1000, "Always")]) == []
    assert actions(1, [ended(1000, "OnFailure")]) == []


def test_an_end_of_which_no_time_is_known_does_not_make_instances_chase_each_other() -> None:
    young = an_instance(0, conditions=STARTING, phase="Failed", restart_policy="Never")
    young = replace(young, metadata=replace(young.metadata, creation_timestamp=at(NOW - 1)))
    assert plan(wanting(1), [young], NOW).again_after == 9.0


# Holders.


def test_a_held_worker_is_drained_first() -> None:
    made = plan(wanting(1, pooled=True, drain_seconds=60), [an_instance(0, OLD, held=True)], NOW)
    assert made.actions == [Drain("agents-0", "uid-of-agents-0", "7", "2023-11-14T22:13:20.250000Z")]
    assert (made.again_after, made.reason) == (60, "Draining")
    assert made.message == "0 of 1 of the newest template; waits for the holders of agents-0"


def test_while_it_is_drained_nothing_else_is_replaced() -> None:
    instances = [*several(2, OLD), an_instance(2, OLD, held=True, drained_for=20)]
    made = plan(wanting(3, pooled=True, drain_seconds=60), instances, NOW)
    assert (made.actions, made.again_after) == ([], 40)


def test_a_drained_worker_goes_when_it_is_free() -> None:
    assert actions(1, [an_instance(0, OLD, drained_for=1)], pooled=True, drain_seconds=60) == ["delete 0"]


def test_a_drained_worker_goes_when_its_time_is_up() -> None:
    made = plan(wanting(1, pooled=True, drain_seconds=60), [an_instance(0, OLD, held=True, drained_for=60)], NOW)
    assert made.actions == [Delete("agents-0", "uid-of-agents-0", "DrainTimedOut")]


def test_a_shorter_time_counts_at_once() -> None:
    assert actions(1, [an_instance(0, OLD, held=True, drained_for=5)], pooled=True, drain_seconds=5) == ["delete 0"]
    assert actions(1, [an_instance(0, OLD, held=True)], pooled=True, drain_seconds=0) == ["delete 0"]


def test_scaling_down_drains_held_workers_and_deletes_free_ones() -> None:
    instances = [*several(2), an_instance(2, held=True), an_instance(3)]
    assert actions(1, instances, pooled=True, drain_seconds=60) == ["delete 3", "drain 2", "delete 1"]


def test_a_held_worker_that_is_not_ready_is_drained_too() -> None:
    assert actions(1, [an_instance(0, OLD, CRASHING, held=True)], pooled=True, drain_seconds=60) == ["drain 0"]


def test_a_worker_that_stays_after_all_is_handed_out_again() -> None:
    drained = [an_instance(0, held=True, drained_for=1), an_instance(1, drained_for=1)]
    assert actions(2, drained, pooled=True, drain_seconds=60) == ["undrain 1", "undrain 0"]


def test_a_drained_worker_is_needed_again_when_another_one_fails() -> None:
    failed = an_instance(0, conditions=CRASHING)
    wants = {"pooled": True, "drain_seconds": 60}
    assert actions(2, [failed, an_instance(1, OLD, drained_for=1)], **wants) == ["undrain 1"]
    # While it is held, nobody misses it, and its time runs on.
    assert actions(2, [failed, an_instance(1, OLD, held=True, drained_for=1)], **wants) == []
    assert actions(2, [failed, an_instance(1, OLD, held=True, drained_for=99)], **wants) == []


def test_the_worker_that_is_drained_already_stays_the_one_to_go() -> None:
    instances = [an_instance(0, OLD, held=True, drained_for=1), an_instance(1, OLD)]
    assert actions(2, instances, pooled=True, drain_seconds=60) == []


def test_a_mark_that_is_no_time_that_has_come_is_written_anew() -> None:
    for nonsense in ("", "soon", "2023-11-14T22:13:20", "2999-01-01T00:00:00Z"):
        held = an_instance(0, OLD, held=True, drained_for=0)
        held = replace(held, metadata=replace(held.metadata, annotations={"rota.dev/draining": nonsense}))
        assert actions(1, [held], pooled=True, drain_seconds=60) == ["drain 0"]


def test_outside_of_pools_nobody_is_asked() -> None:
    assert actions(1, [an_instance(0, OLD, held=True)], drain_seconds=60) == ["delete 0"]


# Preconditions.


def test_every_deletion_names_the_uid() -> None:
    made = plan(wanting(1), [an_instance(0, OLD), an_instance(1)], NOW)
    assert {(one.name, one.uid) for one in made.actions if isinstance(one, Delete)} == {
        ("agents-0", "uid-of-agents-0"),
        ("agents-1", "uid-of-agents-1"),
    }


def test_a_deletion_because_of_what_was_seen_names_the_version_that_was_seen() -> None:
    def version(instance: Instance, pooled: bool) -> str:
        [delete] = plan(wanting(1, pooled=pooled), [instance], NOW).actions
        assert isinstance(delete, Delete)
        return delete.resource_version

    assert version(an_instance(0, OLD, CRASHING), pooled=False) == "7", "it may be ready by now"
    assert version(an_instance(0, OLD), pooled=True) == "7", "it may be held by now"
    assert version(an_instance(0, OLD), pooled=False) == ""


# Counts.


def test_the_counts_tell_each_sort() -> None:
    instances = [
        an_instance(0),
        an_instance(1, held=True),
        an_instance(2, OLD, held=True, drained_for=1),
        an_instance(3, conditions=CRASHING),
        an_instance(4, conditions=()),
        an_instance(5, leaving=True),
    ]
    counts = plan(wanting(6, pooled=True, drain_seconds=60), instances, NOW).counts
    assert (counts.replicas, counts.ready, counts.available) == (6, 3, 2)
    assert (counts.updated, counts.current) == (4, 3)
    assert (counts.idle, counts.busy) == (1, 2)


def test_an_instance_is_updated_when_the_template_really_runs() -> None:
    instance = an_instance(0)
    assert instance.status is not None
    behind = replace(instance, status=replace(instance.status, observed_template_hash=OLD))
    assert plan(wanting(1), [behind], NOW).counts.updated == 0
    assert plan(wanting(1), [replace(instance, status=None)], NOW).counts.updated == 0


def test_the_phase_tells_how_the_pool_is() -> None:
    assert plan(wanting(2), [], NOW).phase == "Pending"
    assert plan(wanting(2), several(2, conditions=STARTING), NOW).phase == "Pending"
    assert plan(wanting(2), several(1), NOW).phase == "Scaling"
    assert plan(wanting(2), several(2, OLD), NOW).phase == "Scaling"
    assert plan(wanting(2), several(2, conditions=CRASHING), NOW).phase == "Degraded"
    assert plan(wanting(0), [], NOW).phase == "Ready"


def test_a_message_names_a_few_and_counts_the_others() -> None:
    assert plan(wanting(5), [], NOW).message == "agents-0, agents-1, agents-2 and 2 more to be made"
