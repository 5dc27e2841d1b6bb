"""The Spark data source ``changefeed``: any feed, in batches and as a stream.

    offsets   how far a query has got: frozen values, and their JSON
    planning  decisions: who gets how many changes, where a batch ends
    lineage   ranges that end, and those that go on with their keys
    access    what a feed must be able to tell a planner, with one module for each way
    scale     positions put in order, where the feed's contract does not
    asking    asking a feed again until it answers
    envelope  the columns of a change, and record batches of them
    buffers   Arrow arrays over the blocks of an event log
    options   what a user may say
    spark     the classes that Spark calls
    bodies    bodies, parsed by a schema in Spark

Only the last two import pyspark, so everything else is tested without it.
"""
