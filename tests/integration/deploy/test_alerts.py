"""The alert rules over metrics that real hosts have given, and over some that are written.

Each scenario is lived through in virtual time, scraped each minute, and given to Prometheus'
own checker: exactly the alerts that it names have fired.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from changefeed.feeds.feed import Change, RangeId
from changefeed.fleet.claims import pause
from changefeed.leases.deaths import Deaths
from changefeed.leases.lease import HostName, Incarnation
from changefeed.observers.observer import Context
from changefeed.runtime.errors import StoreUnavailable
from changefeed.testing.fleet import Sections
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.promtool import RULES, check_alerts, check_expressions, promtool
from tests.support.recorded_metrics import RecordedFleet

pytestmark = pytest.mark.virtual_time

PAGE = Path(__file__).parents[3] / "docs/metrics.md"
R0 = RangeId("r0")


class Agreeable:
    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        """Do all changes."""


class Slow:
    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del context
        await asyncio.sleep(len(changes))


class Fastidious:
    """Fails on one change."""

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del context
        if any(x.key == "key-20-0" for x in changes):
            raise ValueError("no such column")


class Broken:
    """Fails on one of the ranges."""

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del changes
        if context.range.id == R0:
            raise ValueError("no such table")


async def in_good_order(fleet: RecordedFleet) -> None:
    """Two hosts, one of them restarted, with changes all the time."""
    fleet.start("a")
    fleet.start("b")
    await fleet.live(40, changes=20)
    await fleet.stop("b")
    fleet.start("b")
    await fleet.live(40, changes=20)


async def an_hour(fleet: RecordedFleet) -> None:
    fleet.start("a")
    fleet.start("b")
    await fleet.live(60, changes=6)


async def a_range_is_paused(fleet: RecordedFleet) -> None:
    fleet.start("a")
    fleet.start("b")
    await fleet.live(10, changes=6)
    await pause(fleet.container, [R0], "bad data")
    await fleet.live(40, changes=6)


async def all_hosts_stop(fleet: RecordedFleet) -> None:
    fleet.start("a")
    await fleet.live(20, changes=6)
    await fleet.stop("a")
    await fleet.live(20, changes=6)


async def more_changes_come_than_one_host_gets_done(fleet: RecordedFleet) -> None:
    fleet.start("a")
    await fleet.live(100, changes=600)


async def the_lease_container_goes_away(fleet: RecordedFleet) -> None:
    away = False

    async def cable(_name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if away:
            raise StoreUnavailable("it does not answer")
        return await call()

    fleet.start("a", container=proxied(fleet.container, cable))
    await fleet.live(20, changes=6)
    away = True
    await fleet.live(30, changes=6)


async def an_owner_has_died_with_a_change(fleet: RecordedFleet) -> None:
    (found, *_) = await fleet.feed.ranges()
    deaths = Deaths(count=1, care=9)
    taken = make.lease(found, at="0").taken_by(HostName("z"), Incarnation("z-1"), deaths)
    await fleet.container.create(replace(taken, deaths=deaths.noting(0)))
    await an_hour(fleet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a fleet lives through, and the alerts that fire meanwhile."""

    story: Callable[[RecordedFleet], Awaitable[None]]
    observer: type = Agreeable
    parts: Sections = field(default_factory=dict)
    fires: Collection[str] = ()


