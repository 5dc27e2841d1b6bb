"""How the health of a range goes from one state to the next."""

from changefeed.leases.health import RangeHealth, WaitingKey

WELL = RangeHealth(last_progress=1.0)


def test_while_keys_wait_a_range_fails_though_others_of_it_get_on() -> None:
    oldest = WaitingKey(key="k", sequence=7, tries=2, error="no", next_try=4.0)
    waiting = WELL.failed(2.0, "Key\nError" + 20_000_000 * "x").waits(2, oldest).progressed(3.0)
    assert (waiting.failing_since, waiting.waiting, waiting.last_progress) == (2.0, 2, 3.0)
    assert waiting.oldest == oldest
    assert waiting.last_error == f"Key Error{190 * 'x'}…"
    assert waiting.waits(0, None) == RangeHealth(last_progress=3.0)
    assert waiting.caught_up() == RangeHealth(last_progress=3.0)
