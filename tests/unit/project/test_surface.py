"""How much there is to know of commands: a bound goes down with what it counts, never up."""

from tests.support.commands import every_command

SHARED = {
    *("--config", "--set", "--feed", "--leases", "--observer", "--option", "--directory"),
    *("--help", "--processor"),
}


def test_there_are_no_more_commands_and_flags_of_their_own() -> None:
    found = every_command()
    given = [x.opts[0] for one in found.values() for x in one.params]
    flags = [x for x in given if x.startswith("--")]
    assert len(found) <= 29
    assert len([x for x in flags if x not in SHARED]) <= 51