SCENARIOS = {
    "in good order": Scenario(story=in_good_order),
    "an observer fails": Scenario(
        story=an_hour,
        observer=Broken,
        fires={
            "ChangefeedBehind",
            "ChangefeedFailing",
        },
    ),
    "dead letters": Scenario(
        story=an_hour,
        observer=Fastidious,
        parts={"observer": {"on_failure": "dead-letter"}},
        fires={"ChangefeedDeadLetters"},
    ),
    "a change kills": Scenario(
        story=an_owner_has_died_with_a_change, fires={"ChangefeedFailing"}
    ),
    "paused": Scenario(
        story=a_range_is_paused,
        fires={"ChangefeedBehind", "ChangefeedRangePaused"},
    ),
    "no hosts": Scenario(story=all_hosts_stop, fires={"ChangefeedNoHosts"}),
    "too slow": Scenario(
        story=more_changes_come_than_one_host_gets_done,
        observer=Slow,
        parts={"feed": {"page_size": 10}},
        fires={"ChangefeedBehind"},
    ),
    "lease container away": Scenario(
        story=the_lease_container_goes_away,
        fires={"ChangefeedCallsFailing", "ChangefeedLeasesUnstable"},
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_fleet_raises_these_alerts_and_no_other(
    scenario: Scenario, tmp_path: Path
) -> None:
    async with RecordedFleet(scenario.observer, parts=scenario.parts) as fleet:
        await scenario.story(fleet)
    check_alerts(tmp_path, fleet.series, fleet.minutes, sorted(scenario.fires))


def _of(name: str, **labels: str) -> str:
    """Return a series of one broker."""
    given = ",".join(f'{k}="{v}"' for k, v in {"job": "log", "instance": "a", **labels}.items())
    return f"{name}{{{given}}}"


WRITTEN: dict[str, tuple[dict[str, str], int]] = {
    "ChangefeedStuck call": (
        {'changefeed_observer_stuck_total{job="shop",instance="a",range="r0"}': "_x9 1x2"},
        20,
    ),
    "ChangefeedStuck no-progress": (
        {'changefeed_lag{job="shop",instance="a",range="r0",state="owned"}': "5x40"},
        40,
    ),
    "ChangefeedRangeUnowned": (
        {'changefeed_lag{job="shop",instance="a",range="r0",state="unowned"}': "0x20"},
        20,
    ),
    "ChangefeedLeasesUnstable moving": (
        {'changefeed_lease_acquisitions_total{job="shop",instance="a",how="stolen"}': "0+9x60"},
        60,
    ),
    "ChangefeedLoopBlocked": (
        {'changefeed_event_loop_lag_seconds{job="shop",instance="a"}': "0.01x5 0.9x10"},
        15,
    ),
    "ChangefeedFailing everything": (
        {'changefeed_range_waiting{job="shop",instance="a",range="r0",reason="outage"}': "9x9"},
        9,
    ),
    "ChangefeedFailing keys-wait": (
        {'changefeed_range_waiting{job="s",instance="a",range="r0",reason="failed"}': "1x19"},
        19,
    ),
    "ChangefeedFailing failing": (
        {'changefeed_range_failing{job="shop",instance="a",range="r0"}': "1x19"},
        19,
    ),
    "ChangefeedFailing table": (
        {'changefeed_pipeline_failures_total{job="spark",instance="s",table="t"}': "_x9 1x9"},
        20,
    ),
    "ChangefeedBehind table": (
        {'changefeed_pipeline_lag{job="spark",instance="s",table="t",range="r0"}': "0+500x90"},
        90,
    ),
}
BROKERS = {
    "ChangefeedNoBrokerWrites": (
        {'changefeed_broker_writing{job="log",instance="a"}': "1x5 0x10"},
        15,
    ),
    "ChangefeedBrokersUnstable not-writing": (
        {
            'changefeed_broker_writing{job="log",instance="a"}': "1x30",
            'changefeed_broker_writing{job="log",instance="b"}': "1x5 0x25",
        },
        30,
    ),
    "ChangefeedBrokerStoreFailing requests": (
        {
            _of("changefeed_broker_store_requests_total", operation="create"): "0+600x20",
            _of("changefeed_broker_store_failures_total", operation="create"): "0x5 0+90x15",
            _of("changefeed_broker_store_requests_total", operation="get"): "0+600x20",
            _of("changefeed_broker_store_failures_total", operation="get"): "0+50x20",
        },
        20,
    ),
    "ChangefeedBrokerSlow": (
        {
            _of("changefeed_broker_append_duration_seconds_bucket", le="2.5"): "0+900x30",
            _of("changefeed_broker_append_duration_seconds_bucket", le="5.0"): "0+1000x30",
            _of("changefeed_broker_append_duration_seconds_bucket", le="+Inf"): "0+1000x30",
        },
        30,
    ),
    "ChangefeedBrokersUnstable eras": (
        {_of("changefeed_broker_era_changes_total"): "0x10 0+1x20"},
        30,
    ),
    "ChangefeedBrokerStoreFailing compaction": (
        {_of("changefeed_broker_compaction_failures_total"): "0+1x20"},
        20,
    ),
}
WRITTEN |= BROKERS
ALIVE = {'changefeed_lease_owned{job="shop",instance="a"}': "12x100"}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_alert_fires_alone_on_what_it_is_for(name: str, tmp_path: Path) -> None:
    series, minutes = WRITTEN[name]
    check_alerts(tmp_path, {**ALIVE, **series}, minutes, [name.split(maxsplit=1)[0]])


def test_brokers_that_come_and_go_and_have_work_raise_no_alert(tmp_path: Path) -> None:
    """Two of them, one restarted: two eras, some refusals, a failed request now and then."""
    series = {
        'changefeed_broker_writing{job="log",instance="b"}': "1x10 0x3 1x47",
        _of("changefeed_broker_writing"): "1x60",
        _of("changefeed_broker_store_requests_total", operation="create"): "0+600x60",
        _of("changefeed_broker_store_failures_total", operation="create"): "0+3x60",
        _of("changefeed_broker_append_duration_seconds_bucket", le="2.5"): "0+1000x60",
        _of("changefeed_broker_append_duration_seconds_bucket", le="+Inf"): "0+1001x60",
        _of("changefeed_broker_era_changes_total"): "0x10 1x3 2x47",
        _of("changefeed_broker_refusals_total", reason="moving"): "0x10 7x50",
        _of("changefeed_broker_compaction_failures_total"): "0x30 1x30",
    }
    check_alerts(tmp_path, {**ALIVE, **series}, 60, [])


@pytest.mark.parametrize(
    ("alert", "metric"),
    [
        ("ChangefeedNoHosts", "changefeed_lease_owned"),
        ("ChangefeedNoBrokerWrites", "changefeed_broker_writing"),
    ],
)
def test_the_job_that_is_gone_is_named_while_another_lives(
    alert: str, metric: str, tmp_path: Path
) -> None:
    """Over a weekend, since who is to see it may be away."""
    series = {
        f'{metric}{{job="shop",instance="a"}}': "1x3000",
        f'{metric}{{job="bank",instance="b"}}': "1x9 stale",
        f'{metric}{{job="bank",instance="c"}}': "1x5 stale",
    }
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    expected = {f"group by (job) ({firing})": [{"labels": '{job="bank"}', "value": 1}]}
    check_expressions(tmp_path, ALIVE | series, 3000, expected, each="5m")


def test_a_prometheus_that_has_never_seen_a_host_says_so(tmp_path: Path) -> None:
    check_alerts(tmp_path, {}, 20, ["ChangefeedNoHosts"])


@pytest.mark.parametrize("before", [{}, {'changefeed_lease_owned{job="shop"}': "1x9 stale"}])
@pytest.mark.parametrize(("desired", "fires"), [(0, []), (1, ["ChangefeedNoHosts"])])
def test_a_fleet_whose_monitor_wants_no_hosts_has_none_in_peace(
    desired: int, fires: Sequence[str], before: dict[str, str], tmp_path: Path
) -> None:
    monitor = {'changefeed_desired_hosts{job="shop"}': f"{desired}x40"}
    check_alerts(tmp_path, {**before, **monitor}, 40, fires)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_each_alert_has_been_seen_to_fire() -> None:
    written = {x.partition(" ")[0] for x in WRITTEN}
    seen = written.union(*(x.fires for x in SCENARIOS.values()))
    assert seen == {x["alert"] for x in rules()}


def test_there_are_few_alerts_and_rules_of_one_name_say_their_cause() -> None:
    found = [(x["alert"], x["labels"].get("cause")) for x in rules()]
    assert len({name for name, _ in found}) <= 14
    assert len(found) == len(set(found))


def test_the_rules_are_sound() -> None:
    promtool("check", "rules", RULES)


def test_the_page_says_of_each_alert_what_to_do() -> None:
    headings = re.findall(r"^## (Changefeed\w+)$", PAGE.read_text(), re.MULTILINE)
    assert headings == [*dict.fromkeys(x["alert"] for x in rules())]
