"""What is sent to those who fetch metrics."""

import pytest

from changefeed.runtime.scrape import accepts_gzip


@pytest.mark.parametrize(
    "header", ["gzip", "deflate, gzip;q=0.5", "GZIP", "*", "br;q=1.0,gzip; q=0.001"]
)
def test_gzip_is_for_those_who_accept_it(header: str) -> None:
    assert accepts_gzip(header)


@pytest.mark.parametrize("header", ["", "identity", "gzip;q=0", "gzip; q=0.000", "xgzip"])
def test_plain_text_is_for_the_others(header: str) -> None:
    assert not accepts_gzip(header)
