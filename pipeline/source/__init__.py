"""The Spark data source ``changefeed``: any feed, in batches and as a stream.

    offsets          how far a query has got: frozen values, and their JSON
    planning         decides how many changes each range gets, and where a batch ends
    lineage          ranges that end, and the children that own their keys next
    reader           what the planner and its tasks need of a feed (``Access``)
    feed_reader      ``Access`` for any feed, through the contract of feeds
    collection_reader  ``Access`` for a collection of a cluster, read in bulk
    stored_reader    the same over its store, with segments
    segment_reader   segments of it, as Arrow
    brokers_reader   a collection as its brokers show it
    addresses        picks the reader for the address of a feed
    position_order   computes with positions
    retries          retries calls to a feed until it answers
    record_batches   the columns of a change, and record batches of them
    drain            ends a query between two batches
    options          the options that users set
    newest           the newest bodies, for who wants to see what they are like
    backlog          what of a log Spark reads by itself, from segments, also as a stream
    spark            the classes that Spark calls
    body_schema      parses bodies by a schema, in Spark

Only the last four import pyspark, so everything else is tested without it.
"""
