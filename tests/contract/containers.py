"""Our lease containers, for each contract that they keep. A new one is one more line here.

A harness makes a fresh container and hands out clients to it (see
``tests.support.lease_containers``). All run on an ordinary event loop, since some have
threads or sockets behind them; nothing here depends on time.
"""

import pytest

from changefeed.leases.memory import MemoryLeases
from tests.support import lease_containers as made
from tests.support import store_containers as stores

CONTAINERS = [
    pytest.param(made.same_object(MemoryLeases), id="memory"),
    pytest.param(made.same_object(made.memory_separate), id="memory-separate"),
    pytest.param(made.same_object(made.memory_delayed), id="memory-delayed"),
    pytest.param(made.same_object(made.memory_separate_delayed), id="memory-separate-delayed"),
    pytest.param(made.opened_each(made.sqlite), id="sqlite"),
    pytest.param(made.opened_each(made.sqlite_separate), id="sqlite-separate"),
    pytest.param(made.cosmos, id="cosmos"),
    pytest.param(made.cosmos_separate, id="cosmos-separate"),
    pytest.param(made.cosmos_independent, id="cosmos-independent"),
    pytest.param(made.third_party, id="third-party"),
    pytest.param(stores.combined("postgres"), id="postgres"),
    pytest.param(stores.combined("redis"), id="redis"),
    pytest.param(stores.combined("blob"), id="blob"),
    pytest.param(stores.apart("postgres", "postgres"), id="postgres-separate"),
    pytest.param(stores.apart("redis", "redis"), id="redis-separate"),
    pytest.param(stores.apart("redis", "blob"), id="redis-with-blob"),
    pytest.param(stores.apart("redis", "postgres"), id="redis-with-postgres"),
    pytest.param(stores.apart("blob", "sqlite"), id="blob-with-sqlite"),
    pytest.param(stores.apart("postgres", "blob"), id="postgres-with-blob"),
]
