"""Breaks of leases in PostgreSQL and Redis."""

from .mutant import Mutant

_CONTRACT = "tests/contract/test_lease_containers.py"
_STORES = "tests/integration/test_store_leases.py"

STORES = (
    Mutant(
        name="a row is written whatever its version",
        file="leases/postgres/tables.py",
        before='{which} and version = $4"  # noqa: S608\n',
        after="{which} and $4 <> ''\"  # noqa: S608\n",
        rule=3,
        tests=(f"{_CONTRACT}::test_of_many_contenders_for_a_lease_one_wins[postgres]",),
    ),
    Mutant(
        name="a row takes checkpoints of an epoch that is over",
        file="leases/postgres/tables.py",
        before="{which} and version = $4 and epoch = $6",
        after="{which} and version = $4",
        rule=5,
        tests=(f"{_CONTRACT}::test_nor_can_one_that_has_read_the_new_version[postgres]",),
    ),
    Mutant(
        name="a listing of rows shows all fleets",
        file="leases/postgres/tables.py",
        before='from {table} where fleet = $1"  # noqa: S608\n        self._get',
        after="from {table} where $1 <> ''\"  # noqa: S608\n        self._get",
        rule=3,
        tests=(f"{_STORES}::test_fleets_in_one_database_do_not_see_each_other",),
    ),
    Mutant(
        name="a hash takes checkpoints of an epoch that is over",
        file="leases/redis/scripts.py",
        before="if version ~= old or epoch ~= ARGV[4] then",
        after="if version ~= old then",
        rule=5,
        tests=(f"{_CONTRACT}::test_nor_can_one_that_has_read_the_new_version[redis]",),
    ),
    Mutant(
        name="a script that was sent twice is refused",
        file="leases/redis/scripts.py",
        before="if version == new then return answer() end\n",
        after="",
        rule=6,
        tests=(f"{_STORES}::test_a_write_that_its_client_sent_twice_is_known_as_its_own",),
    ),
    Mutant(
        name="a field that is there is created again",
        file="leases/redis/scripts.py",
        before="if stored then return {} end\n",
        after="",
        rule=12,
        tests=(
            f"{_CONTRACT}::test_creating_what_is_there_returns_it_and_changes_nothing[redis]",
        ),
    ),
    Mutant(
        name="the keys of a fleet lie in several slots",
        file="leases/redis/address.py",
        before="changefeed:{{{self.fleet.translate(_BRACES)}}}:{kind}",
        after="changefeed:{self.fleet.translate(_BRACES)}:{kind}",
        rule=3,
        tests=(
            "tests/unit/leases/redis/test_address.py",
            f"{_STORES}::test_a_fleet_in_a_redis_cluster",
        ),
    ),
    Mutant(
        name="a replica is written to",
        file="leases/redis/connection.py",
        before='    if server.get("role") == "slave":\n        raise',
        after='    if server.get("role") == "none":\n        raise',
        rule=3,
        tests=(f"{_STORES}::test_a_replica_is_not_the_primary",),
    ),
)
