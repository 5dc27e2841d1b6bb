"""What producers, readers and brokers say to each other, as values and as bytes. No I/O."""
