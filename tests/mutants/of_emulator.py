"""Breaks of the emulator: what clients of other languages stand on."""

from .mutant import Mutant

_ODD = "tests/integration/emulator/test_odd_requests.py"
_KEYS = "tests/integration/emulator/test_keys_and_throughput.py"
_QUERIES = "tests/integration/emulator/test_queries.py"
_PLAN = "tests/unit/emulator/test_query_plan.py"

EMULATOR = (
    Mutant(
        name="a session token of every range",
        file="emulator/calls.py",
        before='"x-ms-session-token": held[0].session_token,',
        after='"x-ms-session-token": ",".join(x.session_token for x in held),',
        rule=0,
        tests=(_ODD,),
    ),
    Mutant(
        name="a definition is stored before it is checked",
        file="emulator/definitions.py",
        before='    _check_shape("indexingPolicy", indexing, _Indexing)\n',
        after="",
        rule=0,
        tests=(_ODD,),
    ),
    Mutant(
        name="latest versions never have metadata",
        file="emulator/feed.py",
        before="        if request.with_metadata:\n",
        after="        if False:\n",
        rule=0,
        tests=(_ODD,),
    ),
    Mutant(
        name="a unique value is never given back",
        file="emulator/unique_keys.py",
        before='"DELETE FROM unique_values WHERE number = ?", (number,)',
        after='"DELETE FROM unique_values WHERE number = ?", (-1,)',
        rule=0,
        tests=(_KEYS,),
    ),
    Mutant(
        name="bulk takes the keys of other ranges",
        file="emulator/batches.py",
        before="    if not held.low <= key.epk < held.high:\n",
        after="    if False:\n",
        rule=0,
        tests=(_KEYS,),
    ),
    Mutant(
        name="a prefix of a key is taken for a whole one",
        file="emulator/calls.py",
        before="            return _reach_between(call, ranges, key.epk, key.epk + HIGHEST)\n",
        after="            pass\n",
        rule=0,
        tests=(_KEYS,),
    ),
    Mutant(
        name="more throughput makes no more ranges",
        file="emulator/resources.py",
        before="        emulator.ranges.grow(number, wanted.ranges)\n",
        after="        pass\n",
        rule=0,
        tests=(_KEYS,),
    ),
    Mutant(
        name="a plan lets each range skip what the client skips",
        file="emulator/query/plan.py",
        before='        parts.append(f"OFFSET 0 LIMIT {skipped + taken}")\n',
        after='        parts.append(f"OFFSET {skipped} LIMIT {taken}")\n',
        rule=0,
        tests=(_PLAN,),
    ),
    Mutant(
        name="a plan adds up averages",
        file="emulator/query/plan.py",
        before='        case "Average":\n',
        after='        case "None":\n',
        rule=0,
        tests=(_PLAN,),
    ),
    Mutant(
        name="one is distinct from one point zero",
        file="emulator/query/values.py",
        before="    if isinstance(value, float) and value.is_integer():\n",
        after="    if False:\n",
        rule=0,
        tests=(_QUERIES,),
    ),
)
