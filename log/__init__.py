"""The event log: a feed in a directory, durable, partitioned, and of one machine.

A collection has a fixed number of *parts*, 12 by default, and 256 *virtual
parts* in each. The hash of a key gives both. A *partition* is a part with an interval of
virtual parts, and is one range of the feed: ``e1.p03.v00-ff`` is the whole of the third part
in the first era. Its changes are numbered from 1 without a gap.

One process writes, any number read, on one machine: the lock needs a local file system. What
was acknowledged survives a killed process and a loss of power. The files are those of a
cluster (``directory``), and ``docs/design/event-log.md`` gives the reasons.

A cluster of ``brokers`` writes the same log over an object store. The rooms, each above what
it stands on: ``brokers``; ``producing``; ``client`` and ``directory``; ``maintenance`` and
``reading``; ``rows``; ``protocol``; ``catalog``; ``format`` and ``stores``.
"""
