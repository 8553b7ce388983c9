"""The promises of the packages, each with the tests that fail if it is broken.

A promise is a point of the list that a package's docstring opens with, and is named here by its first words. A file
without a test's name stands for all tests in it.
"""

from __future__ import annotations

TESTS_OF_PROMISES: dict[str, dict[str, tuple[str, ...]]] = {
    "api": {
        "*Declared once.*": (
            "tests/test_docs.py::test_the_reference_of_the_kinds_is_up_to_date",
            "tests/api/test_openapi.py::test_every_kind_has_its_schema_and_its_paths",
        ),
        "*Documented and bounded.*": (
            "tests/api/test_kinds.py::test_every_field_has_a_line_of_documentation",
            "tests/api/test_kinds.py::test_every_string_list_and_map_has_a_bound",
        ),
        "*One verdict.*": ("tests/api/test_form.py::test_random_objects_conform_as_the_walk_says",),
        "*The same on a cluster.*": (
            "tests/kubernetes/test_rules.py",
            "tests/api/test_cel_oracle.py::test_a_generated_rule_has_the_value_that_another_implementation_gives_it",
        ),
        "*Pure.*": ("tests/api/test_pure.py::test_the_kinds_import_no_other_layer_and_nothing_of_the_machine",),
    },
    "api/cel": {
        "A rule's text means": (
            "tests/api/test_cel_oracle.py::test_a_generated_rule_has_the_value_that_another_implementation_gives_it",
            "tests/api/test_cel.py::test_a_rule_has_the_value_that_cel_gives_it",
        ),
        "What the subset lacks": (
            "tests/api/test_cel.py::test_what_the_subset_leaves_out_is_refused_by_name",
            "tests/api/test_cel.py::test_what_is_no_rule_of_the_subset_is_refused_with_the_place",
        ),
        "A rule reads plain JSON": ("tests/api/test_cel.py::test_a_rule_leaves_the_object_as_it_was",),
        "A rule has a value": (
            "tests/api/test_cel.py::test_a_rule_without_a_value_says_why",
            "tests/api/test_cel_patterns.py::test_a_pattern_in_use_ends_on_texts_made_to_have_it_backtrack",
        ),
    },
    "api/templates": {
        "`{{ tasks.NAME.outputs.KEY }}`": (
            "tests/control/tasks/test_tasks.py::test_dependencies_come_first_and_their_outputs_are_there",
        ),
        "`{{ schedule.FIELD }}`": ("tests/schedules/test_told.py::test_a_template_has_the_tick_where_it_asks_for_it",),
        "`{{ item.FIELD }}`": ("tests/spawners/test_templating.py::test_fields_are_filled_in_anywhere_in_a_prompt",),
    },
    "cli": {
        "*Two outputs.*": (
            "tests/cli/test_get.py::test_results_are_on_standard_output_and_all_else_on_standard_error",
        ),
        "*Exit codes.*": (
            "tests/cli/test_wait.py::test_bad_usage_is_2",
            "tests/cli/test_tasks.py::test_bad_usage_of_run_is_2",
        ),
        "*Colour*": ("tests/cli/test_commands.py::test_colour_is_for_terminals_and_not_where_it_is_unwanted",),
        "*Checked first.*": (
            "tests/cli/test_apply.py::test_an_invalid_manifest_keeps_the_valid_ones_from_being_applied",
        ),
        "*Fast to start.*": ("tests/cli/test_commands.py::test_a_command_imports_no_more_than_it_needs",),
    },
    "client": {
        "*One behaviour.*": (
            "tests/conformance/test_create.py",
            "tests/conformance/test_get.py::test_a_typed_read_has_the_same_content",
        ),
        "*No second write.*": (
            "tests/client/test_calls.py::test_a_write_whose_connection_was_cut_is_never_sent_again",
        ),
        "*A complete cache.*": (
            "tests/conformance/test_cache.py::test_a_cache_follows_every_change",
            "tests/conformance/test_cache.py::test_when_history_is_gone_the_differences_are_told_once",
        ),
        "*Bounded.*": (
            "tests/client/test_connection.py::test_answers_are_bounded",
            "tests/client/test_connection.py::test_streams_are_bounded_and_do_not_take_the_place_of_requests",
        ),
    },
    "client/claims": {
        "The claim is released": ("tests/claims/test_sdk_endings.py::test_cancelled_at_any_moment_nothing_is_held",),
        "Its lease is renewed": (
            "tests/claims/test_sdk.py::test_it_renews_itself",
            "tests/claims/test_sdk.py::test_an_instance_that_is_gone_is_told_with_the_reason",
        ),
        "While the server is away": (
            "tests/claims/test_sdk_endings.py::test_a_server_that_starts_again_is_waited_for",
            "tests/claims/test_sdk_failures.py::test_a_command_is_never_asked_for_twice",
        ),
        "Data from an instance": (
            "tests/claims/test_sdk_failures.py::test_an_evil_tar_of_a_box_makes_nothing_outside",
            "tests/claims/test_sdk_failures.py::test_what_comes_without_end_is_cut_off",
        ),
    },
    "client/websocket": {
        "Messages arrive whole": (
            "tests/websocket/test_framing.py::test_messages_arrive_as_they_were_sent_however_they_are_cut",
            "tests/websocket/test_connection.py::test_what_was_sent_before_the_close_is_received_before_it_is_told",
        ),
        "Every buffer is bounded": (
            "tests/websocket/test_connection.py::test_who_does_not_receive_makes_the_other_end_wait",
        ),
        "A silent end": (
            "tests/websocket/test_connection.py::test_a_dead_end_is_noticed_in_time",
            "tests/websocket/test_connection.py::test_a_silent_but_living_end_is_kept",
        ),
        "Either end may close": (
            "tests/websocket/test_connection.py::test_it_can_be_ended_from_outside",
            "tests/websocket/test_connection.py::test_it_is_ended_when_its_time_is_over",
        ),
    },
    "control": {
        "*From what is there.*": (
            "tests/control/running/test_chaos.py::test_whatever_is_killed_in_the_end_exactly_what_is_wanted_runs_and_nothing_else_is_left",
        ),
        "*No second effect.*": (
            "tests/operators/test_hand_over.py::test_when_the_leader_is_killed_or_stopped_another_takes_over_and_nothing_happens_twice",
        ),
        "*One controller a kind.*": ("tests/control/test_table.py::test_each_lane_and_each_kind_has_one_controller",),
        "*One builder of a task's states.*": ("tests/control/tasks/test_states.py",),
        "*Nothing is polled*": (
            "tests/control/running/test_traps.py::test_the_end_of_a_process_is_seen_without_anybody_asking",
        ),
    },
    "control/cells": {
        "*Autonomy.*": (
            "tests/control/cells/test_fleet.py::test_without_its_hub_a_cell_goes_on_and_what_it_missed_comes_later",
        ),
        "*Eventual agreement.*": ("tests/control/cells/test_storm.py::test_in_the_end_it_is_as_it_should_be",),
        "*No double.*": (
            "tests/control/cells/test_fleet.py::test_a_lost_cell_ends_what_is_moved_before_it_runs_elsewhere",
            "tests/control/cells/test_storm.py::test_without_the_fence_something_acts_twice",
        ),
        "*Own cell only.*": ("tests/attacks/test_cells.py::test_to_read_and_report_for_another_cell",),
    },
    "control/claims": {
        "*Nothing is left.*": (
            "tests/control/claims/test_opening.py::test_whoever_goes_at_any_instant_leaves_nothing_behind",
        ),
        "*Once.*": ("tests/claims/test_gateway.py::test_asking_again_under_the_same_name_is_the_same_as_asking_once",),
        "*This run.*": (
            "tests/control/claims/test_options.py::test_what_was_started_for_a_hold_and_ends_ends_the_claim",
        ),
        "*As new.*": (
            "tests/control/claims/test_reset.py::test_a_runner_makes_it_as_new_before_anybody_else_has_it",
            "tests/control/claims/test_reset.py::test_one_without_a_runner_is_replaced_with_its_storage",
        ),
    },
    "control/functions": {
        "*Least loaded.*": (
            "tests/functions/test_planning.py::test_a_call_goes_to_the_worker_that_has_fewest",
            "tests/functions/test_planning.py::test_those_that_wait_are_served_in_the_order_in_which_they_came",
        ),
        "*At most once.*": (
            "tests/functions/test_cli.py::test_a_call_that_may_have_begun_is_not_made_again",
            "tests/functions/test_planning.py::test_a_call_that_was_refused_is_first",
        ),
        "*As many workers as needed.*": (
            "tests/functions/test_planning.py::test_workers_are_wanted_at_once_and_given_up_one_by_one",
        ),
        "*No gap between versions.*": (
            "tests/functions/test_scaling.py::test_a_new_version_takes_over_under_load_and_drops_nothing",
            "tests/functions/test_scaling.py::test_a_version_that_cannot_be_loaded_takes_nothing_away",
        ),
        "*Recorded.*": (
            "tests/functions/test_calls.py::test_every_call_is_written_down_as_a_task_with_its_result",
            "tests/functions/test_calls.py::test_only_the_last_calls_are_kept",
        ),
    },
    "control/holds": {
        "*Together.*": (
            "tests/control/holds/test_together.py::test_claims_of_one_turn_are_bound_together_and_released_together",
        ),
        "*At its place.*": (
            "tests/control/holds/test_binder.py::test_a_claim_waits_when_its_instance_goes_before_its_hold_is_written",
            "tests/control/claims/test_weak_points.py::test_one_that_has_to_try_again_keeps_its_place_and_does_not_spin",
        ),
        "*Once.*": (
            "tests/control/holds/test_cut_connections.py::test_tasks_run_once_though_an_answer_is_lost",
            "tests/control/holds/test_cut_connections.py::test_claims_come_and_go_though_an_answer_is_lost",
        ),
        "*By the leader.*": (
            "tests/control/holds/test_binder.py::test_a_claim_keeps_its_place_while_this_process_does_not_lead",
        ),
    },
    "control/instances": {
        "*Repairable plans.*": ("tests/control/instances/test_any_interleaving.py",),
        "*Stable names.*": (
            "tests/control/instances/test_names.py::test_names_are_the_same_in_every_release",
            "tests/control/instances/test_names.py::test_no_two_instances_share_a_name_and_each_is_a_label",
            "tests/control/instances/test_template.py::test_the_hash_is_the_same_in_every_release",
        ),
        "*Restarts with a pause.*": (
            "tests/control/instances/test_lifecycle.py::test_after_the_second_crash_in_a_row_there_is_a_pause",
            "tests/control/instances/test_lifecycle.py::test_an_end_that_is_no_fault_of_its_own_has_no_pause_and_is_not_remembered",
        ),
        "*One table of reasons.*": (
            "tests/control/instances/test_reasons.py::test_each_reason_is_in_the_table_once_and_the_bands_follow_each_other",
            "tests/control/instances/test_reasons.py::test_a_level_further_up_tells_the_same_reason",
        ),
    },
    "control/making": {
        "*Idempotent.*": (
            "tests/control/making/test_conformance.py::test_to_make_twice_makes_once",
            "tests/control/making/test_conformance.py::test_another_maker_adopts_what_is_there_and_is_told_of_it",
        ),
        "*No surprise restarts.*": (
            "tests/control/making/test_conformance.py::test_what_has_ended_stays_ended_until_a_start_is_ordered",
        ),
        "*Every change is reported*": (
            "tests/control/making/test_conformance.py::test_an_end_is_told_with_its_code",
            "tests/control/making/test_conformance.py::test_it_is_unready_until_its_probe_passes",
        ),
        "*An end is an end.*": (
            "tests/control/making/test_conformance.py::test_an_end_that_takes_its_time_is_told_when_it_is_over",
            "tests/control/making/test_conformance.py::test_when_an_end_is_over_nothing_is_alive_and_nothing_is_known",
        ),
    },
    "control/making/pods": {
        "An instance has one Pod": (
            "tests/pods/test_pods.py::test_a_namesake_that_is_not_ours_is_left_alone_and_named",
        ),
        "The value of a Secret": (
            "tests/pods/test_pods.py::test_a_pod_has_no_token_no_privileges_and_no_value_of_a_secret",
        ),
        "A Pod is deleted": (
            "tests/pods/test_pods.py::test_a_silent_node_is_said_and_its_pod_is_not_deleted",
            "tests/pods/test_pods.py::test_an_instance_on_a_silent_node_does_not_go_before_its_pod",
        ),
        "What a Pod cannot give": ("tests/pods/test_pods.py::test_what_a_pod_cannot_give_is_refused_with_the_reason",),
    },
    "control/quotas": {
        "*Never over.*": (
            "tests/control/quotas/test_granting.py::test_never_more_than_the_budget_is_granted_anew",
            "tests/control/quotas/test_quotas.py::test_two_controllers_that_both_think_they_lead_do_not_grant_twice",
        ),
        "*Nothing is ended.*": (
            "tests/control/quotas/test_quotas.py::test_a_raised_budget_frees_who_waits_at_once_and_a_lowered_one_ends_nothing",
        ),
        "*In order.*": (
            "tests/control/quotas/test_granting.py::test_who_has_waited_longest_gets_what_fits_and_nobody_overtakes",
            "tests/control/quotas/test_granting.py::test_what_is_more_than_the_whole_budget_does_not_stand_in_the_way",
        ),
        "*Crash-safe.*": (
            "tests/control/quotas/test_quotas.py::test_a_crash_between_the_ledger_and_what_follows_is_made_good",
        ),
    },
    "control/scaling": {
        "*Growth at once.*": (
            "tests/control/scaling/test_planner.py::test_it_grows_at_once_by_all_that_is_lacking",
            "tests/control/scaling/test_planner.py::test_each_that_waits_needs_one_besides_those_that_are_held",
        ),
        "*Shrinking late, and in a batch.*": (
            "tests/control/scaling/test_any_load.py::test_a_load_that_comes_and_goes_makes_and_ends_nothing",
            "tests/control/scaling/test_planner.py::test_what_was_needed_meanwhile_stays",
        ),
        "*Bounds.*": ("tests/control/scaling/test_planner.py::test_the_bounds_hold_whatever_the_demand",),
        "*Failures do not breed.*": (
            "tests/control/scaling/test_planner.py::test_one_that_crashes_has_a_stand_in_while_another_is_at_work",
            "tests/control/scaling/test_autoscaler.py::test_what_cannot_start_gets_no_stand_in",
        ),
        "*A restart loses nothing.*": (
            "tests/control/scaling/test_planner.py::test_of_what_is_there_at_the_beginning_nothing_goes_before_its_time",
        ),
    },
    "control/schedules": {
        "*At most one Task a tick.*": (
            "tests/control/schedules/test_planner.py::test_no_tick_fires_twice_or_before_its_time_whatever_happens",
            "tests/schedules/test_once.py::test_two_processes_that_lead_in_turn_fire_each_tick_once",
        ),
        "*Debian's cron.*": (
            "tests/api/test_cron.py::test_where_clocks_change_it_is_as_debian_has_it",
            "tests/api/test_cron.py::test_days_are_as_debian_has_them",
        ),
        "*Missed ticks.*": (
            "tests/schedules/test_missed.py::test_missed_ticks_are_made_up_for_as_the_schedule_says",
            "tests/control/schedules/test_planner.py::test_what_catch_up_promises_is_kept_through_any_downtime",
        ),
        "*In order.*": ("tests/schedules/test_clock.py::test_a_clock_that_is_set_back_fires_nothing_twice",),
    },
    "control/spawners": {
        "*One Task an item*": (
            "tests/spawners/test_spawner.py::test_an_item_whose_task_was_pruned_is_not_made_again",
            "tests/spawners/test_hooks.py::test_a_redelivery_of_what_was_pruned_makes_no_second_task",
        ),
        "*Every delivery is answered*": (
            "tests/spawners/test_hooks.py::test_a_delivery_becomes_a_task_that_belongs_to_its_spawner",
            "tests/spawners/test_hooks.py::test_a_task_that_the_server_does_not_take_is_told",
        ),
        "*Items are data.*": (
            "tests/spawners/test_templating.py::test_an_item_cannot_choose_what_a_task_refers_to",
            "tests/spawners/test_templating.py::test_an_item_cannot_ask_for_the_result_of_another_task",
        ),
        "*Limits hold.*": ("tests/spawners/test_hooks.py::test_many_at_once_do_not_get_past_the_limit",),
    },
    "control/tasks": {
        "*Written first.*": (
            "tests/control/tasks/test_tasks.py::test_a_runner_is_sent_an_attempt_only_after_it_is_written_that_the_task_runs_there",
        ),
        "*At most once.*": (
            "tests/tasks/test_chaos.py::test_whatever_is_killed_every_task_ends_and_each_attempt_did_its_work_at_most_once",
        ),
        "*At its place.*": ("tests/control/tasks/test_tasks.py::test_a_task_that_lost_its_worker_has_its_place_again",),
        "*One of a branch.*": ("tests/control/tasks/test_tasks.py::test_one_branch_is_one_tasks_at_a_time",),
    },
    "control/workloads": {
        "*Stable.*": (
            "tests/control/workloads/test_placing.py::test_placing_is_stable_bounded_and_complete",
            "tests/control/workloads/test_placing.py::test_a_new_cell_and_another_weight_move_nothing",
        ),
        "*Never more than wanted.*": (
            "tests/control/workloads/test_placing.py::test_two_cells_of_a_city_divide_what_is_wanted",
            "tests/control/workloads/test_workloads.py::test_two_that_want_the_last_room_do_not_both_have_it",
        ),
        "*Explained.*": (
            "tests/control/workloads/test_placing.py::test_what_finds_no_room_has_a_reason",
            "tests/control/workloads/test_workloads.py::test_a_cell_that_is_full_takes_what_fits_and_the_rest_when_there_is_room",
        ),
        "*One reason.*": ("tests/control/workloads/test_workloads.py::test_the_reason_is_told_at_each_level",),
    },
    "engine": {
        "*Dependency-driven.*": ("tests/engine/test_contract.py::test_dependency_driven",),
        "*Never twice at once.*": ("tests/engine/test_contract.py::test_never_twice_at_once",),
        "*No lost wake-up*": ("tests/engine/test_contract.py::test_no_lost_wake_up",),
        "*Fair and bounded.*": ("tests/engine/test_contract.py::test_fair_and_bounded",),
        "*Always an outcome.*": ("tests/engine/test_contract.py::test_always_an_outcome",),
        "*Waiters learn of the end.*": (
            "tests/engine/test_fixpoint.py::test_who_waits_for_a_node_that_ends_skipped_is_woken_and_says_so",
        ),
        "*A structural end.*": ("tests/engine/test_contract.py::test_a_structural_end",),
        "*A budget.*": (
            "tests/engine/test_drain.py::test_a_node_that_wakes_itself_stops_at_its_budget_with_its_name",
            "tests/engine/test_reruns.py::test_each_run_has_a_budget_of_its_own",
        ),
        "*Serving.*": ("tests/engine/test_healing.py::test_each_of_many_parked_nodes_gets_its_turn_to_be_looked_at",),
        "*Stingy.*": ("tests/engine/test_contract.py::test_stingy",),
    },
    "manifest": {
        "*All problems.*": (
            "tests/manifest/test_load.py::test_all_problems_are_reported_at_once_each_at_its_place",
            "tests/manifest/test_load.py::test_the_problems_of_all_files_are_reported_together",
        ),
        "*A server's checks.*": ("tests/manifest/test_load.py::test_what_loads_has_no_field_that_a_server_refuses",),
        "*Bounded.*": (
            "tests/manifest/test_load.py::test_the_size_of_a_file_is_bounded",
            "tests/manifest/test_load.py::test_depth_is_bounded",
            "tests/manifest/test_load.py::test_what_aliases_expand_to_is_bounded",
        ),
        "*All or nothing.*": ("tests/deploy/test_traps.py::test_nothing_is_written_when_one_object_is_refused",),
    },
    "pools": {
        "*Nothing waits that could be served.*": (
            "tests/pools/test_contract.py::test_nothing_waits_that_could_be_served",
        ),
        "*In order.*": ("tests/pools/test_contract.py::test_in_order",),
        "*Never twice.*": ("tests/pools/test_contract.py::test_never_twice",),
        "*Not behind a long one.*": ("tests/pools/test_contract.py::test_not_behind_a_long_one",),
        "*Cancelled at any instant.*": ("tests/pools/test_contract.py::test_cancelled_at_any_instant",),
        "*Forgets nothing, keeps nothing.*": (
            "tests/pools/test_contract.py::test_forgets_nothing",
            "tests/pools/test_contract.py::test_keeps_nothing",
        ),
    },
    "registry": {
        "*As in Kubernetes.*": (
            "tests/kubernetes/test_random.py",
            "tests/conformance/test_update.py",
        ),
        "*All or nothing.*": ("tests/conformance/test_batch.py::test_a_batch_with_one_refusal_writes_nothing",),
        "*No lost races.*": (
            "tests/registry/test_durability.py::test_writers_of_one_object_never_lose_a_race_within_the_process",
        ),
        "*Answers are durable.*": (
            "tests/registry/test_durability.py::test_an_answer_waits_until_the_write_is_durable",
            "tests/registry/test_durability.py::test_a_refusal_waits_until_what_it_rests_on_is_durable",
        ),
        "*Encoded once.*": (
            "tests/registry/test_durability.py::test_objects_are_answered_and_listed_as_the_bytes_that_are_stored",
        ),
    },
    "runtime": {
        "*One owner.*": (
            "tests/runtime/test_keeper_lives.py::test_servers_that_come_at_the_same_time_find_one_keeper",
            "tests/runtime/test_keeper_trees.py::test_what_a_program_leaves_behind_ends_with_it",
        ),
        "*Found again.*": (
            "tests/runtime/test_keeper_lives.py::test_children_survive_the_death_of_the_server_and_are_adopted_with_their_history",
        ),
        "*Started once.*": ("tests/runtime/test_keeper_children.py::test_repeating_a_start_has_no_second_effect",),
        "*Nothing is pretended.*": (
            "tests/runtime/test_keeper_children.py::test_limits_are_held_or_said_to_be_unmet",
            "tests/attacks/test_privileges.py::test_to_be_run_on_the_host_because_it_cannot_isolate",
        ),
        "*Bounded.*": (
            "tests/attacks/test_disk.py::test_to_fill_the_disk_with_logs_of_tasks",
            "tests/runtime/test_archives.py::test_an_item_has_a_bound",
        ),
    },
    "runtime/code": {
        "*Whole.*": (
            "tests/runtime/test_code_folders.py::test_a_folder_whose_filling_was_killed_is_not_there_and_is_collected",
        ),
        "*Once.*": ("tests/functions/test_code.py::test_packages_are_installed_once_for_all_who_require_them",),
        "*Checked.*": (
            "tests/functions/test_code.py::test_code_that_was_changed_on_the_disk_is_not_unpacked",
            "tests/functions/test_code.py::test_nothing_is_unpacked_outside_of_its_folder",
        ),
        "*Bounded.*": ("tests/attacks/test_builds.py",),
        "*No login leaks.*": (
            "tests/functions/test_packages.py::test_what_is_built_from_source_never_sees_the_login",
            "tests/functions/test_packages.py::test_the_login_for_an_index_is_used_and_shown_nowhere",
        ),
    },
    "runtime/container": {
        "*Tried, not assumed.*": (
            "tests/runtime_container/test_availability.py::test_a_default_oci_runtime_that_does_not_work_is_passed_over",
        ),
        "*Plain data.*": (
            "tests/runtime_container/test_container.py::test_its_output_and_its_exit_code_are_those_of_the_command",
        ),
        "*Asked to end.*": (
            "tests/runtime_container/test_container.py::test_it_is_asked_to_end_with_the_signal_that_its_image_wants",
            "tests/runtime_container/test_container.py::test_a_signal_to_the_command_is_the_containers",
        ),
        "*No secret in arguments.*": (
            "tests/runtime_container/test_environment.py::test_no_value_is_an_argument_of_any_process",
        ),
        "*Removed completely.*": (
            "tests/runtime_container/test_removal.py::test_one_that_was_killed_half_way_leaves_nothing_either",
        ),
        "*Pulled once.*": (
            "tests/runtime_container/test_images.py::test_many_that_want_an_image_wait_for_one_pull",
            "tests/runtime_container/test_images.py::test_a_pull_that_takes_too_long_is_ended",
        ),
    },
    "runtime/egress": {
        "*No other way.*": (
            "tests/attacks/test_network.py::test_to_leave_the_proxy_behind",
            "tests/attacks/test_network.py::test_to_reach_the_hosts_loopback_beside_the_proxy",
        ),
        "*One per sandbox.*": ("tests/attacks/test_network.py::test_the_proxy_goes_on_under_the_next_server",),
        "*Checked, then dialled.*": (
            "tests/attacks/test_network.py::test_to_have_the_proxy_dial_the_host_or_metadata",
        ),
        "*One answer.*": ("tests/attacks/test_network.py::test_to_learn_from_the_answer_what_is_there",),
        "*Bounded.*": ("tests/attacks/test_network.py::test_to_wear_the_proxy_out",),
    },
    "runtime/files": {
        "*Inside.*": ("tests/files/test_escape.py::test_no_path_and_no_link_leads_to_a_file_of_the_host",),
        "*Below the folder.*": (
            "tests/attacks/test_trees.py::test_to_open_a_folder_of_the_host_by_links_that_lead_through_links",
        ),
        "*Whole.*": (
            "tests/files/test_escape.py::test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through",
        ),
        "*Checked trees.*": ("tests/files/test_one_rule.py::test_what_one_refuses_all_refuse",),
        "*Regular files only*": ("tests/files/test_gateway.py::test_what_is_no_file_is_not_read_and_holds_nobody_up",),
        "*Cancelled cleanly.*": (
            "tests/files/test_container.py::test_who_cancels_leaves_neither_half_a_file_nor_a_process",
            "tests/files/test_gateway.py::test_a_client_that_goes_while_it_unpacks_leaves_no_half_of_a_file",
        ),
    },
    "runtime/keeper": {
        "*Owned.*": (
            "tests/runtime/test_keeper_children.py::test_a_child_leads_its_own_session_and_has_default_signals",
            "tests/runtime/test_keeper_children.py::test_no_descriptor_but_the_three_streams_is_inherited",
            "tests/runtime/test_keeper_children.py::test_the_environment_is_exactly_what_was_given",
        ),
        "*Verified end.*": ("tests/runtime/test_keeper_trees.py::test_stopping_ends_daemonised_grandchildren",),
        "*Nothing outlives the keeper.*": (
            "tests/runtime/test_keeper_trees.py::test_when_the_keeper_is_killed_its_children_die_and_the_next_one_says_so",
        ),
        "*No exit is lost.*": (
            "tests/runtime/test_keeper_lives.py::test_exits_are_on_disk_before_anybody_hears_of_them",
        ),
        "*Idempotent.*": (
            "tests/runtime/test_keeper_children.py::test_repeating_a_start_has_no_second_effect",
            "tests/runtime/test_keeper_children.py::test_a_late_stop_of_an_earlier_run_does_nothing",
        ),
        "*Not for ever.*": (
            "tests/runtime/test_keeper_lives.py::test_without_a_server_the_keeper_stops_everything_and_ends",
        ),
        "*Closed.*": (
            "tests/runtime/test_closed_addresses.py::test_what_is_closed_is_reached_by_no_protocol_and_everything_else_is",
            "tests/runtime/test_closed_addresses.py::test_where_nothing_can_be_closed_the_record_says_so",
        ),
        "*Bounded.*": (
            "tests/runtime/test_keeper_socket.py::test_more_connections_than_allowed_are_closed",
            "tests/runtime/test_keeper_children.py::test_a_log_is_rotated_within_its_bounds",
        ),
    },
    "runtime/probes": {
        "*Ready*": (
            "tests/probes/test_probes.py::test_it_is_ready_after_the_first_probe_that_passes",
            "tests/probes/test_probes.py::test_it_is_unready_after_as_many_failures_as_the_threshold_says_and_ready_again_after_one_success",
        ),
        "*Alive*": (
            "tests/probes/test_probes.py::test_a_container_that_is_not_alive_must_be_restarted_and_its_next_run_is_judged_anew",
        ),
        "*Not its fault.*": (
            "tests/probes/test_attempts.py::test_that_rota_has_no_descriptor_left_says_nothing_of_the_container",
            "tests/probes/test_state.py::test_what_could_not_be_tried_counts_for_nothing_but_is_told",
        ),
        "*One at a time*": (
            "tests/probes/test_probes.py::test_one_probe_of_a_container_is_made_at_a_time",
            "tests/probes/test_probes.py::test_the_probes_of_a_thousand_are_spread",
        ),
        "*Quiet.*": ("tests/probes/test_probes.py::test_only_a_verdict_that_changes_is_told",),
    },
    "runtime/runner": {
        "*Run once.*": ("tests/runner/test_crashes.py::test_a_job_is_run_at_most_once_and_has_one_outcome",),
        "*No outcome is lost.*": (
            "tests/runner/test_jobqueue.py::test_an_outcome_is_on_disk_before_it_is_sent",
            "tests/runner/test_journal.py::test_what_has_ended_is_pending_until_it_is_acknowledged",
        ),
        "*As new.*": (
            "tests/workers/test_reset.py::test_nothing_of_it_is_left",
            "tests/workers/test_restart.py::test_a_runner_that_is_killed_is_followed_by_another_with_a_clean_tree",
        ),
        "*Without the server*": (
            "tests/workers/test_worker.py::test_without_its_gateway_it_goes_on_and_says_everything_when_it_is_back",
        ),
        "*The agent is not trusted.*": (
            "tests/workers/test_box.py::test_whoever_talks_rubbish_is_as_good_as_gone",
            "tests/workers/test_box.py::test_an_agent_that_does_not_answer_is_not_waited_for_for_ever",
        ),
        "*Bounded.*": (
            "tests/runner/test_jobqueue.py::test_a_job_beyond_the_bound_is_returned",
            "tests/runner/test_tasklog.py::test_it_never_has_more_than_its_bound",
        ),
    },
    "runtime/sandbox": {
        "*Sees little.*": (
            "tests/runtime_sandbox/test_view.py::test_only_the_named_parts_of_the_disk_are_there",
            "tests/runtime_sandbox/test_view.py::test_it_sees_no_process_of_the_host",
        ),
        "*Writes little.*": (
            "tests/runtime_sandbox/test_escape.py::test_nothing_outside_its_storage_and_tmp_can_be_written",
        ),
        "*Gains nothing.*": (
            "tests/runtime_sandbox/test_escape.py::test_it_has_no_capability_and_can_gain_none",
            "tests/runtime_sandbox/test_escape.py::test_a_user_namespace_cannot_be_made_by_any_call",
        ),
        "*Its own user.*": ("tests/runtime_sandbox/test_escape.py::test_its_uid_is_its_own_and_it_is_in_no_group",),
        "*Its own network.*": (
            "tests/runtime_sandbox/test_escape.py::test_without_network_there_is_loopback_and_no_way_further",
        ),
        "*Ends as a whole*": ("tests/runtime_sandbox/test_end.py::test_everything_dies_with_whoever_started_it",),
    },
    "runtime/workspace": {
        "*Mirror.*": (
            "tests/workspace/test_mirror.py::test_many_that_want_it_at_once_make_one_fetch",
            "tests/workspace/test_mirror.py::test_while_its_origin_is_away_the_old_one_is_used",
        ),
        "*Own objects.*": ("tests/workspace/test_prepare.py::test_its_objects_are_its_own",),
        "*Current.*": (
            "tests/workers/test_current.py::test_the_first_task_of_a_warm_worker_runs_on_what_the_branch_is_now",
            "tests/workers/test_current.py::test_where_the_origin_is_away_the_task_runs_on_what_there_is_and_says_so",
        ),
        "*Reset.*": (
            "tests/workspace/test_reset.py::test_a_mount_in_the_storage_is_not_entered_and_means_a_replacement",
            "tests/workers/test_reset.py::test_nothing_of_it_is_left",
        ),
        "*Network.*": (
            "tests/workspace/test_network.py::test_git_reaches_what_is_on_the_list_through_the_proxy",
            "tests/workspace/test_network.py::test_what_is_not_allowed_is_not_tried",
        ),
        "*Credentials*": (
            "tests/workspace/test_credentials.py::test_a_password_is_in_no_argument_no_mirror_and_no_tree",
            "tests/workspace/test_credentials.py::test_credentials_are_not_given_to_a_host_that_one_is_sent_to",
        ),
    },
    "server": {
        "*Kubernetes' API.*": ("tests/server/test_objects.py::test_the_verbs_answer_with_the_codes_of_kubernetes",),
        "*Closed.*": ("tests/server/test_access.py::test_nothing_but_health_is_open_without_a_credential",),
        "*Bounded.*": (
            "tests/server/test_limits.py",
            "tests/attacks/test_memory.py::test_to_fill_the_memory_with_bodies_that_never_end",
        ),
        "*Recorded.*": ("tests/server/test_access.py::test_every_write_leaves_an_audit_line_without_its_content",),
    },
    "store": {
        "*Revisions increase.*": (
            "tests/store/test_compaction.py::test_compacting_an_idle_log_or_emptying_it_never_makes_revisions_go_back",
            "tests/store/test_backup.py::test_a_restored_store_has_the_backups_objects_and_jumps_ahead_of_every_revision",
        ),
        "*A commit is atomic.*": (
            "tests/store/test_commit.py::test_writes_of_one_commit_get_consecutive_revisions_and_are_seen_together",
        ),
        "*An answer is durable.*": (
            "tests/store/test_failures.py::test_nothing_is_answered_or_visible_before_it_is_durable",
            "tests/store/test_commit.py::test_a_conflict_with_a_write_on_its_way_is_answered_after_that_write",
        ),
        "*Reads are from memory*": (
            "tests/store/test_list.py::test_a_listing_is_in_the_order_of_the_keys",
            "tests/store/test_list.py::test_writes_on_their_way_are_in_no_listing",
        ),
        "*A watch misses nothing and repeats nothing.*": (
            "tests/store/test_watch.py::test_a_watch_resumes_from_any_revision",
            "tests/store/test_crash.py::test_nothing_acknowledged_is_lost_and_no_event_is_missed_or_repeated_whenever_killed",
        ),
        "*Everything is bounded*": (
            "tests/store/test_commit.py::test_a_store_with_too_much_on_its_way_says_so_and_room_waits",
            "tests/store/test_log.py::test_the_history_of_all_buckets_together_is_bounded",
        ),
        "*A full or failing disk passes.*": (
            "tests/store/test_failures.py::test_a_full_database_takes_writes_again_when_there_is_space",
        ),
        "*Any other failed commit stops the store.*": (
            "tests/store/test_failures.py::test_a_failed_commit_stops_everything_and_says_what_to_do",
        ),
    },
    "testing": {
        "*The real control plane.*": (
            "tests/testing/test_work.py::test_a_server_a_fleet_and_a_project_are_wired_by_the_same_class",
        ),
        "*Virtual time.*": ("tests/testing/test_time.py::test_a_month_has_a_run_for_each_tick_at_its_time",),
        "*Handlers are called in this process*": (
            "tests/testing/test_calls.py::test_a_handler_has_the_variables_of_its_function",
            "tests/testing/test_calls.py::test_a_command_succeeds_at_once_unless_a_test_says_otherwise",
        ),
        "*Repeatable.*": ("tests/testing/test_work.py::test_the_same_project_is_the_same_again",),
        "*Nothing is left.*": (
            "tests/testing/test_project.py::test_nothing_is_left_of_it",
            "tests/testing/test_project.py::test_nothing_is_left_of_the_async_form",
        ),
    },
    "trees": {
        "*One parser*": ("tests/files/test_one_rule.py::test_what_one_takes_all_take_alike",),
        "*Bounded.*": (
            "tests/claims/test_sdk_trees.py::test_members_and_bytes_are_bounded",
            "tests/claims/test_sdk_trees.py::test_what_is_packed_is_bounded",
        ),
        "*No way through a link.*": ("tests/claims/test_sdk_trees.py::test_nothing_is_unpacked_through_a_link",),
        "*One writer*": ("tests/deploy/test_packing.py::test_links_within_are_kept_and_links_out_are_refused",),
    },
}
