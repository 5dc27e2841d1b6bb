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
    pytest.param(made.over("sqlite", "sqlite"), id="sqlite-separate"),
    pytest.param(made.cosmos, id="cosmos"),
    pytest.param(made.cosmos_separate, id="cosmos-separate"),
    pytest.param(made.cosmos_independent, id="cosmos-independent"),
    pytest.param(made.third_party, id="third-party"),
    pytest.param(made.over("postgres"), id="postgres"),
    pytest.param(made.over("redis"), id="redis"),
    pytest.param(made.over("blob"), id="blob"),
    pytest.param(made.over("postgres", "postgres"), id="postgres-separate"),
    pytest.param(made.over("redis", "redis"), id="redis-separate"),
    pytest.param(made.over("redis", "blob"), id="redis-with-blob"),
    pytest.param(made.over("redis", "postgres"), id="redis-with-postgres"),
    pytest.param(made.over("blob", "sqlite"), id="blob-with-sqlite"),
    pytest.param(made.over("postgres", "blob"), id="postgres-with-blob"),
]
