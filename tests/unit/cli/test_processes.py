"""What the processes of ``--processes`` are given."""

from dataclasses import replace

from changefeed.cli.host_flags import HostFlags
from changefeed.cli.hosts import arguments_of
from changefeed.host.child_start import ChildStart
from changefeed.host.settings import Settings


def test_a_child_is_given_its_name_and_the_incarnations_that_are_dead() -> None:
    child = ChildStart(name="h-2", incarnation="third", dead={"first": "SIGSEGV"})
    assert arguments_of(HostFlags(name="h"), Settings(), "h-2", 1) == ["run", "--name=h-2"]
    fixed = Settings.model_validate({"web": {"port": 8000}})
    for n, port in enumerate(("--set=web.port=8000", "--set=web.port=8001")):
        assert port in arguments_of(HostFlags(name="h"), fixed, "h-2", n)
    assert ChildStart.of("h-2", child.environment) == child
    assert ChildStart.of("h-2", {}).dead == {}


def test_the_hosts_of_one_process_have_incarnations_of_their_own_and_know_which_died() -> None:
    first, second = ChildStart.of("h", {}), ChildStart.of("h", {})
    second = replace(second, dead={first.incarnation: "SIGKILL"})
    starts = [x.of_processor(y) for x in (first, second) for y in ("orders", "search")]
    assert len({x.incarnation for x in starts}) == 4
    died = [{x.incarnation: "SIGKILL"} for x in starts[:2]]
    assert [x.dead for x in starts] == [{}, {}, *died]
