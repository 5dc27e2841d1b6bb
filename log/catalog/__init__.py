"""The catalog of a log: its eras, brokers and collections, and their partitions."""
