"""Faults of hubs, cells and quotas, here or in other systems, each with the test that shows that it does not happen."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FAULTS = "tests/control/cells/test_faults.py"
FLEET = "tests/control/cells/test_fleet.py"
SCALE = "tests/control/cells/test_scale.py"
STORM = "tests/control/cells/test_storm.py"
WORKLOADS = "tests/control/workloads/test_workloads.py"
QUOTAS = "tests/control/quotas/test_quotas.py"
GRANTING = "tests/control/quotas/test_granting.py"
PLANNER = "tests/control/instances/test_planner.py"
TRAPS = "tests/control/running/test_traps.py"

CASES = {
    # Quotas.
    "the event of a grant is lost": f"{FAULTS}::test_a_grant_that_the_cell_did_not_hear_of_is_there"
    "_when_it_hears_again",
    "a grant is for the size of before": f"{GRANTING}::test_a_grant_for_another_size_is_another_grant",
    "the second write of a burst conflicts": f"{TRAPS}::test_somebody_who_writes_at_the_same_time_makes_nothing_wait",
    "a thousand race for a grant": f"{FAULTS}::test_a_thousand_that_race_for_a_few_places_never_have_more",
    "two controllers grant": f"{QUOTAS}::test_two_controllers_that_both_think_they_lead_do_not_grant_twice",
    "a crash between ledger and claim": f"{QUOTAS}::test_a_crash_between_the_ledger_and_what_follows_is_made_good",
    "the budget is lowered amid a grant": f"{GRANTING}::test_a_lowered_budget_ends_nothing_and_grants_nothing",
    "the budget is lowered while it is used": f"{QUOTAS}::test_a_raised_budget_frees_who_waits_at_once"
    "_and_a_lowered_one_ends_nothing",
    "an ordinal is made anew without the hub": f"{FLEET}::test_what_is_made_anew_without_the_hub_keeps"
    "_what_was_granted",
    "the size changes amid a rollout": f"{FLEET}::test_under_a_full_quota_a_rollout_goes_on_and_never_takes_more",
    "a grant is mapped to another object": f"{QUOTAS}::test_scaling_down_frees_slots_for_who_waits",
    "no budget is not shown as that": f"{QUOTAS}::test_what_does_not_fit_waits_and_says_so_at_each_level",
    "two write the list of gates": f"{QUOTAS}::test_another_gate_is_left_alone",
    "what is made anew sees the claim of before": f"{QUOTAS}::test_a_recreate_keeps_its_grant_although_others_wait",
    # Lists, and what is deleted.
    "a namespace is deleted with its cell away": f"{FAULTS}::test_a_namespace_that_is_deleted_while_the_cell_is_away"
    "_waits_for_the_cell",
    "a list is empty after 410, or truncated": f"{FAULTS}::test_nothing_ends_because_a_list_is_empty_or_short",
    "a deployment is deleted and made again while the line is cut": f"{FAULTS}::test_what_is_deleted_and_made_again"
    "_while_the_cell_is_away_runs_anew",
    "a finalizer is forced off": f"{FAULTS}::test_what_was_let_go_of_by_force_goes_on_is_told_and_is_taken_over",
    "the cell is dead and its objects stay": f"{FAULTS}::test_a_cell_that_is_gone_for_good_leaves_nothing_at_the_hub",
    "a ghost stays after scaling down": f"{FLEET}::test_scaling_leaves_no_ghosts",
    # Reports.
    "reports come again, and in another order": f"{FLEET}::test_a_report_that_comes_again_or_late_does_nothing",
    "two reports of a cell are taken at once": f"{FAULTS}::test_reports_of_one_cell_are_taken_one_after_the_other",
    "a report of an earlier start comes late": f"{FAULTS}::test_a_late_report_of_an_earlier_start_is_not_taken"
    "_and_gives_no_rights",
    "a cell counts its reports from the beginning again": f"{FAULTS}::test_one_that_leads_again_without_a_new_start"
    "_is_heard_at_once",
    "the home of a cell is restored": f"{FAULTS}::test_a_cell_whose_home_was_put_back_is_heard",
    "a crash loop makes a storm of statuses": f"{FAULTS}::test_a_crash_loop_makes_few_reports_and_few_writes",
    "nobody watches the other side, so that a status is stale": f"{FLEET}::test_it_is_ready_at_the_hub_within_a_moment",
    "news wake another object than theirs": f"{FAULTS}::test_news_of_one_is_written_to_that_one_and_to_no_other",
    "a key is taken for a path": f"{FAULTS}::test_that_nothing_is_left_is_told_within_a_moment",
    # Cells that come and go.
    "the line is cut amid a drain": f"{FLEET}::test_a_cell_cut_off_while_it_drains_is_emptied_when_it_is_back",
    "all cells of a city are lost": f"{FAULTS}::test_when_all_cells_of_a_city_are_lost_that_is_said_and_it_goes_on"
    "_with_the_first_that_returns",
    "a Secret is rotated while the line is cut": f"{FLEET}::test_what_it_refers_to_travels_with_it"
    "_and_follows_its_changes",
    "the hub is restored to an older and to a newer state": f"{FAULTS}::test_a_hub_that_is_put_back"
    "_and_then_to_a_later_state_ends_nothing",
    "what is applied after a restore is older than what runs": f"{FAULTS}::test_what_is_changed_at_a_hub"
    "_that_was_put_back_is_taken",
    "all cells connect again at once": f"{SCALE}::test_many_cells_run_what_is_placed_and_come_back_together",
    "the name of a cluster is empty": f"{FAULTS}::test_a_hub_that_runs_nothing_runs_nothing_that_names_no_cell",
    "an instance names another cell": f"{WORKLOADS}::test_what_names_another_cell_is_not_run_here",
    "an owner has the uid of the other side": f"{FAULTS}::test_copies_belong_to_the_deployment_of_their_own_side",
    # Fencing.
    "the server is killed, and the keeper goes on": f"{FLEET}::test_a_server_that_is_killed_does_not_keep"
    "_what_is_moved_running",
    "nobody is there to end what has a lease": "tests/runtime/test_keeper_lease.py::test_what_nobody_extends_ends"
    "_without_a_server",
    "a machine is suspended past the lease": f"{FAULTS}::test_a_machine_that_was_suspended_past_its_lease"
    "_runs_nothing_of_what_was_moved",
    "a clock is set an hour back": f"{FAULTS}::test_a_lease_ends_in_time_though_the_clock_is_set",
    "times of a clock that was set": f"{FAULTS}::test_a_clock_that_is_set_holds_nothing_up",
    "the leader changes between revoking and creating": f"{FAULTS}::test_when_the_leader_goes_between_revoking"
    "_and_creating_the_next_one_goes_on",
    "two hubs lead": f"{FAULTS}::test_of_two_that_think_they_lead_only_the_one_that_does_gives_rights",
    "a lost cell returns as the hub moves": f"{FAULTS}::test_a_lost_cell_that_returns_as_the_hub_moves",
    "what runs becomes one that is moved": f"{FAULTS}::test_what_becomes_one_that_is_moved_is_fenced"
    "_from_when_its_cell_knows",
    "the cell has not heard that something is moved": f"{FAULTS}::test_a_cell_that_does_not_know_yet"
    "_that_something_is_moved_keeps_it",
    "containers and storage cannot be moved": f"{FAULTS}::test_what_cannot_be_ended_for_certain_is_not_moved",
    # Rollouts and placing.
    "a bad image, then a good one": f"{WORKLOADS}::test_what_is_broken_is_mended_by_applying_what_is_right",
    "scaling down waits behind a broken instance": f"{PLANNER}::test_a_broken_instance_does_not_block_scaling_down",
    "a broken instance blocks its own mending": f"{PLANNER}::test_a_broken_instance_does_not_block_its_own_replacement",
    "the restart of one city is undone by the next apply": f"{WORKLOADS}::test_a_restart_of_one_city_stays"
    "_and_a_later_apply_does_not_undo_it",
    "a-b and c have the name of a and b-c": f"{WORKLOADS}::test_names_of_deployments_tell_their_parts_apart",
    "two cells of a city double the replicas": f"{FLEET}::test_two_cells_of_a_city_divide_what_is_wanted",
    "none of some is said to be ready": "tests/control/instances/test_reasons.py::test_none_of_some_is_not_ready",
    "CPU is not measured": "tests/control/workloads/test_scaling.py::test_nothing_changes_where_less_than_half"
    "_was_measured",
    "nothing measures CPU at all": f"{WORKLOADS}::test_without_a_metric_to_read_it_stays_as_it_is",
    # Controllers.
    "time is counted from 1970": f"{TRAPS}::test_an_end_without_a_time_is_not_the_longest_ago_of_all",
    "a change in place rolls nothing": f"{TRAPS}::test_every_change_of_a_worker_rolls_what_runs",
    "there is no status yet": f"{TRAPS}::test_a_pool_without_a_status_is_like_a_new_one",
    "a status is lost": f"{WORKLOADS}::test_a_status_that_is_lost_is_told_again",
    "a status is written again and again": f"{WORKLOADS}::test_at_rest_nothing_is_written",
    "who does not lead never begins": f"{WORKLOADS}::test_another_leader_goes_on_without_a_restart_of_anything",
    "events may not be written": "tests/engine_loop/test_recorder.py::test_a_refusal_is_final",
    "anything of it at once, in any order": f"{STORM}::test_in_the_end_it_is_as_it_should_be",
}


@lru_cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("case", CASES)
def test_there_is_a_test_for_it(case: str) -> None:
    path, _, name = CASES[case].partition("::")
    assert name.startswith("test_") and name in names_in(path)
