"""The delays of each carrier, drawn from the tables that Spark keeps of the flights.

    make demo ARGS="--keep DIR"              makes the feed, and the tables
    python -m samples.delays DIR delays.png  draws

``pipeline.toml`` says which tables there are, ``tables`` reads them, ``drawing`` draws. A
run that was kept with ``--no-tables`` gets its tables here.
"""
