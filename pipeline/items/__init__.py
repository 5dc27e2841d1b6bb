"""Items of Cosmos DB by query, as the format ``changefeed_items``: batches only.

=================  ============================================================
``spark``          the classes that Spark calls
``options``        what a user may say
``columns``        items as columns; which types there are, and what fits them
``json_values``    the JSON of one value as a value of a type
``conditions``     filters of Spark as conditions of a query
``questions``      what is asked: queries, of ranges, of a key, or by ids
``item_reader``    asks, page by page, through splits and merges
=================  ============================================================
"""
