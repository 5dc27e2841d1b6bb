"""Breaks of the command line: what it takes for an address, what it asks, what it prints."""

from .mutant import Mutant

_PRODUCING = "tests/unit/feeds/test_producing.py"

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
)
