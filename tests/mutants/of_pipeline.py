"""Breaks of how pipelines are run and stopped, and of observers on Spark."""

from .mutant import Mutant

_RUNNING = "tests/unit/pipeline/test_supervisor.py"
_OBSERVING = "tests/unit/pipeline/test_observer_sink.py"
_BACKLOG = "tests/integration/pipeline/test_backlog.py"
_COMMANDS = "tests/unit/pipeline/test_commands.py"
_TABLES = "tests/unit/pipeline/test_tables.py"
_PROGRESS = "tests/unit/pipeline/test_progress.py"

PIPELINE = (
    Mutant(
        name="what lies before the border of a scan is read too",
        file="pipeline/source/backlog.py",
        before="AND sequence > {x.after} AND",
        after="AND sequence > {x.after - 1} AND",
        rule=0,
        tests=(
            f"{_BACKLOG}::test_any_two_points_have_the_same_changes_between_them_either_way",
        ),
    ),
    Mutant(
        name="a segment of bytes is read as text",
        file="pipeline/source/eventlog_reader.py",
        before="            if not x.segment.file.is_text:",
        after="            if x.segment.file.size < 0:",
        rule=0,
        tests=(f"{_BACKLOG}::test_bodies_that_are_no_text_are_escaped_on_either_way",),
    ),
    Mutant(
        name="what lies behind the last segment is left out",
        file="pipeline/source/eventlog_reader.py",
        before="        if begin < end:\n            left",
        after="        if not parts:\n            left",
        rule=0,
        tests=(
            f"{_BACKLOG}::test_a_backlog_is_read_by_spark_itself_and_the_rest_through_the_source",
        ),
    ),
    Mutant(
        name="a page that does not get further is the last one",
        file="pipeline/source/feed_reader.py",
        before="        yield from self._pages(name, after, end)  # which asks until",
        after="        # which asks until",
        rule=10,
        tests=("tests/unit/pipeline/source/test_feed_reader.py",),
    ),
    Mutant(
        name="a key that is no text is taken for one, in columns",
        file="feeds/cosmos/changes.py",
        before="        if self._simple and set(map(type, firsts)) <= {str}:\n",
        after="        if self._simple:\n",
        rule=1,
        tests=("tests/unit/feeds/cosmos/test_changes.py",),
    ),
    Mutant(
        name="a pipeline that is told to stop breaks its batches off",
        file="pipeline/supervisor.py",
        before='    return hold.noticed(one.name) or not one.query.status["isTriggerActive"]\n',
        after="    return True\n",
        rule=11,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="a pipeline that is told to stop begins another batch",
        file="pipeline/supervisor.py",
        before="        hold.begin(one.name)\n",
        after="        pass\n",
        rule=11,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="once goes on for ever while its feed stays away",
        file="pipeline/supervisor.py",
        before=" and failures != tries\n",
        after="\n",
        rule=10,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="what led to an error is taken for it",
        file="pipeline/supervisor.py",
        before="in reversed(_ADVICE.findall(text)):",
        after="in _ADVICE.findall(text):",
        rule=10,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="status forgets what waits in ranges that go on",
        file="pipeline/status.py",
        before="            for x in sight.successors or ()\n",
        after="            for x in ()\n",
        rule=9,
        tests=(_COMMANDS,),
    ),
    Mutant(
        name="epochs are counted on from an attempt that was refused",
        file="pipeline/checkpoint_dir.py",
        before="    if not begun(checkpoint) and epoch >= base_epoch(checkpoint):\n",
        after="    if not (_home(checkpoint) / _EPOCH).exists():\n",
        rule=5,
        tests=(_COMMANDS,),
    ),
    Mutant(
        name="a batch that was committed is removed when it is aborted",
        file="pipeline/tables/delta_sink.py",
        before='with those of tasks that were killed.\n        """\n',
        after='with those of tasks that were killed.\n        """\n'
        "        files, root = _file_system(self._uri)\n"
        "        for told in messages:\n"
        "            for x in told.files if isinstance(told, Written) else ():\n"
        '                files.delete_file(f"{root}/{x.name}")\n',
        rule=12,
        tests=(_TABLES,),
    ),
    Mutant(
        name="upkeep that fails fails the batch",
        file="pipeline/tables/delta_table.py",
        before="except (KeyboardInterrupt, SystemExit):",
        after="except BaseException:",
        rule=10,
        tests=(_TABLES,),
    ),
    Mutant(
        name="a second signal waits like the first",
        file="pipeline/supervisor.py",
        before="while working and not stop.at_once and",
        after="while working and",
        rule=11,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="a batch that fails while a stop waits for it is an orderly end",
        file="pipeline/supervisor.py",
        before="_look(one, board, stop.now(), tries)  # it may have failed meanwhile\n",
        after="pass\n",
        rule=11,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="a feed that stays away is asked at full speed",
        file="pipeline/lost.py",
        before="_FIRST_DELAY * 2.0 ** min(failures - 1, 10)",
        after="_FIRST_DELAY",
        rule=10,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="a pipeline waits for ever for a Python that never starts",
        file="pipeline/supervisor.py",
        before="        return failures < (TRIES if tries is None else min(tries, TRIES))\n",
        after="        return True\n",
        rule=10,
        tests=(_RUNNING,),
    ),
    Mutant(
        name="a first batch that crashed is repeated from a later now",
        file="pipeline/starts.py",
        before="    if begun(checkpoint):\n",
        after="    if begun(checkpoint) and not checkpoint:\n",
        rule=11,
        tests=("tests/unit/pipeline/test_starts.py",),
    ),
    Mutant(
        name="changes that Spark reads again are counted again",
        file="pipeline/progress.py",
        before="    if access.positions_count_changes and ranges",
        after="    if not access.positions_count_changes and ranges",
        rule=9,
        tests=(_PROGRESS,),
    ),
    Mutant(
        name="on Spark what is done comes again when the observer is opened anew",
        file="pipeline/observer_sink.py",
        before="                changes = await self._failed(changes, error)\n",
        after="                await self._failed(changes, error)\n",
        rule=12,
        tests=(_OBSERVING,),
    ),
    Mutant(
        name="on Spark an outage costs a letter in each batch",
        file="pipeline/observer_sink.py",
        before="            suspicions=_suspicions,\n",
        after="",
        rule=10,
        tests=(_OBSERVING,),
    ),
    Mutant(
        name="on Spark a stuck observer is closed",
        file="pipeline/observer_sink.py",
        before="            if not isinstance(error, ObserverStuck):\n",
        after="            if error:\n",
        rule=8,
        tests=(_OBSERVING,),
    ),
    Mutant(
        name="positions are exported while the query runs",
        file="cli/pipeline/export.py",
        before="        with owned(checkpoint):\n",
        after="        if checkpoint:\n",
        rule=12,
        tests=(_COMMANDS,),
    ),
    Mutant(
        name="positions become leases beside others",
        file="cli/lease_import.py",
        before="stored.continuation != positions.get(listed.range_id):",
        after="not positions:",
        rule=12,
        tests=(_COMMANDS,),
    ),
    Mutant(
        name="the first batch of a query is not counted",
        file="pipeline/progress.py",
        before='(None, "", "null", "None")',
        after='(None, "", "null")',
        rule=10,
        tests=(_PROGRESS,),
    ),
)
