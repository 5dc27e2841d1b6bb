"""The delays of each carrier, drawn from the tables that Spark keeps of the flights.

    make demo ARGS="--keep DIR"              makes the feed
    python -m samples.delays DIR delays.png  keeps the tables, and draws

``keep_tables`` is also the second half of a demo: it takes the directory of a run of
``samples.flights``, brings the tables up to date, and returns the figures by carrier.
"""
