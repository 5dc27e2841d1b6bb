"""A broker over Azure Blob Storage, at an endpoint of plain HTTP that the environment names."""

import uuid

import pytest
from azure.storage.blob import BlobServiceClient

from changefeed import Record
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.client.producer import open_brokers_producer
from changefeed.log.stores.addresses import open_store
from tests.support import servers
from tests.support.broker_cluster import ACCESS, COLLECTION, address_of, broker


async def test_records_are_stored_in_a_container_and_read_from_it_by_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        azurite = servers.azurite()
    except servers.Missing as missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", azurite.account)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.key)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azurite.endpoint)
    name = f"brokers-{uuid.uuid4().hex[:8]}"
    with BlobServiceClient.from_connection_string(azurite.connection_string) as client:
        client.create_container(name)
    place = f"az://{name}/prefix"
    async with broker(open_store(place)) as (core, address):
        await core.catalogs.create(COLLECTION, parts=1)
        async with open_brokers_producer(address_of(address), ACCESS) as producer:
            await producer.send_many([Record(key="k", body=b"%d" % n) for n in range(100)])
    async with (
        broker(open_store(place), "broker-2") as (_, address),
        BrokersFeed.open(address_of(address), ACCESS) as feed,
    ):
        first, *_ = await feed.ranges()
        start = await feed.start(first, "beginning")
        page = await feed.read(first, start, 1000)
        assert [x.value() for x in page.changes] == list(range(100))
