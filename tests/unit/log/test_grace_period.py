"""A grace is over when the same was said for long enough, in two looks at the least."""

import pytest

from changefeed.log.maintenance.grace_period import GracePeriod


@pytest.mark.parametrize(
    ("seconds", "said", "over"),
    [
        (10.0, [("x", 0.0), ("x", 9.0), ("x", 10.0)], [False, False, True]),
        (
            10.0,
            [("x", 0.0), ("y", 20.0), ("y", 29.0), ("y", 30.0)],
            [False, False, False, True],
        ),
        (0.0, [("x", 0.0), ("x", 0.0)], [False, True]),
    ],
    ids=["same", "anew", "none"],
)
def test_a_grace_begins_when_something_is_said_and_again_when_another_is(
    seconds: float, said: list[tuple[str, float]], over: list[bool]
) -> None:
    grace = GracePeriod[str, str](seconds)
    assert [grace.is_over("key", what, now) for what, now in said] == over
