"""How long is waited, in seconds."""

from random import Random

import pytest

from changefeed.runtime.delays import GrowingDelays


def test_each_delay_is_twice_as_long_as_the_one_before_it_up_to_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("changefeed.runtime.delays.JITTER", 0.0)
    delays = GrowingDelays(0.5, 3.0, Random(1))
    assert [delays.after(n) for n in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert [delays.of_outage(x) for x in (0.0, 16.0, 4800.0)] == [0.5, 1.0, 3.0]


def test_chance_takes_away_up_to_half_of_a_delay() -> None:
    delays = GrowingDelays(2.0, 8.0, Random(1))
    taken = [delays.after(1) for _ in range(200)]
    assert 1.0 <= min(taken) < 1.1
    assert 1.9 < max(taken) <= 2.0
