"""The proof of the tables, held against the data and against what the hosts did.

Four claims, and for each the reasons why it does not hold, if any:

1. The table ``changes`` has every change of the feed exactly once, by range and sequence,
   and these are the changes of the data.
2. By generation and sequence, the changes of a key in it are in the order of their times, and
   in one range of each generation.
3. The table ``latest`` has the last state of each flight as the data has it, and it is of
   the change that the hosts were handed last.
4. The figures by carrier of the table ``daily`` are those of the data, and those that the
   hosts' observers kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from changefeed.feeds.feed import RangeId
from changefeed.testing.history import KeyOrder, difference

from .kept import Row
from .observer import Carrier
from .proof import Claim, Proof, wrong_figures
from .straight import Expected, Last


def prove_tables(
    expected: Expected,
    hosts: Proof,
    observed: Mapping[str, Carrier],
    *,
    ends: Mapping[RangeId, int],
    changes: Iterable[Row],
    latest: Sequence[tuple[str, Last]],
    figures: Mapping[str, Carrier],
) -> Sequence[Claim]:
    """Check all claims. ``ends`` is the number of changes in each range of the feed.

    ``changes``, ``latest`` and ``figures`` are what the tables hold, ``hosts`` and
    ``observed`` what the hosts did.
    """
    rows = sorted(changes, key=itemgetter(0, 1, 2))  # generation, range, sequence
    claims = {
        f"The table changes has each of the {expected.changes:,} changes exactly once": [
            *wrong_sequences(rows, ends),
            *wrong_changes(rows, expected),
        ],
        "By generation and sequence, the changes of each key in it are in order": (
            wrong_order(rows)
        ),
        f"The table latest has the last state of each of the {len(expected.last):,} flights, "
        f"as the data and the hosts": [
            *wrong_states(latest, expected.last),
            *wrong_kinds(latest, hosts.last),
        ],
        "The figures of the table daily equal those of the observers and those straight from "
        "the data": [
            *wrong_figures(expected.carriers, figures),
            *(f"{x}, say the observers" for x in wrong_figures(observed, figures)),
        ],
    }
    return [Claim(text=text, problems=problems) for text, problems in claims.items()]


def wrong_sequences(rows: Iterable[Row], ends: Mapping[RangeId, int]) -> Sequence[str]:
    """Say which changes of the feed are missing, there twice, or never were."""
    found = difference(
        ((name, n) for name, end in ends.items() for n in range(1, end + 1)),
        ((x.range, x.sequence) for x in rows),
    )
    return [
        *(f"change {n} of {name} is missing" for name, n in found.missing),
        *(f"change {n} of {name} is there too often" for name, n in found.extra),
    ]


def wrong_changes(rows: Iterable[Row], expected: Expected) -> Sequence[str]:
    """Say what happened to flights and is not in the table as often as it should."""
    found = difference(
        ((x, kind) for x, kinds in expected.happened.items() for kind in sorted(kinds)),
        ((x.flight, x.kind) for x in rows),
    )
    return [
        *(f"that flight {x} {kind} is missing" for x, kind in found.missing),
        *(f"that flight {x} {kind} is there too often" for x, kind in found.extra),
    ]


def wrong_order(rows: Iterable[Row]) -> Sequence[str]:
    """Say which changes are older than the one of their key before them, or in two ranges."""
    trails = KeyOrder[tuple[int, RangeId]](lambda one, other: one[0] != other[0])
    return [
        str(problem)
        for x in rows
        for problem in trails.next(x.key, (x.generation, x.range), x.at_us)
    ]


def wrong_states(
    latest: Sequence[tuple[str, Last]], expected: Mapping[str, Last]
) -> Sequence[str]:
    found = dict(latest)
    counts = Counter(number for number, _ in latest)
    twice = [f"flight {x} is there {count} times" for x, count in counts.items() if count > 1]
    missing = [f"flight {x} is missing" for x in expected if x not in found]
    invented = [f"there is no flight {x}" for x in found if x not in expected]
    differ = [
        f"flight {x}: {name} is {got!r} instead of {want!r}"
        for x, last in expected.items()
        if x in found and found[x] != last
        for name, got, want in zip(Last._fields, found[x], last, strict=True)
        if got != want
    ]
    return [*missing, *invented, *twice, *differ]


def wrong_kinds(
    latest: Sequence[tuple[str, Last]], delivered: Mapping[str, str]
) -> Sequence[str]:
    return [
        f"flight {x} {last.kind}, and the last that came to a host is that it was "
        f"{delivered.get(x, 'never there')}"
        for x, last in latest
        if delivered.get(x) != last.kind
    ]
