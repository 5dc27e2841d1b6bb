"""What a log consists of: eras, brokers, collections, and the partitions that follow."""
