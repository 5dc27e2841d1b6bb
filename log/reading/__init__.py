"""A collection as a feed, read from wherever its partitions lie."""
