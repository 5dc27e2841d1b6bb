"""The settings of the hosts of a world, chosen by its seed."""

from random import Random


def choose_settings(
    random: Random, *, manual: bool, classic: bool, wild: bool
) -> dict[str, dict[str, object]]:
    modes = ["batch", "batch", 20, 5]
    parts: dict[str, dict[str, object]] = {
        "leases": {
            "max_handoff_time": 0 if classic else random.choice([5.0, 30.0]),
        },
        "timing": {
            "rebalance_delay": random.choice([0.0, 5.0, 10.0]),
            "ranges_interval": 20.0,
            "lag_interval": 60.0,
        },
        "feed": {
            "poll_interval": random.choice([2.0, 5.0]),
            # Nothing takes the second: seeds keep their stories.
            "page_size": (random.choice([5, 50, 1000]), random.choice([1, 3]))[0],
        },
        "observer": {
            "checkpoint": "manual" if manual else random.choice(modes),
            "max_unacknowledged": random.choice([7, 1000]),
            "retry": {"max_delay": 10.0},
            "concurrency": random.choice([1, 1, 4]),
        },
    }
    if wild:
        parts["observer"] |= {
            "retry": {"max_delay": 5.0, "attempts": 3},
            "on_failure": random.choice(["retry", "dead-letter", "stop-range"]),
            "timeout": random.choice([None, 20.0]),
        }
    return parts
