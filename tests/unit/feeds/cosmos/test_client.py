"""The client of an account: what the account says of itself."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from changefeed.feeds.cosmos.client import hosts_of


@pytest.mark.parametrize("asked", ["acc", "acc-westeurope", "acc-northeurope"])
async def test_an_account_has_its_own_name_and_one_for_each_region(asked: str) -> None:
    domain = "documents.azure.com"
    regions = [
        {"name": name, "databaseAccountEndpoint": f"https://acc-{of}.{domain}:443/"}
        for name, of in (("West Europe", "westeurope"), ("North Europe", "northeurope"))
    ]

    async def said() -> Any:
        return SimpleNamespace(WritableLocations=regions[:1], ReadableLocations=regions)

    endpoint = f"https://{asked}.{domain}:443/"
    connection = SimpleNamespace(GetDatabaseAccount=said, url_connection=endpoint)
    container = SimpleNamespace(client_connection=connection)
    first, *others = await hosts_of(cast("Any", container))
    assert first == f"{asked}.{domain}"
    names = {"acc", "acc-westeurope", "acc-northeurope"}
    assert sorted(others) == sorted(f"{x}.{domain}" for x in names - {asked})
