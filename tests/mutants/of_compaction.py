"""Breaks of compaction: runs, segments, and what is deleted."""

from .mutant import Mutant

_COMPACTION = "tests/unit/brokers/test_compaction.py"
_COMPACTED = "tests/unit/feeds/brokers/test_compacted.py"

COMPACTION = (
    Mutant(
        name="objects are deleted before they are in segments",
        file="brokers/retention.py",
        before="kept_from = await compacted.look(row.kept_from) + 1\n",
        after="kept_from = await compacted.look(row.kept_from) + 65\n",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="segments are deleted that have records to keep",
        file="brokers/retention.py",
        before="x.key for x in segments if x.last <= gone",
        after="x.key for x in segments if x.first <= gone",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="an object that is gone is not looked for in segments",
        file="feeds/brokers/partition_reader.py",
        before="look(row.kept_from, again=True)\n            blocks = await",
        after="look_behind(row.kept_from)\n            blocks = await",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="a partition whose records are nowhere seems to be at its end",
        file="feeds/brokers/partition_reader.py",
        before="    if last is not None and after < last:\n",
        after="    if last is None and after < last:\n",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="a segment that was not finished stays for good",
        file="brokers/compactor.py",
        before="                if named and named.key != listed.key:\n",
        after="                if named and named.key == '':\n",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="a segment that others wrote is believed unseen",
        file="brokers/segment_writer.py",
        before="    if there != wanted or found.last != last:\n",
        after="    if found.last != last:\n",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="the last run of a row forgets its producers",
        file="brokers/compactor.py",
        before="ends=tuple(ends if border.final else without_producers(ends)),",
        after="ends=tuple(without_producers(ends)),",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="a run is named although records are missing in it",
        file="brokers/run_maker.py",
        before="                if one.section.first != last + 1:\n",
        after="                if one.section.first <= last:\n",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="an era is closed by a seal where an object had been deleted",
        file="brokers/transitions.py",
        before="if any(sealed[x.broker][0] < x.kept_from for x in ending.rows):",
        after="if any(sealed[x.broker][0] < 1 for x in ending.rows):",
        rule=0,
        tests=(_COMPACTION,),
    ),
    Mutant(
        name="of segments that overlap the shorter is read",
        file="feeds/brokers/compacted.py",
        before="if best is None or ordered[place].last > best.last:",
        after="if best is None or ordered[place].last < best.last:",
        rule=0,
        tests=(_COMPACTED,),
    ),
)
