"""The messages between producers, readers and brokers, as values and as bytes. No I/O."""
