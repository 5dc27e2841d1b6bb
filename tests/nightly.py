"""What a change is not held up for: tests that ``.ci/nightly`` runs, and ``.ci/run`` does not.

A test belongs here if it takes seconds and a quicker one holds the same rule, or if it needs
what few machines have. Places are below ``tests``: a folder or a file.
"""

from collections.abc import Mapping

NIGHTLY = (
    "acceptance",  # each command, killed and misled in every way
    "integration/deploy/test_alerts.py",  # promtool
    "integration/deploy/test_chart_values.py",  # Helm
    "integration/deploy/test_kubernetes.py",  # Helm
    "integration/pipeline",  # Spark
    "strangers",  # Java's processor, KEDA's scaler in Go
)

EACH_CHANGE: Mapping[str, tuple[str, ...]] = {
    "acceptance/test_brokers.py": ("test_a_host_follows_a_collection_through_an_era",),
    "acceptance/test_cosmos_commands.py": (
        "test_check_tells_what_is_wrong_and_ends_with_2_until_it_is_mended",
    ),
    "acceptance/test_cosmos_fleet.py": (
        "test_a_fleet_survives_that_a_host_and_then_the_endpoint_are_killed",
    ),
    "acceptance/test_embedding.py": (
        "test_an_aiohttp_program_serves_and_stops_the_host_in_it",
    ),
    "acceptance/test_eventlog_processes.py": (
        "test_what_was_acknowledged_outlives_killed_writers_and_no_batch_is_torn",
    ),
    "acceptance/test_emulator_wheel.py": (
        "test_alone_it_has_a_command_and_gives_pytest_an_account",
    ),
    "acceptance/test_failures.py": (
        "test_the_ranges_of_a_killed_host_go_on_elsewhere",
        "test_a_frozen_host_that_wakes_up_delivers_nothing_under_a_lease_that_is_over",
        "test_writes_whose_answers_are_lost_lose_nothing",
    ),
    "acceptance/test_processes.py": (
        "test_a_killed_host_is_started_again_and_the_leases_are_whole",
    ),
    "acceptance/test_operating.py": (
        "test_a_paused_range_is_let_go_of_shown_with_its_reason_and_taken_again",
        "test_a_reset_says_what_it_means_asks_and_delivers_again",
        "test_dead_letters_are_listed_shown_and_replayed_once_the_cause_is_mended",
        "test_a_mistake_is_told_and_changes_nothing",
        "test_positions_are_saved_given_back_and_carried_to_another_kind_of_container",
    ),
    "acceptance/test_packaging.py": ("test_it_has_every_file_of_our_packages_and_no_other",),
    "acceptance/test_produce.py": ("test_what_was_produced_comes_out_of_a_host_complete",),
    "acceptance/test_run.py": (
        "test_sigterm_releases_the_leases_and_keeps_their_continuations",
        "test_endpoints_answer_at_the_address_that_the_member_record_tells",
        "test_a_process_ends_though_threads_of_user_code_are_stuck",
    ),
    "acceptance/test_stop_signals.py": ("test_a_hang_up_is_an_orderly_stop",),
    "integration/pipeline/test_tables.py": (
        "test_every_change_is_appended_once_and_the_latest_of_each_item_is_kept",
    ),
}
"""The tests of a file that are run for each change all the same."""


def is_nightly(node: str) -> bool:
    """Say whether a test, as pytest names it, waits for the night."""
    path, _, test = node.removeprefix("tests/").partition("::")
    if not path.startswith(tuple(x if x.endswith(".py") else f"{x}/" for x in NIGHTLY)):
        return False
    return test.partition("[")[0] not in EACH_CHANGE.get(path, ())
