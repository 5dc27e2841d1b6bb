"""What is sent to those who fetch metrics."""

import pytest

from changefeed.runtime.scrape import accepts_gzip


@pytest.mark.parametrize("header", ["", "identity", "gzip;q=0", "gzip; q=0.000", "xgzip"])
def test_plain_text_is_for_the_others(header: str) -> None:
    assert not accepts_gzip(header)
