"""The page of clusters has every metric of a broker, and no other."""

import re
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from changefeed.brokers.metered_store import MeteredStore
from changefeed.feeds.brokers.stores.store import StoreUnavailable
from changefeed.feeds.feed import RangeId
from tests.support.brokers import batch
from tests.unit.brokers.test_meters import P1, Away, metered

PAGE = Path(__file__).parents[3] / "docs/cluster.md"


async def test_the_page_lists_every_metric_of_a_broker_and_no_other() -> None:
    listed = set(re.findall(r"`(changefeed\.broker\.[a-z.]+)`", PAGE.read_text()))
    async with metered() as found:
        await found.append(batch(P1, "a"), batch(RangeId("e9.p01.v00-ff"), "b"))
        await found.read(0)
        given = {*found.points()}
    failing = InMemoryMetricReader()
    with pytest.raises(StoreUnavailable):
        await MeteredStore(Away(), MeterProvider([failing])).get("x")
    data = failing.get_metrics_data()
    assert data is not None
    given |= {x.name for y in data.resource_metrics[0].scope_metrics for x in y.metrics}
    assert given | {"changefeed.broker.era.changes"} == listed
