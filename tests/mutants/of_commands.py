"""Breaks of the command line: what it takes for an address, what it asks, what it prints."""

from .mutant import Mutant

_PRODUCING = "tests/unit/feeds/test_producing.py"
_JSON_LINES = "tests/unit/cli/io/test_json_lines.py"
_FEED = "tests/unit/feeds/test_feed.py"
_OPERATING = "tests/acceptance/test_operating.py"
_INPUT = "tests/unit/cli/io/test_standard_input.py"
_TABLES = "tests/unit/cli/io/test_tables.py"
_UNREAD = "tests/acceptance/test_unread_output.py"
_HOSTILE = "tests/acceptance/test_hostile_surroundings.py"
_FLAGS = "tests/unit/cli/test_host_flags.py"

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
    Mutant(
        name="a command that nobody reads of leaves its work half done",
        file="cli/io/report.py",
        before="    except OSError as error:\n        print_error(",
        after="    except ZeroDivisionError as error:\n        print_error(",
        rule=0,
        tests=(f"{_UNREAD}::test_all_ranges_are_moved_though_nobody_reads_of_the_first",),
    ),
    Mutant(
        name="a command that cannot say what is wrong leaves its work half done",
        file="cli/streams.py",
        before="    except OSError:\n        leave(sys.stderr)\n",
        after="    except OSError:\n        raise\n",
        rule=0,
        tests=(f"{_UNREAD}::test_all_ranges_are_moved_though_nobody_reads_of_the_first",),
    ),
    Mutant(
        name="positions that nobody has got were saved",
        file="cli/io/report.py",
        before="    if output_was_closed():\n",
        after="    if False:\n",
        rule=0,
        tests=(f"{_UNREAD}::test_positions_that_were_not_written_are_a_failure",),
    ),
    Mutant(
        name="a name that is long is cut in a table",
        file="cli/io/tables.py",
        before=', overflow="fold"',
        after="",
        rule=0,
        tests=(_TABLES,),
    ),
    Mutant(
        name="a table has the width of a terminal where none is",
        file="cli/io/tables.py",
        before="        console = Console(width=_WIDE)\n",
        after="        pass\n",
        rule=0,
        tests=(_TABLES,),
    ),
    Mutant(
        name="what a host calls itself moves the cursor of who looks",
        file="cli/io/tables.py",
        before="return Text(printable(text), style=style)",
        after="return Text(text, style=style)",
        rule=0,
        tests=(_TABLES,),
    ),
    Mutant(
        name="what turns a line round is printable",
        file="runtime/printable.py",
        before='x if x.isprintable() or x in keep else " "',
        after='" " if x < " " else x',
        rule=0,
        tests=("tests/unit/runtime/test_printable.py",),
    ),
    Mutant(
        name="Ctrl-C is an exception while modules are imported",
        file="cli/__init__.py",
        before="        signal.signal(signal.SIGINT, signal.SIG_DFL)\n",
        after="        pass\n",
        rule=0,
        tests=(f"{_HOSTILE}::test_ctrl_c_is_no_exception_as_long_as_modules_are_imported",),
    ),
    Mutant(
        name="Ctrl-C is no exception in a command",
        file="cli/__init__.py",
        before="        signal.signal(signal.SIGINT, signal.default_int_handler)\n",
        after="        pass\n",
        rule=0,
        tests=(f"{_HOSTILE}::test_ctrl_c_is_no_exception_as_long_as_modules_are_imported",),
    ),
    Mutant(
        name="Python itself tells of an output that is full",
        file="cli/__init__.py",
        before="        leave(sys.stdout)\n",
        after="",
        rule=0,
        tests=(f"{_HOSTILE}::test_a_full_output_is_said_in_one_line",),
    ),
    Mutant(
        name="an output that is full is told of twice",
        file="cli/exit_codes.py",
        before="    leave_full_output()\n",
        after="",
        rule=0,
        tests=(f"{_HOSTILE}::test_a_full_output_is_said_in_one_line",),
    ),
    Mutant(
        name="a year is a start in seconds since 1970",
        file="host/settings.py",
        before='Annotated[Literal["beginning", "now"] | datetime, BeforeValidator(_start_in)]',
        after='Literal["beginning", "now"] | datetime',
        rule=12,
        tests=(_FLAGS,),
    ),
)
