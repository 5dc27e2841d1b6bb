"""What a change is not held up for: tests that ``.ci/nightly`` runs, and ``.ci/run`` does not.

A test belongs here if it takes seconds and a quicker one holds the same rule, or if it needs
what few machines have. Places are below ``tests``; a folder stands for all that is in it.
"""

from collections.abc import Mapping

NIGHTLY = (
    "acceptance",  # each command, killed and misled in every way
    "integration/pipeline",  # Spark
    "strangers",  # vendors' clients in Java, Node and Python
)

EACH_CHANGE: Mapping[str, tuple[str, ...]] = {
    "acceptance/test_pipeline_command.py": (
        "test_killed_at_any_moment_each_change_is_in_the_tables_exactly_once",
    ),
    "integration/pipeline/test_eras.py": (),
    "integration/pipeline/test_source.py": ("test_a_stream_goes_on_through_a_new_era",),
    "integration/pipeline/test_tables.py": (
        "test_every_change_is_appended_and_the_latest_of_each_item_is_kept",
    ),
}
"""What is run for each change all the same: tests of a file, or all of it."""


def is_nightly(node: str) -> bool:
    """Say whether a test, as pytest names it, waits for the night."""
    path, _, test = node.removeprefix("tests/").partition("::")
    if not path.startswith(tuple(f"{x}/" for x in NIGHTLY)):
        return False
    names = EACH_CHANGE.get(path)
    return names is None or bool(names and test.partition("[")[0] not in names)
