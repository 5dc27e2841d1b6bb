"""Our lease containers, for each contract that they keep. A new one is one more line here.

A harness makes a fresh container and hands out clients to it (see
``tests.support.lease_containers``). All run on an ordinary event loop, since some have
threads or sockets behind them; nothing here depends on time.
"""

import pytest

from changefeed.leases.memory import MemoryLeases
from tests.support import lease_containers as made

CONTAINERS = [
    pytest.param(made.same_object(MemoryLeases), id="memory"),
    pytest.param(made.same_object(made.memory_separate), id="memory-separate"),
    pytest.param(made.same_object(made.memory_delayed), id="memory-delayed"),
    pytest.param(made.same_object(made.memory_separate_delayed), id="memory-separate-delayed"),
    pytest.param(made.over("sqlite"), id="sqlite"),
    pytest.param(made.cosmos, id="cosmos"),
    pytest.param(made.cosmos_independent, id="cosmos-independent"),
    pytest.param(made.third_party, id="third-party"),
    pytest.param(made.over("postgres"), id="postgres"),
    pytest.param(made.over("redis"), id="redis"),
    pytest.param(made.over("blob"), id="blob"),
    pytest.param(made.over("redis", "postgres"), id="redis-with-postgres"),
    # How two stores are one container is shown above, and what each store does alone.
    *(
        pytest.param(harness, id=name, marks=pytest.mark.nightly)
        for name, harness in {
            "sqlite-separate": made.over("sqlite", "sqlite"),
            "cosmos-separate": made.cosmos_separate,
            "postgres-separate": made.over("postgres", "postgres"),
            "redis-separate": made.over("redis", "redis"),
            "redis-with-blob": made.over("redis", "blob"),
            "blob-with-sqlite": made.over("blob", "sqlite"),
            "postgres-with-blob": made.over("postgres", "blob"),
        }.items()
    ),
]
