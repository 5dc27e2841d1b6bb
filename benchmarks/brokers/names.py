"""What the collection of these benchmarks is called, and its parts."""

COLLECTION = "orders"
PARTS = 12
