"""What pytest gets: the fixture ``cosmos_account``, a fresh account for each test.

    def test_an_order_is_kept(cosmos_account):
        client = CosmosClient(cosmos_account.url, cosmos_account.key)
        ...

It is served in a thread, so clients may block, and async tests need no plugin of ours. Nothing
is imported until a test asks for it.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cosmos_emulator.testing import Account


@pytest.fixture
def cosmos_account() -> "Iterator[Account]":
    """A fresh ``cosmos_emulator.testing.Account``, gone at the end of the test."""
    from cosmos_emulator.testing import account_in_thread  # noqa: PLC0415

    with account_in_thread() as account:
        yield account
