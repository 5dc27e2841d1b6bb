"""The settings of the hosts of a world, chosen by its seed."""

from random import Random


def choose_settings(
    random: Random, *, manual: bool, classic: bool, wild: bool
) -> dict[str, dict[str, object]]:
    modes = ["batch", "batch", "count", "interval"]
    parts: dict[str, dict[str, object]] = {
        "leases": {
            "max_handoff_time": 0 if classic else random.choice([5.0, 30.0]),
            "rebalance_delay": random.choice([0.0, 5.0, 10.0]),
        },
        "feed": {
            "poll_interval": random.choice([2.0, 5.0]),
            "page_size": random.choice([5, 50, 1000]),
            "read_ahead": random.choice([1, 3]),
            "ranges_interval": 20.0,
            "lag_interval": 60.0,
        },
        "observer": {
            "checkpoint": "manual" if manual else random.choice(modes),
            "checkpoint_count": 70,
            "max_unacknowledged": random.choice([7, 1000]),
            "retry": {"first_delay": 0.5, "max_delay": 10.0},
            "reopen_delay": 10.0,
            "concurrency": random.choice([1, 1, 4]),
        },
    }
    if wild:
        parts["observer"] |= {
            "retry": {"first_delay": 0.5, "max_delay": 5.0, "attempts": 3},
            "on_failure": random.choice(["retry", "dead-letter", "stop-range"]),
            "timeout": random.choice([None, 20.0]),
        }
    return parts
