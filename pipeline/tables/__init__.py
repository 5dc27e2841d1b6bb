"""The tables a pipeline keeps, as Delta tables, which many engines read.

    changes     every change, appended; each batch one commit (``delta_sink``)
    latest      the latest state by key and id, merged (``latest``)
    aggregates  figures by groups of changes, merged (``aggregates``)

Each table is a streaming query of its own, with its own checkpoint and interval: one that
fails or falls behind does not hold up the others. One that starts far behind is filled first
(``filling``). All are exact after a crash: Spark then
repeats the last batch, a commit that names its batch is made only once, and merging the
same rows again changes nothing.
"""
