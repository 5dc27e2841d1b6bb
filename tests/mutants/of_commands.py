"""Breaks of the command line: what it takes for an address, what it asks, what it prints."""

from .mutant import Mutant

_PRODUCING = "tests/unit/feeds/test_producing.py"
_JSON_LINES = "tests/unit/cli/io/test_json_lines.py"
_FEED = "tests/unit/feeds/test_feed.py"
_OPERATING = "tests/acceptance/test_operating.py"
_INPUT = "tests/unit/cli/io/test_standard_input.py"

COMMANDS = (
    Mutant(
        name="a mistyped address is a directory, and a log is made in it",
        file="feeds/producing.py",
        before="if looks is not None and (looks[2] or ",
        after="if looks is not None and (",
        rule=0,
        tests=(_PRODUCING,),
    ),
    Mutant(
        name="a directory with a colon in its name is no directory",
        file="feeds/producing.py",
        before='not Path(address.partition("/")[0]).is_dir()',
        after="True",
        rule=0,
        tests=(_PRODUCING,),
    ),
    Mutant(
        name="milliseconds are taken for seconds, and appended",
        file="cli/io/json_lines.py",
        before="    if MIN_TIME_US <= time_us <= MAX_TIME_US:\n",
        after="    if True:\n",
        rule=0,
        tests=(_JSON_LINES,),
    ),
    Mutant(
        name="a log takes times that no calendar has",
        file="feeds/eventlog/records.py",
        before="    if not MIN_TIME_US <= time <= MAX_TIME_US:\n",
        after="    if not -(2**63) <= time < 2**63:\n",
        rule=0,
        tests=("tests/unit/feeds/eventlog/test_block_format.py",),
    ),
    Mutant(
        name="a change with a time that no calendar has cannot be read",
        file="feeds/feed.py",
        before="timedelta(microseconds=_in_calendar(self.committed_us))",
        after="timedelta(microseconds=self.committed_us)",
        rule=12,
        tests=(_FEED,),
    ),
    Mutant(
        name="a range is reset to a position in another feed",
        file="cli/reset.py",
        before="            await compare_feeds(container, feed.identity)\n",
        after="            pass\n",
        rule=12,
        tests=(
            f"{_OPERATING}::test_positions_in_another_feed_are_refused_and_nothing_changes",
        ),
    ),
    Mutant(
        name="a range is split by the bounds of another feed",
        file="cli/split.py",
        before="        await compare_feeds(container, feed.identity)\n",
        after="",
        rule=12,
        tests=(
            f"{_OPERATING}::test_positions_in_another_feed_are_refused_and_nothing_changes",
        ),
    ),
    Mutant(
        name="a question that nobody can answer is asked all the same",
        file="cli/io/standard_input.py",
        before='        typer.echo(f"{question} There is no input to answer with: see --yes")\n'
        "        return False\n",
        after="        pass\n",
        rule=0,
        tests=(_INPUT,),
    ),
    Mutant(
        name="the end of the input is taken for a yes",
        file="cli/io/standard_input.py",
        before="        typer.echo()\n        return False\n",
        after="        typer.echo()\n        return True\n",
        rule=0,
        tests=(_INPUT,),
    ),
)
