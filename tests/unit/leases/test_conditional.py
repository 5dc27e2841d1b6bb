from changefeed.leases.conditional import short_key


def test_a_key_that_fits_is_the_text_itself() -> None:
    assert short_key("r1", 2) == "r1"


def test_long_keys_are_hashes_that_differ_as_the_texts_do() -> None:
    first, second = short_key("x" * 300, 256), short_key("x" * 301, 256)
    assert first != second
    assert len(first) == len("sha256-") + 64
