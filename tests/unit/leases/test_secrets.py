import pytest

from changefeed.leases.addresses import without_secrets


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:s:e@cret@h/db?fleet=f", "postgresql://u:…@h/db?fleet=f"),
        ("redis://:p@h:1/0 with blob://a/c", "redis://:…@h:1/0 with blob://a/c"),
        ("postgresql://h/db?password=p&fleet=f", "postgresql://h/db?password=…&fleet=f"),
        ("sqlite:data/leases.db", "sqlite:data/leases.db"),
    ],
)
def test_a_printed_address_has_no_password(address: str, shown: str) -> None:
    assert without_secrets(address) == shown
