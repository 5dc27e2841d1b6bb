"""The same feeds as Spark sources and tables."""
